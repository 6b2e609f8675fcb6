//! The demo as a new user runs it: all of its checks pass, and nothing is left behind, however it
//! ends. The second demo is a page of the documentation, whose commands are run.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use palisade_testkit::need_root;
use palisade_testkit::runtimes::RuntimePrograms;
use palisade_testkit::test_driver::agent_dataplane;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Folder of the product's programs: `PALISADE_PROGRAMS`, which the package ring sets to programs of the
/// release profile, or else that of this build. In the kernel ring they are already
/// built; otherwise cargo builds them.
fn programs() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(folder) = std::env::var_os("PALISADE_PROGRAMS") {
            return folder.into();
        }
        let folder = PathBuf::from(env!("CARGO_BIN_EXE_demo"));
        let folder = folder.parent().unwrap();
        let ring = std::env::var("PALISADE_RING").unwrap_or_default();
        let exist = ["palisade", "palisade-cni"].map(|name| folder.join(name).exists());
        if ring == "kernel" && exist == [true, true] {
            return folder.to_owned();
        }
        let release = folder.ends_with("release").then_some("--release");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--locked", "-p", "palisade", "-p", "palisade-cni"])
            .args(release)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .unwrap();
        assert!(built.success());
        folder.to_owned()
    };
    BUILT.get_or_init(build).clone()
}

fn demo() -> Child {
    Command::new(env!("CARGO_BIN_EXE_demo"))
        .arg("--programs")
        .arg(programs())
        .args(["--dataplane", &agent_dataplane()])
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Objects left behind by the demo with this process id.
fn left(process: u32) -> Vec<PathBuf> {
    let name = format!("pal-demo-{process}");
    let named = std::fs::read_dir("/run/netns").into_iter().flatten();
    let named = named.map(|entry| entry.unwrap().path());
    let mut left: Vec<PathBuf> = named
        .filter(|path| path.to_string_lossy().contains(&format!("/{name}-")))
        .collect();
    left.extend(Some(std::env::temp_dir().join(name)).filter(|path| path.exists()));
    left
}

fn ended(child: Child) -> (Output, String) {
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(left(process), [] as [PathBuf; 0]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    (output, text)
}

#[test]
fn every_check_of_the_demo_holds() {
    if !need_root() {
        return;
    }
    let (output, text) = ended(demo());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{errors}");
    assert_eq!(
        text.matches("ok: 120 of 120 cells match palisade explain")
            .count(),
        3,
        "{text}"
    );
    assert!(text.contains("kernel writes at start: 0"), "{text}");
    assert!(text.contains("All checks passed"), "{text}");
    assert!(!text.contains("WRONG"), "{text}");
}

#[test]
fn the_steps_of_protecting_a_host_are_as_the_page_says() {
    if !need_root() {
        return;
    }
    let child = Command::new(env!("CARGO_BIN_EXE_demo"))
        .arg("--hosts")
        .arg("--programs")
        .arg(programs())
        .args(["--dataplane", &agent_dataplane()])
        .env("LC_ALL", "C")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (output, text) = ended(child);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{errors}");
    let count = |what: &str| text.matches(what).count();
    assert_eq!(
        count("ok: in audit nothing is denied: 7 of 7 probes"),
        4,
        "{text}"
    );
    assert_eq!(count("ok: as the page says: 7 of 7 probes"), 1, "{text}");
    assert_eq!(count("ok: the session to the host:"), 7, "{text}");
    assert!(
        text.contains("All checks passed") && !text.contains("WRONG"),
        "{text}"
    );
}

/// Waits until the demo handles SIGINT; before that, it has made nothing, and a signal ends it without a word.
fn wait_until_interrupts_are_handled(child: &mut Child) {
    let interrupt = 1 << (Signal::SIGINT as u32 - 1);
    let limit = Instant::now() + Duration::from_secs(60);
    loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.map(|mask| u64::from_str_radix(mask.trim(), 16).unwrap());
        if caught.is_some_and(|mask| mask & interrupt != 0) {
            return;
        }
        assert_eq!(child.try_wait().unwrap(), None, "the demo ended early");
        assert!(Instant::now() < limit, "the demo does not handle SIGINT");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn an_interrupted_demo_leaves_nothing() {
    if !need_root() {
        return;
    }
    for after in [0, 30, 150, 700, 2500] {
        let mut child = demo();
        wait_until_interrupts_are_handled(&mut child);
        std::thread::sleep(Duration::from_millis(after));
        kill(
            Pid::from_raw(child.id().try_into().unwrap()),
            Signal::SIGINT,
        )
        .unwrap();
        let (output, text) = ended(child);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}\n{errors}");
        assert!(errors.contains("interrupted"), "{text}\n{errors}");
    }
}

#[test]
fn the_page_about_chained_plugins_is_true() {
    if !need_root() {
        return;
    }
    let Some(runtimes) = RuntimePrograms::containerd() else {
        return;
    };
    let target = runtimes.programs().join("../..").canonicalize().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/demo-chained");
    let output = Command::new(script)
        .arg("--programs")
        .arg(programs())
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(
        text.contains("everything was as docs/chained.md says"),
        "{text}"
    );
}

//! Tests in a virtual machine with Debian's kernel, which has drivers that the running kernel may lack.
//!
//! A guest sees the files of this machine and changes none of them, has no network device, and executes one test of the
//! calling program. Kernel and init are gathered by `scripts/runtimes guest`; a machine that cannot have them is told
//! in a loud line and the test counted as skipped, never as passed. A guest is emulated, about ten times slower than this
//! machine; one runs at a time.

use crate::ring::is_skip;
use crate::runtimes::RuntimePrograms;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Names the kernel to the tests in a guest, and says that they are in one.
const IN_GUEST: &str = "PALISADE_GUEST";

/// The longest time of one test in a guest.
const PATIENCE: Duration = Duration::from_secs(600);

/// The line in which a guest tells how its program ended.
const EXIT_STATUS: &str = "guest: exit status ";

/// Whether this process is in a guest.
#[allow(
    clippy::disallowed_methods,
    reason = "the variable tells a guest's process from others, it is not configuration"
)]
pub(crate) fn is_guest() -> bool {
    std::env::var_os(IN_GUEST).is_some()
}

/// Whether this process is in a guest. Elsewhere it executes the test of this name there, and the caller returns.
///
/// # Panics
/// If the test fails in the guest, or the guest does not come to its end.
#[must_use]
#[allow(clippy::panic, reason = "documented")]
pub fn need_guest(test: &str) -> bool {
    if is_guest() {
        return true;
    }
    let Some(folder) = RuntimePrograms::guest() else {
        return false;
    };
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    match run(&folder, test) {
        Ok(0) => false,
        Ok(status) => panic!("{test} failed in the guest: exit status {status}"),
        Err(reason) => panic!("{test} in a guest: {reason}"),
    }
}

/// Executes a test of this program in a guest; the result is its exit status.
#[allow(clippy::disallowed_methods, reason = "a test's own files and programs")]
fn run(folder: &Path, test: &str) -> Result<i32, String> {
    let failed = |doing: &'static str| move |error| format!("{doing}: {error}");
    let program = std::env::current_exe().map_err(failed("this program"))?;
    let here = std::env::current_dir().map_err(failed("this folder"))?;
    let job = tempfile::NamedTempFile::with_prefix_in("pal-guest-", folder);
    let job = job.map_err(failed("the guest's script"))?;
    let script = format!(
        "cd '{}' && exec env {IN_GUEST}=1 PALISADE_RING=kernel '{}' --exact --nocapture '{test}' 2>&1\n",
        here.display(),
        program.display(),
    );
    std::fs::write(job.path(), script).map_err(failed("the guest's script"))?;
    // In the guest folders of temporary files are its own, but for these.
    let is_checkout = |folder: &&Path| folder.join("Cargo.lock").exists();
    let checkout = here.ancestors().find(is_checkout).unwrap_or(&here);
    let target = program.ancestors().nth(3).unwrap_or(&program);
    let settings = format!(
        "console=ttyS0 quiet panic=-1 program={} modules={} checkout={} target={}",
        job.path().display(),
        folder.join("lib/modules").display(),
        checkout.display(),
        target.display(),
    );
    let mut guest = Command::new("qemu-system-x86_64")
        .args(["-machine", "q35", "-accel", "tcg", "-cpu", "max"])
        .args([
            "-smp",
            "2",
            "-m",
            "2048",
            "-nodefaults",
            "-no-reboot",
            "-display",
            "none",
        ])
        .args(["-serial", "stdio", "-append", &settings])
        .arg("-kernel")
        .arg(folder.join("vmlinuz"))
        .arg("-initrd")
        .arg(folder.join("initrd"))
        .args([
            "-virtfs",
            "local,path=/,mount_tag=files,security_model=none,readonly=on,multidevs=remap",
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed("qemu-system-x86_64"))?;
    let status = follow(&mut guest);
    // It powers itself off; one that hangs is ended.
    let _ = guest.kill();
    let _ = guest.wait();
    status
}

/// Shows what a guest prints, up to the line with the exit status of its program.
#[allow(
    clippy::disallowed_methods,
    reason = "bounds how long a test waits, judges nothing"
)]
fn follow(guest: &mut Child) -> Result<i32, String> {
    let Some(output) = guest.stdout.take() else {
        return Err("it has no console".to_owned());
    };
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if sender.send(line.trim_end().to_owned()).is_err() {
                return;
            }
        }
    });
    let end = Instant::now() + PATIENCE;
    let mut has_passed = false;
    loop {
        let rest = end.saturating_duration_since(Instant::now());
        let line = lines
            .recv_timeout(rest)
            .map_err(|error| format!("it did not tell how the test ended: {error}"))?;
        if let Some(status) = line.strip_prefix(EXIT_STATUS) {
            let parsed = status
                .parse()
                .map_err(|error| format!("{status:?}: {error}"));
            return match parsed? {
                0 if !has_passed => Err("no test of this name ran".to_owned()),
                status => Ok(status),
            };
        }
        if is_skip(&line) {
            return Err(line);
        }
        has_passed |= line.starts_with("test result: ok. 1 passed");
        let line: String = line.chars().filter(|c| !c.is_control()).collect();
        eprintln!("  guest | {line}");
    }
}

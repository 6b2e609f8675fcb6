//! `palisade install-cni`, and what is left of Palisade on a host before and after `palisade cleanup`.

use crate::agent::Agent;
use crate::agent::shop::Shop;
use palisade_testkit::lab::Lab;
use palisade_testkit::need_root;
use palisade_testkit::spelling::misspelled_keys;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// An agent's host with plugin directories of its own.
struct Host {
    shop: Shop,
}

impl Host {
    fn folder(agent: &Agent, name: &str) -> PathBuf {
        agent.policy().with_file_name(name)
    }

    /// The parameters that agent and commands must have in common.
    fn parameters(agent: &Agent) -> Vec<String> {
        let path = |name: &str| Self::folder(agent, name).display().to_string();
        vec![
            "--cni-bin-dir".to_owned(),
            path("bin"),
            "--cni-conf-dir".to_owned(),
            path("net.d"),
        ]
    }

    fn open(name: &str) -> Self {
        let mut agent = Agent::new();
        let parameters = Self::parameters(&agent);
        agent.more(&parameters.iter().map(String::as_str).collect::<Vec<_>>());
        Host {
            shop: Shop::under(agent, name),
        }
    }

    /// Runs a command with `-o json`; its exit code and answer.
    fn json(&self, command: &str, more: &[&str]) -> (i32, Value) {
        json(&self.shop.agent, &self.shop.lab, command, more)
    }

    /// What is left: how many of each kind.
    fn left(&self) -> BTreeMap<String, usize> {
        let (code, answer) = self.json("uninstall-check", &[]);
        let mut kinds = BTreeMap::new();
        for item in answer["items"].as_array().unwrap() {
            *kinds
                .entry(item["kind"].as_str().unwrap().to_owned())
                .or_default() += 1;
        }
        assert_eq!(
            (code == 0, answer["clean"] == true),
            (kinds.is_empty(), kinds.is_empty())
        );
        kinds
    }
}

fn json(agent: &Agent, lab: &Lab, command: &str, more: &[&str]) -> (i32, Value) {
    let parameters = Host::parameters(agent);
    let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
    let output = agent.beside(lab, command, &[&parameters, more, &["-o", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let answer = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    assert_eq!(misspelled_keys(&answer), [""; 0], "{answer:#}");
    (output.status.code().unwrap(), answer)
}

/// Kinds and numbers, as [`Host::left`] gives them.
fn kinds(of: &[(&str, usize)]) -> BTreeMap<String, usize> {
    of.iter()
        .map(|(kind, count)| ((*kind).to_owned(), *count))
        .collect()
}

#[test]
fn what_is_left_is_listed_until_cleanup_took_it() {
    if !need_root() {
        return;
    }
    let mut host = Host::open("uninst");
    let plugin = ["--from", env!("CARGO_BIN_EXE_palisade")];
    let (code, answer) = host.json("install-cni", &plugin);
    assert_eq!((code, &answer["outcome"]), (0, &"Installed".into()));
    let (code, answer) = host.json("install-cni", &plugin);
    assert_eq!((code, &answer["outcome"]), (0, &"Unchanged".into()));
    let conf = Host::folder(&host.shop.agent, "net.d").join("10-palisade.conflist");
    // The other plugin that runtimes call; it belongs to the host.
    let loopback = Host::folder(&host.shop.agent, "bin").join("loopback");
    std::fs::write(loopback, "").unwrap();
    let began = std::time::Instant::now();
    while !conf.exists() {
        assert!(began.elapsed() < std::time::Duration::from_secs(20));
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // Under a name that was configured earlier.
    std::fs::copy(&conf, conf.with_file_name("05-former.conflist")).unwrap();

    let mut left = host.left();
    assert_eq!(left.remove("Agent"), Some(1), "{left:?}");
    // Of the state directory: its files and itself; of the sysctls, those that were off.
    assert!(left.remove("State") > Some(2), "{left:?}");
    assert!(left.remove("Setting") <= Some(4), "{left:?}");
    let others = [
        ("CniConfiguration", 2),
        ("CniPlugin", 1),
        ("Interface", 3),
        // That of the API, and that for the DNS proxy.
        ("Socket", 2),
        ("Table", 1),
    ];
    let pins = host.shop.agent.has_fast_path().then_some(("Pins", 1));
    let others: Vec<(&str, usize)> = others.into_iter().chain(pins).collect();
    assert_eq!(left, kinds(&others));

    // The death of the agent leaves its socket too.
    host.shop.agent.kill();
    let mut left = host.left();
    assert!(left.remove("State").is_some());
    left.remove("Setting");
    assert_eq!(left, kinds(&others));

    let text = host
        .shop
        .agent
        .beside(&host.shop.lab, "uninstall-check", &[]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(
        text.contains("interface pal") && text.contains("`palisade cleanup` removes"),
        "{text}"
    );

    let (code, answer) = host.json("cleanup", &["--yes"]);
    assert_eq!(code, 0, "{answer:#}");
    let all = answer["items"].as_array().unwrap();
    assert!(all.iter().all(|item| item["removed"] == true), "{answer:#}");
    assert_eq!(host.left(), kinds(&[]));
    let folder = |name: &str| Host::folder(&host.shop.agent, name);
    // Only what is not ours: loopback.
    assert_eq!(std::fs::read_dir(folder("bin")).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(folder("net.d")).unwrap().count(), 0);
    assert!(!host.shop.agent.state().exists());

    // What others installed is reported, and not removed by cleanup.
    let chained = r#"{"plugins": [{"type": "ptp"}, {"type": "palisade-cni"}]}"#;
    std::fs::write(folder("net.d").join("10-pods.conflist"), chained).unwrap();
    std::fs::write(folder("bin").join("palisade-cni"), "x").unwrap();
    let of_others = kinds(&[("CniPlugin", 1), ("CniReference", 1)]);
    assert_eq!(host.left(), of_others);
    assert_eq!(
        host.json("cleanup", &["--yes"]).1["items"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
    assert_eq!(host.left(), of_others);
}

#[test]
fn the_directory_of_the_socket_goes_if_it_is_ours_alone() {
    if !need_root() {
        return;
    }
    let lab = Lab::new("unsock").unwrap();
    let agent = Agent::new();
    let folder = Host::folder(&agent, "run").join("palisade");
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("palisade.sock");
    drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
    let socket = socket.display().to_string();
    let palisade = |command: &str, more: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_palisade"))
            .args([command, "--socket", &socket, "-o", "json", "--state-dir"])
            .arg(agent.state())
            .args(Host::parameters(&agent))
            .args(more)
            .output();
        output.unwrap()
    };
    let count = |output: &std::process::Output| {
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        answer["items"].as_array().unwrap().len()
    };
    std::fs::write(folder.join("notes"), "x").unwrap();
    let (one, two) = lab
        .run_in(lab.host(), move || {
            let one = count(&palisade("uninstall-check", &[]));
            std::fs::remove_file(folder.join("notes")).unwrap();
            let two = count(&palisade("uninstall-check", &[]));
            assert!(palisade("cleanup", &["--yes"]).status.success());
            assert!(!folder.exists() && folder.parent().unwrap().exists());
            assert_eq!(palisade("uninstall-check", &[]).status.code(), Some(0));
            (one, two)
        })
        .unwrap();
    assert_eq!(
        (one, two),
        (1, 2),
        "with another file, the directory is not ours"
    );
}

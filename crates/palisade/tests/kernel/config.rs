//! The configuration of a running agent: its file is edited, made invalid, corrected and reloaded, and its
//! log changes its format.

use crate::agent::Agent;
use nix::sys::signal::Signal;
use palisade_testkit::lab::Lab;
use palisade_testkit::need_root;
use serde_json::Value;
use std::path::PathBuf;
use std::time::{Duration, Instant};

struct World {
    agent: Agent,
    file: PathBuf,
    _lab: Lab,
    _dir: tempfile::TempDir,
}

impl World {
    fn with(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("palisade.yaml");
        std::fs::write(&file, text).unwrap();
        let mut agent = Agent::new();
        agent.more(&["--config", file.to_str().unwrap()]);
        let lab = Lab::new("config").unwrap();
        agent.start(&lab);
        World {
            agent,
            file,
            _lab: lab,
            _dir: dir,
        }
    }

    fn rename_into_place(&self, text: &str) {
        let draft = self.file.with_extension("tmp");
        std::fs::write(&draft, text).unwrap();
        std::fs::rename(draft, &self.file).unwrap();
    }

    fn parameter(&self, name: &str) -> Value {
        let report = self.agent.json(&["config"]);
        let parameters = report["parameters"].as_array().unwrap();
        parameters
            .iter()
            .find(|p| p["name"] == name)
            .unwrap()
            .clone()
    }

    /// Waits until `done` returns a value.
    fn until<T>(&self, what: &str, done: impl Fn() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = done() {
                return found;
            }
            let log = self.agent.log();
            assert!(began.elapsed() < Duration::from_secs(20), "{what}\n{log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn until_value(&self, name: &str, value: &str) -> Value {
        self.until(name, || {
            Some(self.parameter(name)).filter(|p| p["value"] == value)
        })
    }
}

#[test]
fn the_file_of_a_running_agent_is_edited_broken_and_mended() {
    if !need_root() {
        return;
    }
    let world = World::with("monitor-rate: 5\nlog-format: json\nmtu: 1400\n");
    let rate = world.parameter("monitor-rate");
    assert_eq!(
        (&rate["value"], &rate["source"]),
        (&"5".into(), &"File".into())
    );
    assert!(
        rate["origin"]
            .as_str()
            .unwrap()
            .ends_with("palisade.yaml:1:1"),
        "{rate}"
    );
    for line in world.agent.log().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        for name in ["time", "level", "component", "message", "fields"] {
            assert!(!line[name].is_null(), "{name}: {line}");
        }
    }

    world.rename_into_place("monitor-rate: 6\nmtu: 1450\n");
    world.until_value("monitor-rate", "6");
    let mtu = world.parameter("mtu");
    assert_eq!(
        (&mtu["value"], &mtu["pending"]),
        (&"1400".into(), &"1450".into())
    );
    let waits = r#""parameter":"mtu","in_force":"1400","at_restart":"1450""#;
    world.until(waits, || world.agent.log().contains(waits).then_some(()));
    let as_text = |log: String| {
        log.lines()
            .last()
            .is_some_and(|line| !line.starts_with('{'))
    };

    // Written in place this time, and invalid: none of it takes effect.
    std::fs::write(&world.file, "monitor-rate: 7\nmonitor-rat: 3\n").unwrap();
    let status = world.agent.wait("refused", |s| s["health"] == "Degraded");
    assert!(as_text(world.agent.log()), "its form changed too");
    let reason = status["reasons"][0].as_str().unwrap();
    assert!(
        reason.contains(
            "palisade.yaml:2:1: unknown parameter \"monitor-rat\"; did you mean monitor-rate?"
        ),
        "{reason}"
    );
    assert_eq!(world.parameter("monitor-rate")["value"], "6");
    let shown = world.agent.run(&["config"]);
    assert_eq!(shown.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&shown.stdout).contains("INVALID"),
        "{shown:?}"
    );

    std::fs::write(&world.file, "monitor-rate: 7\n").unwrap();
    world.agent.wait("mended", |s| s["health"] == "Ready");
    assert_eq!(world.parameter("monitor-rate")["value"], "7");
    assert_eq!(world.parameter("mtu")["pending"], "1500");

    // Removed: the path was given explicitly, so a missing file is an error.
    std::fs::remove_file(&world.file).unwrap();
    world.agent.wait("gone", |s| s["health"] == "Degraded");
    world.rename_into_place("monitor-rate: 8\n");
    world.agent.wait("back", |s| s["health"] == "Ready");
    assert_eq!(world.parameter("monitor-rate")["value"], "8");

    world.agent.signal(Signal::SIGHUP);
    let read = "SIGHUP: rereading the configuration";
    world.until(read, || world.agent.log().contains(read).then_some(()));
    assert_eq!(world.parameter("monitor-rate")["value"], "8");
}

//! Starts with state files of earlier versions: read completely and rewritten in the present schema. Files of
//! a newer version are rejected, and enforcement continues.
//!
//! `recorded/` has a state directory of each earlier schema, written by an agent of that version with two
//! workloads and a policy that had allowed three packets and denied three; names that vary by run are in
//! braces.

use crate::agent::shop::address;
use crate::agent::{Agent, nft};
use palisade_testkit::lab::{Lab, NodeId, ProbeFlow, probe};
use palisade_testkit::need_root;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

const NAMES: [&str; 2] = ["web", "db"];
/// The recorded addresses of each workload.
const ADDRESSES: [[&str; 2]; 2] = [
    ["10.245.0.2", "fd50:616c:6973::2"],
    ["10.245.0.3", "fd50:616c:6973::3"],
];

fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded");
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

fn endpoints(agent: &Agent) -> Vec<(String, String, Vec<String>)> {
    let list = agent.json(&["endpoint", "list"]);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |e: &Value| {
        let addresses = e["addresses"].as_array().unwrap().iter().map(text);
        (text(&e["name"]), text(&e["state"]), addresses.collect())
    };
    let mut all: Vec<_> = list["endpoints"]
        .as_array()
        .unwrap()
        .iter()
        .map(of)
        .collect();
    all.sort();
    all
}

/// Whether UDP to db's ports 5001 and 5002 arrives, over IPv4 and IPv6.
fn arrives(lab: &Lab, pods: [NodeId; 2]) -> Vec<bool> {
    lab.flush_conntrack().unwrap();
    let flow = |to: &str, port| ProbeFlow::udp(pods[0], address(to), port, pods[1]);
    let [v4, v6] = ADDRESSES[1];
    probe(
        lab,
        &[
            flow(v4, 5001),
            flow(v6, 5001),
            flow(v4, 5002),
            flow(v6, 5002),
        ],
    )
    .unwrap()
}

/// Packets that the policy allowed and denied.
fn counted(agent: &Agent) -> [u64; 2] {
    let policy = agent.json(&["policy", "get", "shop/db"]);
    let rules = policy["ruleCounters"].as_array().unwrap();
    let of = |action: &str| {
        let rows = rules.iter().filter(|rule| rule["action"] == action);
        rows.map(|rule| rule["count"]["packets"].as_u64().unwrap())
            .sum()
    };
    [of("Allow"), of("DefaultDeny")]
}

/// Copies a recording with the names of this run.
fn fill(from: &Path, to: &Path, names: &[(String, String)]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            fill(&path, &target, names);
            continue;
        }
        let mut text = fs::read_to_string(&path).unwrap();
        for (name, value) in names {
            text = text.replace(name, value);
        }
        fs::write(target, text).unwrap();
    }
}

#[test]
fn every_earlier_schema_is_taken_over_and_a_newer_one_is_refused() {
    if !need_root() {
        return;
    }
    for recording in recorded() {
        let what = recording.display();
        let mut agent = Agent::new();
        let mut lab = Lab::new("schemas").unwrap();
        agent.start(&lab);
        let pods = [0, 1].map(|i| {
            let addresses = ADDRESSES[i].iter().map(|a| address(a)).collect();
            let node = lab.add_namespace(NAMES[i], addresses).unwrap();
            let label = format!("app={}", NAMES[i]);
            agent.attach(
                &lab,
                node,
                &format!("shop/{}", NAMES[i]),
                &ADDRESSES[i],
                &[&label],
            );
            node
        });
        let mut names = vec![("{policy}".to_owned(), agent.policy().display().to_string())];
        let list = agent.json(&["endpoint", "list"]);
        for endpoint in list["endpoints"].as_array().unwrap() {
            let name = endpoint["name"].as_str().unwrap();
            let interface = endpoint["interface"].as_str().unwrap().to_owned();
            names.push((format!("{{interface of {name}}}"), interface));
        }
        for (name, pod) in NAMES.iter().zip(pods) {
            let path = lab.namespace_path(pod).display().to_string();
            names.push((format!("{{netns of {name}}}"), path));
        }

        // The links stay; disk and table are as the earlier version would leave them over a reboot.
        agent.terminate();
        nft(&lab, "delete table inet palisade");
        fs::remove_dir_all(agent.state()).unwrap();
        fill(&recording, &agent.state(), &names);
        fs::rename(
            agent.state().join("policy.yaml"),
            agent.policy().join("web.yaml"),
        )
        .unwrap();
        agent.start(&lab);
        agent.wait("the policy is in force", |s| {
            s["policies"] == 1 && s["revision"] == s["realised"]
        });

        let endpoint = |i: usize| {
            let addresses = ADDRESSES[i].map(str::to_owned).to_vec();
            (NAMES[i].to_owned(), "Ready".to_owned(), addresses)
        };
        assert_eq!(endpoints(&agent), [endpoint(1), endpoint(0)], "{what}");
        assert_eq!(counted(&agent), [3, 3], "{what}");
        assert_eq!(arrives(&lab, pods), [true, true, false, false], "{what}");
        let [allowed, denied] = counted(&agent);
        assert!(allowed >= 5 && denied >= 5, "{what}: {allowed} {denied}");
        let next = lab.add_namespace("next", vec![]).unwrap();
        let added = agent.attach(&lab, next, "shop/next", &[], &[]);
        assert_eq!(added["addresses"][0], "10.245.0.4", "{what}: {added}");
        let file = agent.state().join("workloads.json");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains("\"schema\": 2"), "{what}: {text}");

        // And as a later version would leave it.
        agent.kill();
        let newer = text.replace("\"schema\": 2", "\"schema\": 99");
        fs::write(&file, &newer).unwrap();
        let table = nft(&lab, "list table inet palisade");
        let refused = agent.run_to_its_end(&lab);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success(), "{what}: {said}");
        assert!(said.contains("schema 99 is newer"), "{what}: {said}");
        assert_eq!(fs::read_to_string(&file).unwrap(), newer, "{what}");
        let rules = |text: &str| {
            text.lines()
                .filter(|line| !line.contains("counter"))
                .count()
        };
        let now = nft(&lab, "list table inet palisade");
        assert_eq!(rules(&table), rules(&now), "{what}");
        assert_eq!(arrives(&lab, pods), [true, true, false, false], "{what}");
    }
}

//! Upgrade from the former release, with traffic: its state directory and its table, as it left them, are taken over by
//! today's agent, and no packet is lost or passed.
//!
//! `tests/former_release` is what the former release left: its state, its policy, its table as the kernel dumps it, and
//! the names that vary by run. `make upgrade-fixture` builds that release and records it again; `make upgrade` upgrades
//! its package.

mod recorded_table;

use crate::agent::shop::{ADDRESSES, NAMES, Shop, address, policy};
use crate::agent::steady_traffic::{ALLOWED_TRAFFIC, SteadyTraffic};
use crate::agent::{Agent, nft};
use palisade_sys::netns::NetNs;
use palisade_testkit::lab::ProbeFlow;
use palisade_testkit::need_root;
use recorded_table::RecordedTable;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TABLE: &str = "palisade";
/// The manifest of the policy.
const POLICY: &str = "api.yaml";

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/former_release")
}

/// What varies by run: the interface and the namespace of each workload, and the folder of manifests.
fn names(shop: &Shop) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let list = shop.agent.json(&["endpoint", "list"]);
    for endpoint in list["endpoints"].as_array().unwrap() {
        let name = endpoint["name"].as_str().unwrap();
        let interface = endpoint["interface"].as_str().unwrap().to_owned();
        names.insert(format!("interface-{name}"), interface);
    }
    for (name, pod) in NAMES.iter().zip(shop.pods) {
        let path = shop.lab.namespace_path(pod).display().to_string();
        names.insert(format!("netns-{name}"), path);
    }
    let folder = shop.agent.policy().display().to_string();
    names.insert("policy".to_owned(), folder);
    names
}

/// Copies a folder, with each of these texts replaced by another.
fn copy(from: &Path, to: &Path, texts: &[(String, String)]) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target, texts);
            continue;
        }
        let mut text = fs::read_to_string(&path).unwrap();
        for (from, to) in texts {
            text = text.replace(from, to);
        }
        fs::write(target, text).unwrap();
    }
}

/// The records of workloads in a state directory.
fn records(state: &Path) -> Value {
    let text = fs::read_to_string(state.join("workloads.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Puts into the former release's records what identifies the links and namespaces of this run.
fn identify(state: &Path, present: &Value) {
    let mut former = records(state);
    for record in former["workloads"].as_array_mut().unwrap() {
        let mut all = present["workloads"].as_array().unwrap().iter();
        let same = all.find(|one| one["name"] == record["name"]).unwrap();
        for field in ["index", "netnsIdentity"] {
            assert!(record[field] != Value::Null, "{field}: {record}");
            record[field] = same[field].clone();
        }
    }
    fs::write(state.join("workloads.json"), former.to_string()).unwrap();
}

fn open_netns(shop: &Shop) -> NetNs {
    NetNs::open(shop.lab.namespace_name(shop.lab.host())).unwrap()
}

/// What passes: web to api on 8080, web to api on another port, db to api, in both families.
fn arrives(shop: &Shop) -> Vec<bool> {
    let flow = |from: usize, family: usize, port| {
        let to = address(ADDRESSES[1][family]);
        ProbeFlow::udp(shop.pods[from], to, port, shop.pods[1])
    };
    let both = |from, port| [flow(from, 0, port), flow(from, 1, port)];
    shop.arrives(&[both(0, 8080), both(0, 9090), both(2, 8080)].concat())
}

const EXPECTED: [bool; 6] = [true, true, false, false, false, false];

/// Packets that the policy allowed, and that it denied.
fn counted(agent: &Agent) -> [u64; 2] {
    let policy = agent.json(&["policy", "get", "shop/api"]);
    let rules = policy["ruleCounters"].as_array().unwrap();
    let count = |action: &str| {
        let rows = rules.iter().filter(|rule| rule["action"] == action);
        rows.map(|rule| rule["count"]["packets"].as_u64().unwrap())
            .sum()
    };
    [count("Allow"), count("DefaultDeny")]
}

/// Lets a program of the former release attach workloads and enforce a policy, and keeps what it leaves.
fn record(program: PathBuf) {
    let mut shop = Shop::under(Agent::of_program(program), "record");
    let agent = &shop.agent;
    agent.write(POLICY, &policy("api", "api", ALLOWED_TRAFFIC));
    agent.wait("the policy is in force", |status| {
        status["policies"] == 1 && status["revision"] == status["realised"]
    });
    assert_eq!(arrives(&shop), EXPECTED);
    let names = names(&shop);
    shop.agent.terminate();
    let _ = fs::remove_dir_all(fixture());
    copy(&shop.agent.state(), &fixture().join("state"), &[]);
    fs::copy(shop.agent.policy().join(POLICY), fixture().join(POLICY)).unwrap();
    let table = RecordedTable::read(&open_netns(&shop), TABLE);
    fs::write(fixture().join("table.txt"), table.to_string()).unwrap();
    let lines = names
        .iter()
        .map(|(name, value)| format!("{name} {value}\n"));
    fs::write(fixture().join("names.txt"), lines.collect::<String>()).unwrap();
}

#[test]
fn the_former_release_is_taken_over_without_a_lost_packet() {
    if !need_root() {
        return;
    }
    if let Some(program) = std::env::var_os("PALISADE_FORMER_RELEASE") {
        record(program.into());
    }
    let mut shop = Shop::with_nftables("upgrade");
    let now = names(&shop);
    shop.agent.terminate();
    nft(&shop.lab, "delete table inet palisade");
    let present = records(&shop.agent.state());
    fs::remove_dir_all(shop.agent.state()).unwrap();

    // Links and namespaces are of this run, everything else is of the former release.
    let kept = fs::read_to_string(fixture().join("names.txt")).unwrap();
    let texts: Vec<(String, String)> = kept
        .lines()
        .map(|line| {
            let (name, value) = line.split_once(' ').unwrap();
            (value.to_owned(), now[name].clone())
        })
        .collect();
    copy(&fixture().join("state"), &shop.agent.state(), &texts);
    identify(&shop.agent.state(), &present);
    let manifest = fs::read_to_string(fixture().join(POLICY)).unwrap();
    shop.agent.write(POLICY, &manifest);
    let mut table = RecordedTable::parse(&fs::read_to_string(fixture().join("table.txt")).unwrap());
    for (from, to) in texts.iter().filter(|(from, _)| from.len() <= 15) {
        table.rename(from, to);
    }
    table.write(&open_netns(&shop));
    assert_eq!(arrives(&shop), EXPECTED, "by the former release's rules");

    let traffic = SteadyTraffic::start(&shop);
    std::thread::sleep(Duration::from_millis(300));
    shop.agent.start(&shop.lab);
    shop.agent.wait("the policy is in force", |status| {
        status["policies"] == 1 && status["revision"] == status["realised"]
    });
    std::thread::sleep(Duration::from_millis(500));
    traffic.end("upgrade", 0);
    assert_eq!(arrives(&shop), EXPECTED, "by today's rules");

    let list = shop.agent.json(&["endpoint", "list"]);
    for endpoint in list["endpoints"].as_array().unwrap() {
        assert_eq!(endpoint["state"], "Ready", "{endpoint}");
    }
    // Counts go on from those of the former release.
    let [allowed, denied] = counted(&shop.agent);
    assert!(allowed > 200 && denied > 200, "{allowed} {denied}");
    let log = shop.agent.log();
    assert!(!log.contains("WARN") && !log.contains("ERROR"), "{log}");
}

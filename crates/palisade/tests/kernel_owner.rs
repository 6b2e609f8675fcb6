//! Table ownership: changes by other programs are refused while the agent runs, with packets flowing; the
//! next agent takes ownership over; only one agent runs at a time.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: it runs other programs, measures real time, and fails by panicking"
)]

mod agent;

use agent::shop::{ADDRESSES, FROM_WEB_8080, Shop, address, policy};
use agent::{Agent, nft};
use std::net::SocketAddr;
use std::process::{Command, Output};
use std::time::Duration;

use palisade_testkit::lab::{Spray, SprayKind};
use palisade_testkit::need_root;

const PACE: Duration = Duration::from_millis(2);

fn open(name: &str, agent: Agent) -> Shop {
    let shop = Shop::under(agent, name);
    let spec = format!(
        "{FROM_WEB_8080}  - from: [{{podSelector: {{matchLabels: {{app: web}}}}}}]\n    ports: [{{port: 8080, protocol: UDP}}]\n"
    );
    shop.agent.apply("api.yaml", &policy("api", "api", &spec));
    assert!(enforced(&shop));
    shop
}

fn enforced(shop: &Shop) -> bool {
    shop.tcp(0, 1, 8080) && !shop.tcp(2, 1, 8080)
}

/// The result of another program's `nft`.
fn others(shop: &Shop, script: &str) -> Output {
    let name = shop.lab.namespace_name(shop.lab.host());
    let mut command = Command::new("ip");
    command.args(["netns", "exec", name, "nft", script]);
    command.output().unwrap()
}

/// Continuous new flows, from an allowed and a denied source, in both families.
struct Traffic {
    sprays: Vec<(bool, Spray)>,
}

impl Traffic {
    fn start(shop: &Shop) -> Self {
        let mut sprays = Vec::new();
        for (from, allowed) in [(0, true), (2, false)] {
            for (family, text) in ADDRESSES[1].iter().enumerate() {
                let to = SocketAddr::new(address(text), 8080);
                let source = (shop.pods[from], address(ADDRESSES[from][family]));
                let receiver = (shop.pods[1], to);
                let spray =
                    Spray::start(&shop.lab, source, receiver, SprayKind::Udp, PACE).unwrap();
                sprays.push((allowed, spray));
            }
        }
        Traffic { sprays }
    }

    /// Stops it: all allowed packets arrived except this many of each kind, and no denied one.
    fn end(self, what: &str, lost: u64) {
        for (allowed, mut spray) in self.sprays {
            spray.stop();
            let counts = spray.counts();
            let missing = counts.sent - counts.arrived;
            println!("{what}: allowed {allowed}: {counts:?}");
            assert!(counts.sent > 100, "{what}: {counts:?}");
            if allowed {
                assert!(
                    missing <= lost + spray.overflowed(),
                    "{what}: lost: {counts:?}"
                )
            } else {
                assert_eq!(counts.arrived, 0, "{what}: passed: {counts:?}")
            }
        }
    }
}

fn repaired(shop: &Shop) -> u64 {
    shop.agent.status()["dataplane"]["repaired"]
        .as_u64()
        .unwrap()
}

/// The listing without counters.
fn listed(shop: &Shop) -> String {
    let name = shop.lab.namespace_name(shop.lab.host());
    let mut command = Command::new("ip");
    command.args([
        "netns",
        "exec",
        name,
        "nft",
        "-s",
        "list table inet palisade",
    ]);
    String::from_utf8(command.output().unwrap().stdout).unwrap()
}

#[test]
fn what_others_flush_delete_or_add_changes_nothing() {
    if !need_root() {
        return;
    }
    let agent = Agent::new().with(&["--masquerade", "outside"]);
    let shop = open("own-flush", agent);
    let before = listed(&shop);
    let nat = nft(&shop.lab, "list table inet palisade_nat");
    let traffic = Traffic::start(&shop);
    for _ in 0..100 {
        nft(&shop.lab, "add table inet theirs");
        nft(&shop.lab, "flush ruleset");
        assert!(!nft(&shop.lab, "list tables").contains("theirs"));
    }
    for script in [
        "delete table inet palisade",
        "flush table inet palisade",
        "flush chain inet palisade p_forward",
        "flush map inet palisade p_pt4_i",
        "insert rule inet palisade p_forward accept",
        "add element inet palisade p_if_ours { \"nobody0\" }",
        "add chain inet palisade mine",
        "add table inet palisade { flags dormant; }",
        "delete table inet palisade_nat",
        "delete table inet palisade_lock",
    ] {
        let answer = others(&shop, script);
        assert!(!answer.status.success(), "{script}: {answer:?}");
        let said = String::from_utf8_lossy(&answer.stderr).into_owned();
        assert!(said.contains("not permitted"), "{script}: {said}");
    }
    traffic.end("others flush", 0);
    assert_eq!(listed(&shop), before);
    assert_eq!(nft(&shop.lab, "list table inet palisade_nat"), nat);
    assert_eq!(repaired(&shop), 0, "there was nothing to repair");
    // Changes by the agent itself still succeed.
    shop.agent.apply("db.yaml", &policy("db", "db", ""));
    assert!(!shop.tcp(0, 2, 8080) && enforced(&shop));
}

#[test]
fn a_killed_agents_table_stays_and_is_the_next_ones() {
    if !need_root() {
        return;
    }
    let mut shop = open("own-kill", Agent::new());
    let traffic = Traffic::start(&shop);
    for round in 0..3 {
        shop.agent.kill();
        assert!(
            nft(&shop.lab, "list tables").contains("table inet palisade"),
            "it stays"
        );
        assert!(!nft(&shop.lab, "list tables").contains("_lock"));
        shop.agent.start(&shop.lab);
        let status = shop
            .agent
            .wait("ready", |s| s["health"] == "Ready" && s["realised"] != 0);
        assert_eq!(
            status["dataplane"]["start"]["writes"], 0,
            "{round}: {status:#}"
        );
        let refused = others(&shop, "delete table inet palisade");
        assert!(!refused.status.success(), "{round}: {refused:?}");
        nft(&shop.lab, "flush ruleset");
    }
    traffic.end("killed", 0);
    shop.agent.terminate();
    assert!(!shop.tcp(2, 1, 8080), "the kernel goes on");
    let gone = shop.agent.beside(&shop.lab, "cleanup", &["--yes"]);
    assert!(gone.status.success(), "{gone:?}");
    assert!(!nft(&shop.lab, "list tables").contains("palisade"));
}

/// Sum of the counters of the policy's rules.
fn counted(shop: &Shop) -> u64 {
    let policy = shop.agent.json(&["policy", "get", "shop/api"]);
    let rules = policy["ruleCounters"].as_array().unwrap();
    rules
        .iter()
        .map(|r| r["count"]["packets"].as_u64().unwrap())
        .sum()
}

#[test]
fn a_table_without_an_owner_is_taken_over_under_traffic_and_back() {
    if !need_root() {
        return;
    }
    let mut agent = Agent::new();
    agent.set("PALISADE_OWN_TABLE", "false");
    let mut shop = open("own-handoff", agent);
    let change = "add chain inet palisade mine";
    assert!(others(&shop, change).status.success());
    shop.agent.wait("repaired", |s| {
        s["dataplane"]["repaired"].as_u64() > Some(0)
    });
    for owned in ["true", "false"] {
        let traffic = Traffic::start(&shop);
        std::thread::sleep(Duration::from_millis(200));
        let before = counted(&shop);
        assert!(before > 0);
        shop.agent.kill();
        shop.agent.set("PALISADE_OWN_TABLE", owned);
        shop.agent.start(&shop.lab);
        shop.agent.wait("ready", |s| {
            s["health"] == "Ready" && s["revision"] == s["realised"]
        });
        assert!(counted(&shop) >= before, "own-table {owned}");
        let is_refused = !others(&shop, change).status.success();
        assert_eq!(is_refused, owned == "true");
        if is_refused {
            nft(&shop.lab, "flush ruleset");
        }
        std::thread::sleep(Duration::from_millis(300));
        // One transaction replaces the old table; a packet between two lookups in the old one is dropped.
        traffic.end(&format!("own-table {owned}"), 1);
        assert!(enforced(&shop));
    }
}

#[test]
fn a_second_agent_refuses_to_start_and_cleanup_to_remove() {
    if !need_root() {
        return;
    }
    let modes = ["true", "false"];
    for first in modes {
        let agent = Agent::new().with(&[&format!("--own-table={first}")]);
        let shop = open(&format!("own-two-{first}"), agent);
        let before = listed(&shop);
        for second in modes {
            let other = Agent::new().with(&[&format!("--own-table={second}")]);
            let ended = other.run_to_its_end(&shop.lab);
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(!ended.status.success(), "{first} {second}: {said}");
            assert!(
                said.contains("is owned by another running agent"),
                "{first} {second}: {said}"
            );
            let cleaned = other.beside(&shop.lab, "cleanup", &["--yes"]);
            let said = String::from_utf8_lossy(&cleaned.stderr).into_owned();
            assert!(!cleaned.status.success(), "{first} {second}: {said}");
            assert!(said.contains("stop it"), "{first} {second}: {said}");
        }
        assert_eq!(listed(&shop), before);
        assert!(enforced(&shop));
        assert_eq!(repaired(&shop), 0);
    }
}

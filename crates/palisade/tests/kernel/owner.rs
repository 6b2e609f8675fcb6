//! Table ownership: changes by other programs are refused while the agent runs, with packets flowing; the
//! next agent takes ownership over; only one agent runs at a time.

use crate::agent::shop::{Shop, policy};
use crate::agent::steady_traffic::{ALLOWED_TRAFFIC, SteadyTraffic};
use crate::agent::{Agent, nft};
use std::process::{Command, Output};
use std::time::Duration;

use palisade_testkit::need_root;

fn open(name: &str, agent: Agent) -> Shop {
    let shop = Shop::under(agent, name);
    let manifest = policy("api", "api", ALLOWED_TRAFFIC);
    shop.agent.apply("api.yaml", &manifest);
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
    let traffic = SteadyTraffic::start(&shop);
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
    let traffic = SteadyTraffic::start(&shop);
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
        let traffic = SteadyTraffic::start(&shop);
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

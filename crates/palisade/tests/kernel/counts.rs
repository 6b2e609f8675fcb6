//! Counters never decrease: with packets flowing, during edits, renumbering, repairs, kills and restarts,
//! every rule shows exactly the number of packets that the senders sent.

use crate::agent::shop::{ADDRESSES, Shop, address, policy};
use crate::agent::{Agent, nft};
use palisade_testkit::lab::{Lab, NodeId};
use palisade_testkit::need_root;
use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

/// The port that web may use.
const ALLOWED: u16 = 8080;
/// A port that no policy allows.
const DENIED: u16 = 9999;

/// The last source port used.
static LAST_PORT: AtomicU16 = AtomicU16::new(10_000);

/// Sends packets, each of a new flow, and counts them.
fn send(lab: &Lab, from: NodeId, to: IpAddr, port: u16, sent: &AtomicU64, stop: &AtomicBool) {
    let any: IpAddr = match to {
        IpAddr::V4(_) => "0.0.0.0".parse().unwrap(),
        IpAddr::V6(_) => "::".parse().unwrap(),
    };
    let sending = || {
        while !stop.load(Ordering::Relaxed) {
            // The port of an existing conntrack entry would not be evaluated again.
            let last = LAST_PORT.fetch_add(1, Ordering::Relaxed);
            let socket = UdpSocket::bind((any, last)).unwrap();
            if socket.send_to(b"one", (to, port)).is_ok() {
                sent.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    lab.run_in(from, sending).unwrap();
}

/// The policy, with this many rules that match no peer before and after the one about web.
fn text(before: usize, after: usize) -> String {
    let nobody = |n: usize| {
        format!(
            "  - from: [{{podSelector: {{matchLabels: {{app: nobody-{n}}}}}}}]\n    ports: [{{port: {ALLOWED}, protocol: UDP}}]\n"
        )
    };
    let mut spec = String::from("  ingress:\n");
    (0..before).for_each(|n| spec += &nobody(n));
    spec += &format!(
        "  - from: [{{podSelector: {{matchLabels: {{app: web}}}}}}]\n    ports: [{{port: {ALLOWED}, protocol: UDP}}]\n"
    );
    (0..after).for_each(|n| spec += &nobody(100 + n));
    policy("api", "api", &spec)
}

/// Counters of the policy, rules by their index.
fn shown(agent: &Agent) -> BTreeMap<String, u64> {
    let detail = agent.json(&["policy", "get", "shop/api"]);
    let rows = detail["ruleCounters"].as_array().unwrap();
    rows.iter()
        .map(|row| {
            let name = match row["index"].as_u64() {
                Some(index) => index.to_string(),
                None => row["action"].as_str().unwrap().to_owned(),
            };
            (name, row["count"]["packets"].as_u64().unwrap())
        })
        .collect()
}

/// Stops the senders, also on a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn every_packet_is_counted_once_through_edits_kills_and_repairs() {
    if !need_root() {
        return;
    }
    let mut shop = Shop::under(Agent::changeable(), "counts");
    shop.agent.apply("api.yaml", &text(0, 0));
    let (allowed, denied, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let mut at = 0;
    let mut last: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut reads, mut kills) = (0, 0);
    for round in 0..9 {
        stop.store(false, Ordering::Relaxed);
        let Shop { agent, lab, pods } = &mut shop;
        let (lab, [web, _, db]) = (&*lab, *pods);
        std::thread::scope(|scope| {
            let stop = &stop;
            for to in ADDRESSES[1] {
                let (allowed, denied) = (&allowed, &denied);
                scope.spawn(move || send(lab, web, address(to), ALLOWED, allowed, stop));
                scope.spawn(move || send(lab, db, address(to), DENIED, denied, stop));
            }
            let _stop = Stop(stop);
            for edit in 0..4 {
                at = (round + edit) % 3;
                agent.apply("api.yaml", &text(at, 1 + 4 * round + edit));
                let counts = shown(agent);
                let now = [
                    ("web", counts[&at.to_string()]),
                    ("denied", counts["DefaultDeny"]),
                ];
                for (what, now) in now {
                    let before = last.insert(what, now).unwrap_or_default();
                    assert!(now >= before, "{what} went back from {before}: {counts:?}");
                }
                reads += 1;
            }
            at = round % 2;
            let next = text(at, 60 + round);
            match round % 3 {
                // Killed during an edit, which the next process completes.
                0 => {
                    agent.write("api.yaml", &next);
                    std::thread::sleep(Duration::from_millis(22 + 7 * round as u64));
                    agent.kill();
                    kills += 1;
                    agent.start(lab);
                }
                // An edit while no agent runs.
                1 => {
                    agent.kill();
                    kills += 1;
                    agent.write("api.yaml", &next);
                    agent.start(lab);
                }
                // Damage that is repaired.
                _ => {
                    agent.apply("api.yaml", &next);
                    let before = agent.status()["dataplane"]["repaired"].as_u64();
                    nft(lab, "flush chain inet palisade p_generation");
                    let mended =
                        |s: &serde_json::Value| s["dataplane"]["repaired"].as_u64() > before;
                    agent.wait("repaired", mended);
                }
            }
        });
        shop.agent.wait("ready", |s| {
            s["health"] == "Ready" && s["revision"] == s["realised"]
        });
        let counts = shown(&shop.agent);
        let sent = [&allowed, &denied].map(|n| n.load(Ordering::Relaxed));
        println!("round {round}: sent {sent:?}, shown {counts:?}");
        assert_eq!(
            counts[&at.to_string()],
            sent[0],
            "round {round}: {counts:?}"
        );
        assert_eq!(counts["DefaultDeny"], sent[1], "round {round}: {counts:?}");
        let all: u64 = counts.values().sum();
        assert_eq!(
            all,
            sent[0] + sent[1],
            "round {round}: under another rule: {counts:?}"
        );
    }
    let sent = allowed.load(Ordering::Relaxed) + denied.load(Ordering::Relaxed);
    println!(
        "{sent} packets, each counted once; {kills} kills; {reads} reads meanwhile, none less than before"
    );
    assert!(sent > 500, "{sent}");
}

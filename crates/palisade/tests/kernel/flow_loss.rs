//! Flows whose begin or end the kernel had no room to tell, because the agent did not read: the number of what was lost is
//! exact, and every flow is told once as begun and once as ended all the same.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, Shop, address};
use crate::monitor::Following;
use nix::sys::signal::Signal;
use palisade_testkit::lab::{ProbeFlow, probe};
use palisade_testkit::need_root;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Timeout for lines: the kernel's connections are listed at most every five seconds.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long no further line is awaited.
const QUIET: Duration = Duration::from_millis(700);
/// The port of the flows.
const PORT: u16 = 7000;

/// The state of a flow, the family and the source port.
type Told = BTreeMap<(String, bool, u64), Vec<Value>>;

/// What the monitor has told so far.
struct FlowLines {
    following: Following,
    told: Told,
    lost: u64,
}

impl FlowLines {
    fn read(&mut self, wait: Duration) -> bool {
        let Ok(line) = self.following.lines.recv_timeout(wait) else {
            return false;
        };
        match line["type"].as_str().unwrap() {
            "Flow" if line["destination"]["port"] == PORT => {
                let state = line["state"].as_str().unwrap().to_owned();
                let is_v6 = line["source"]["address"].as_str().unwrap().contains(':');
                let port = line["source"]["port"].as_u64().unwrap();
                self.told
                    .entry((state, is_v6, port))
                    .or_default()
                    .push(line);
            }
            "Lost" => {
                assert_eq!(line["cause"], "Flows", "{line:#}");
                self.lost += line["count"].as_u64().unwrap();
            }
            _ => {}
        }
        true
    }

    /// Reads until all of these flows are told in this state, and then until nothing more comes.
    fn wait_for(&mut self, shop: &Shop, state: &str, ports: &Range<u16>) {
        let began = Instant::now();
        loop {
            while self.read(QUIET) {}
            let is_told = |(is_v6, port)| {
                let key = (state.to_owned(), is_v6, u64::from(port));
                self.told.contains_key(&key)
            };
            let missing = numbered(ports).filter(|flow| !is_told(*flow)).count();
            if missing == 0 {
                break;
            }
            let log = shop.agent.log();
            assert!(began.elapsed() < PATIENCE, "{missing} not {state}\n{log}");
        }
        let twice = self.told.iter().find(|(_, lines)| lines.len() != 1);
        assert_eq!(twice, None, "a flow is told once in a state");
    }

    /// How many flows with these ports have been told in a state and lack a value.
    fn without(&self, state: &str, ports: &Range<u16>, key: &str) -> usize {
        let lines = numbered(ports).map(|(is_v6, port)| {
            let key = (state.to_owned(), is_v6, u64::from(port));
            &self.told[&key][0]
        });
        lines.filter(|line| line[key].is_null()).count()
    }
}

/// The flows with these source ports: of both families.
fn numbered(ports: &Range<u16>) -> impl Iterator<Item = (bool, u16)> {
    let families = ports.clone().map(|port| [(false, port), (true, port)]);
    families.flatten()
}

/// A packet of each flow with these source ports, from web to api.
fn send(shop: &Shop, ports: &Range<u16>) {
    let flows: Vec<ProbeFlow> = numbered(ports)
        .map(|(is_v6, port)| {
            let to = address(ADDRESSES[1][usize::from(is_v6)]);
            let flow = ProbeFlow::udp(shop.pods[0], to, PORT, shop.pods[1]);
            flow.with_source_port(port)
        })
        .collect();
    let arrived = probe(&shop.lab, &flows).unwrap();
    assert!(arrived.iter().all(|arrived| *arrived));
}

/// The notifications that the kernel has dropped for sockets of netfilter on the host.
fn dropped(shop: &Shop) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netlink").unwrap();
    let table = shop.lab.run_in(shop.lab.host(), read).unwrap();
    let rows = table
        .lines()
        .skip(1)
        .map(|row| -> Vec<&str> { row.split_whitespace().collect() });
    // The columns: socket, family, port, groups, rmem, wmem, dump, locks, drops, inode.
    let of_netfilter = rows.filter(|row| row[1] == "12");
    of_netfilter.map(|row| row[8].parse::<u64>().unwrap()).sum()
}

/// Runs something while the agent does not read; what the kernel has dropped meanwhile.
fn unread(shop: &Shop, work: impl FnOnce()) -> u64 {
    let before = dropped(shop);
    shop.agent.signal(Signal::SIGSTOP);
    work();
    let lost = dropped(shop) - before;
    shop.agent.signal(Signal::SIGCONT);
    lost
}

#[test]
fn flows_whose_begin_or_end_was_lost_are_told_once() {
    if !need_root() {
        return;
    }
    let mut agent = Agent::with_nftables().with(&["--flows", "on"]);
    let injected = std::env::var("PALISADE_FAULT").unwrap_or_default();
    agent.set("PALISADE_FAULT", format!("small-flow-queue,{injected}"));
    let shop = Shop::under(agent, "flowloss");
    let counted = [("acct", "1"), ("udp_timeout", "600")];
    for (name, value) in counted {
        let key = format!("net/netfilter/nf_conntrack_{name}");
        shop.lab.set_sysctl(shop.lab.host(), &key, value).unwrap();
    }
    let mut lines = FlowLines {
        following: Following::start(&shop, &["--flows"]),
        told: Told::new(),
        lost: 0,
    };
    // It listens once a flow is told.
    let mut number = 1;
    while !lines.read(QUIET) {
        assert!(number < 50, "{}", shop.agent.log());
        send(&shop, &(number..number + 1));
        number += 1;
    }
    lines.wait_for(&shop, "Began", &(number - 1..number));

    let first = 10_000..10_200;
    let lost = unread(&shop, || send(&shop, &first));
    assert!(lost > 100, "{lost}");
    lines.wait_for(&shop, "Began", &first);
    assert_eq!(lines.lost, lost, "every lost event is counted");
    // When a flow began that was found open, nobody knows.
    assert_eq!(lines.without("Began", &first, "began") as u64, lost);
    assert_eq!(lines.without("Began", &first, "ingress"), 0);

    // Ends are lost, and begins of others.
    let second = 20_000..20_100;
    let lost_then = unread(&shop, || {
        shop.lab.flush_conntrack().unwrap();
        send(&shop, &second);
    });
    assert!(lost_then > 300, "{lost_then}");
    lines.wait_for(&shop, "Ended", &first);
    lines.wait_for(&shop, "Began", &second);
    assert_eq!(lines.lost, lost + lost_then);
    let uncounted = lines.without("Ended", &first, "traffic");
    assert!(
        uncounted > 100,
        "what they carried is not known: {uncounted}"
    );
    assert_eq!(lines.without("Ended", &first, "ingress"), 0);

    // The record counts each once.
    let recorded = shop.agent.json(&["flows", "--port", &PORT.to_string()]);
    let flows = recorded["flows"].as_array().unwrap().iter();
    let count: u64 = flows.map(|flow| flow["count"].as_u64().unwrap()).sum();
    let sent = 2 * (usize::from(number) - 1 + first.len() + second.len());
    assert_eq!(count, sent as u64, "{recorded:#}");
    println!(
        "account: flows: {} events lost and counted, {sent} flows each told once at its begin and at its end",
        lines.lost
    );
}

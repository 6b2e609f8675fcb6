//! A random program of traffic: every flow that passes is told once when it begins and once when it ends, with the rule
//! of each end; no other flow is. What passes, and by which rule, the test reads from the policies below by itself.
//!
//! `LOAD_FLOWS` sets the number of flows.

use crate::agent::Agent;
use crate::agent::shop::{ADDRESSES, NAMES, Shop, address, policy};
use crate::monitor::Following;
use palisade_generators::seeds;
use palisade_testkit::lab::{OUTSIDE_ADDRESSES, ProbeFlow, ProbeL4};
use palisade_testkit::need_root;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Flows at a time: fewer than the lines that the agent keeps for a client.
const BATCH: usize = 400;
/// Timeout for the lines of a batch.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long no further line is awaited.
const QUIET: Duration = Duration::from_millis(300);
/// The number that [`ends`] have for the outside.
const OUTSIDE: usize = 3;

const DB: &str = "  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 8080}, {protocol: SCTP, port: 8080}]
  - from: [{podSelector: {matchLabels: {app: web}}}, {ipBlock: {cidr: 0.0.0.0/0}}]
    ports: [{protocol: UDP, port: 8080, endPort: 8090}]
";
const WEB: &str = "  policyTypes: [Egress]
  egress:
  - to: [{podSelector: {matchLabels: {app: api}}}]
    ports: [{protocol: UDP, port: 53}]
  - to: [{podSelector: {matchLabels: {app: db}}}]
";

/// A protocol of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    Tcp,
    Udp,
    Sctp,
    Echo,
}

/// What the program sends: numbers of the ends, the family (0 for IPv4), the protocol and the port.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: usize,
    to: usize,
    family: usize,
    sent: Sent,
    port: u16,
}

/// What lets a flow pass at an end: the policy and the rule's index, or the profile; `None` where nothing judges it.
type Passed = Option<(&'static str, Option<u64>)>;

/// The profile of what no policy selects.
const PROFILE: Passed = Some(("palisade.allow-all", Some(0)));

impl Step {
    fn random(random: &mut SmallRng) -> Self {
        let from = random.random_range(0..=OUTSIDE);
        let others: Vec<usize> = (0..OUTSIDE).filter(|to| *to != from).collect();
        Step {
            from,
            to: *others.choose(random).unwrap(),
            family: random.random_range(0..2),
            sent: *[Sent::Tcp, Sent::Udp, Sent::Sctp, Sent::Echo]
                .choose(random)
                .unwrap(),
            port: *[53, 8080, 8085, 9].choose(random).unwrap(),
        }
    }

    /// What lets it leave, and what lets it arrive; `None` if it is denied.
    fn passes(self) -> Option<[Passed; 2]> {
        let Step {
            from,
            to,
            family,
            sent,
            port,
        } = self;
        let egress = match (NAMES.get(from), NAMES[to]) {
            (None, _) => None,
            (Some(&"web"), "api") => match (sent, port) {
                (Sent::Udp, 53) => Some(("web", Some(0))),
                _ => return None,
            },
            (Some(&"web"), _) => Some(("web", Some(1))),
            (Some(_), _) => PROFILE,
        };
        let ingress = match (NAMES[to], NAMES.get(from), sent, port) {
            ("db", Some(&"web"), Sent::Tcp | Sent::Sctp, 8080) => Some(("db", Some(0))),
            ("db", Some(&"web"), Sent::Udp, 8080..=8090) => Some(("db", Some(1))),
            // A network of IPv4 addresses has no IPv6 address.
            ("db", _, Sent::Udp, 8080..=8090) if family == 0 => Some(("db", Some(1))),
            ("db", ..) => return None,
            _ => PROFILE,
        };
        Some([egress, ingress])
    }

    fn source(self) -> String {
        match ADDRESSES.get(self.from) {
            Some(addresses) => addresses[self.family].to_owned(),
            None => OUTSIDE_ADDRESSES[4 * self.family].to_string(),
        }
    }

    fn destination(self) -> &'static str {
        ADDRESSES[self.to][self.family]
    }

    fn probe(self, shop: &Shop, source_port: u16) -> ProbeFlow {
        let (port, source_port) = (self.port, Some(source_port));
        let from = (shop.pods.get(self.from).copied()).unwrap_or_else(|| shop.lab.outside());
        let (to, receiver) = (address(self.destination()), shop.pods[self.to]);
        let echo = ProbeFlow::echo(from, to, receiver);
        ProbeFlow {
            l4: match self.sent {
                Sent::Tcp => ProbeL4::Tcp { source_port, port },
                Sent::Udp => ProbeL4::Udp { source_port, port },
                Sent::Sctp => ProbeL4::Sctp { source_port, port },
                Sent::Echo => echo.l4,
            },
            ..echo
        }
    }

    /// The line that it is to be told with, but for its times.
    fn line(self, source_port: u16, [egress, ingress]: [Passed; 2]) -> String {
        let name = |end: usize| NAMES.get(end).copied();
        let (protocol, ports) = match (self.sent, self.family) {
            (Sent::Tcp, _) => ("TCP", Some((source_port, self.port))),
            (Sent::Udp, _) => ("UDP", Some((source_port, self.port))),
            (Sent::Sctp, _) => ("SCTP", Some((source_port, self.port))),
            (Sent::Echo, 0) => ("ICMP", None),
            (Sent::Echo, _) => ("ICMPv6", None),
        };
        let ports = (ports.map(|(port, _)| port), ports.map(|(_, port)| port));
        format!(
            "{protocol} {:?} {} {:?} -> {:?} {} {:?} {egress:?} {ingress:?}",
            name(self.from),
            self.source(),
            ports.0,
            name(self.to),
            self.destination(),
            ports.1,
        )
    }
}

/// A line as [`Step::line`] has it.
fn told_line(flow: &Value) -> String {
    let passed = |direction: &str| {
        let rule = flow[direction].get("rule")?;
        Some((rule["name"].as_str().unwrap(), rule["index"].as_u64()))
    };
    let port = |end: &str| flow[end]["port"].as_u64();
    format!(
        "{} {:?} {} {:?} -> {:?} {} {:?} {:?} {:?}",
        flow["protocol"].as_str().unwrap(),
        flow["source"]["name"].as_str(),
        flow["source"]["address"].as_str().unwrap(),
        port("source"),
        flow["destination"]["name"].as_str(),
        flow["destination"]["address"].as_str().unwrap(),
        port("destination"),
        passed("egress"),
        passed("ingress"),
    )
}

type Counts = BTreeMap<(String, String), i64>;

/// Sends a batch, and adds what is to be told and takes off what is.
fn send(shop: &Shop, following: &Following, steps: &[Step], counts: &mut Counts) {
    let port = |number: usize| 10_000 + u16::try_from(number).unwrap();
    let numbered = || steps.iter().enumerate();
    let probes: Vec<ProbeFlow> = numbered()
        .map(|(number, step)| step.probe(shop, port(number)))
        .collect();
    let passes: Vec<bool> = steps.iter().map(|step| step.passes().is_some()).collect();
    assert_eq!(shop.arrives(&probes), passes);
    shop.lab.flush_conntrack().unwrap();
    let mut missing: i32 = 0;
    for (number, step) in numbered() {
        let Some(passed) = step.passes() else {
            continue;
        };
        for state in ["Began", "Ended"] {
            let line = step.line(port(number), passed);
            // Equal echoes are sent once: a probe has no number of its own.
            let is_new = counts.insert((state.to_owned(), line), 1).is_none();
            missing += i32::from(is_new);
        }
    }
    let began = Instant::now();
    loop {
        let wait = if missing > 0 { PATIENCE } else { QUIET };
        let Ok(line) = following.lines.recv_timeout(wait) else {
            break;
        };
        match line["type"].as_str().unwrap() {
            "Flow" => {
                let state = line["state"].as_str().unwrap().to_owned();
                *counts.entry((state, told_line(&line))).or_default() -= 1;
                missing -= 1;
            }
            "Lost" if line["cause"] != "Rate" => panic!("{line:#}"),
            _ => {}
        }
        assert!(began.elapsed() < PATIENCE * 2, "{}", shop.agent.log());
    }
    // A prober whose queue overflows sends all again: echoes, with other identifiers, are further flows.
    let sums = counts.clone();
    let is_again = |state: &str, line: &String, count: i64| {
        let other = if state == "Began" { "Ended" } else { "Began" };
        count < 0
            && line.starts_with("ICMP")
            && sums.get(&(other.to_owned(), line.clone())) == Some(&count)
    };
    counts.retain(|(state, line), count| *count != 0 && !is_again(state, line, *count));
    assert!(
        counts.is_empty(),
        "not told (1), or not sent (-1): {counts:#?}"
    );
}

#[test]
fn flows_of_a_random_program_are_told_once() {
    if !need_root() {
        return;
    }
    let asked = std::env::var("LOAD_FLOWS").ok();
    let flows: usize = asked
        .filter(|text| !text.is_empty())
        .map_or(3_200, |text| text.parse().unwrap());
    let shop = Shop::under(Agent::new().with(&["--flows", "on"]), "program");
    shop.agent.apply("db.yaml", &policy("db", "db", DB));
    shop.agent.apply("web.yaml", &policy("web", "web", WEB));
    let following = Following::start(&shop, &["--flows"]);
    wait_until_told(&shop, &following);
    let seeds = seeds(1);
    let mut passed = 0;
    for seed in &seeds {
        let mut random = SmallRng::seed_from_u64(*seed);
        for _ in 0..flows.div_ceil(BATCH * seeds.len()) {
            let steps: Vec<Step> = (0..BATCH).map(|_| Step::random(&mut random)).collect();
            send(&shop, &following, &steps, &mut Counts::new());
            passed += steps.iter().filter(|step| step.passes().is_some()).count();
        }
    }
    println!(
        "account: flows: a random program, {flows} flows: {passed} passed, each told once at its begin and at its end, none lost"
    );
}

/// Waits until the monitor listens: it does once a flow is told.
fn wait_until_told(shop: &Shop, following: &Following) {
    let began = Instant::now();
    let step = Step {
        from: 1,
        to: 0,
        family: 0,
        sent: Sent::Udp,
        port: 9,
    };
    loop {
        assert_eq!(shop.arrives(&[step.probe(shop, 9_999)]), [true]);
        if following.lines.recv_timeout(QUIET).is_ok() {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{}", shop.agent.log());
    }
    shop.lab.flush_conntrack().unwrap();
    while following.lines.recv_timeout(QUIET).is_ok() {}
}

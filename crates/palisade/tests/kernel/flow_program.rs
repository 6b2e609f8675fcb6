//! A random program of traffic: every flow that passes is told once when it begins and once when it ends, with the rule
//! of each end, what audit says of it, and how its addresses are translated; no other flow is. What passes, and by which
//! rule, the test reads from the policies below by itself.
//!
//! The ends are three workloads, the outside and the host. The host translates a Service to a workload, as another
//! program would, and the agent masquerades what workloads send outside. `LOAD_FLOWS` sets the number of flows.

use crate::agent::shop::{ADDRESSES, NAMES, Shop, address, policy};
use crate::agent::site::NODE;
use crate::agent::{Agent, nft};
use crate::monitor::Following;
use palisade_generators::seeds;
use palisade_testkit::lab::{HOST_ADDRESSES, NodeId, OUTSIDE_ADDRESSES, ProbeFlow, ProbeL4};
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
/// The numbers of the workload that the Service leads to, of the outside and of the host.
const DB_END: usize = 2;
const OUTSIDE: usize = 3;
const HOST: usize = 4;
/// The Service's addresses, and its port, which is translated to port 8080 of db.
const SERVICE: [&str; 2] = ["10.96.0.10", "fd96::10"];
const SERVICE_PORT: u16 = 80;

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
/// In audit: it denies nothing.
const API: &str = "  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{protocol: UDP, port: 53}]
";
/// The node's own traffic with the outside.
const NODES: &str = "
apiVersion: cilium.io/v2
kind: CiliumClusterwideNetworkPolicy
metadata: {name: nodes}
spec:
  nodeSelector: {}
  ingress:
  - fromEntities: [all]
    toPorts: [{ports: [{port: '8080', protocol: TCP}]}]
  egress:
  - toEntities: [all]
    toPorts: [{ports: [{port: '9', protocol: TCP}]}]
";

/// A protocol of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sent {
    Tcp,
    Udp,
    Sctp,
    Echo,
}

/// What the program sends: numbers of the ends, the family (0 for IPv4), the protocol, the port where it arrives, and
/// whether it is sent to the Service.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: usize,
    to: usize,
    family: usize,
    sent: Sent,
    port: u16,
    to_service: bool,
}

/// What lets a flow pass at an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    /// The policy and the rule's index, or the profile; `None` where nothing judges it.
    rule: Option<(&'static str, Option<u64>)>,
    /// The verdict if nothing were in audit, where anything is.
    audit: Option<&'static str>,
}

/// Where nothing judges.
const UNJUDGED: Passed = Passed {
    rule: None,
    audit: None,
};
/// The profile of what no policy selects.
const PROFILE: Passed = Passed::by("palisade.allow-all", 0);

impl Passed {
    const fn by(name: &'static str, index: u64) -> Self {
        Passed {
            rule: Some((name, Some(index))),
            audit: None,
        }
    }
}

impl Step {
    fn random(random: &mut SmallRng) -> Self {
        let from = random.random_range(0..=HOST);
        let others: Vec<usize> = (0..=HOST)
            .filter(|to| match from {
                // What the host sends to workloads is judged by no policy, and so not told.
                HOST => *to == OUTSIDE,
                _ => *to != from,
            })
            .collect();
        let to = *others.choose(random).unwrap();
        let sent = *[Sent::Tcp, Sent::Udp, Sent::Sctp, Sent::Echo]
            .choose(random)
            .unwrap();
        let to_service = to == DB_END && sent != Sent::Echo && random.random_bool(0.4);
        // DNS of the host is a failsafe, which no policy judges.
        let ports = if from == HOST {
            &[8080, 8085, 9][..]
        } else {
            &[53, 8080, 8085, 9][..]
        };
        Step {
            from,
            to,
            family: random.random_range(0..2),
            sent,
            port: if to_service {
                8080
            } else {
                *ports.choose(random).unwrap()
            },
            to_service,
        }
    }

    /// What lets it leave, and what lets it arrive; `None` if it is denied.
    fn passes(self) -> Option<[Passed; 2]> {
        Some([self.leaves()?, self.arrives()?])
    }

    fn leaves(self) -> Option<Passed> {
        match (NAMES.get(self.from), NAMES.get(self.to)) {
            (Some(&"web"), Some(&"api")) => match (self.sent, self.port) {
                (Sent::Udp, 53) => Some(Passed::by("web", 0)),
                _ => None,
            },
            (Some(&"web"), Some(_)) => Some(Passed::by("web", 1)),
            (Some(&"web"), None) => None,
            (Some(_), _) => Some(PROFILE),
            (None, _) if self.from == OUTSIDE => Some(UNJUDGED),
            (None, _) => match (self.sent, self.port) {
                (Sent::Tcp, 9) => Some(Passed::by("nodes", 0)),
                _ => None,
            },
        }
    }

    fn arrives(self) -> Option<Passed> {
        let (from, sent, port) = (NAMES.get(self.from), self.sent, self.port);
        match (NAMES.get(self.to), from, sent, port) {
            (Some(&"db"), Some(&"web"), Sent::Tcp | Sent::Sctp, 8080) => Some(Passed::by("db", 0)),
            (Some(&"db"), Some(&"web"), Sent::Udp, 8080..=8090) => Some(Passed::by("db", 1)),
            // A network of IPv4 addresses has no IPv6 address.
            (Some(&"db"), _, Sent::Udp, 8080..=8090) if self.family == 0 => {
                Some(Passed::by("db", 1))
            }
            (Some(&"db"), ..) => None,
            (Some(&"api"), Some(&"web"), Sent::Udp, 53) => Some(Passed {
                audit: Some("Allowed"),
                ..PROFILE
            }),
            (Some(&"api"), ..) => Some(Passed {
                audit: Some("Denied"),
                ..PROFILE
            }),
            (Some(_), ..) => Some(PROFILE),
            (None, ..) if self.to == OUTSIDE => Some(UNJUDGED),
            // The interface of a workload is none of the host's.
            (None, Some(_), ..) => Some(UNJUDGED),
            (None, None, Sent::Tcp, 8080) => Some(Passed::by("nodes", 0)),
            (None, None, ..) => None,
        }
    }

    fn source(self) -> String {
        end_address(self.from, self.family)
    }

    fn destination(self) -> String {
        end_address(self.to, self.family)
    }

    fn probe(self, shop: &Shop, source_port: u16) -> ProbeFlow {
        let (to, port) = if self.to_service {
            (SERVICE[self.family].to_owned(), SERVICE_PORT)
        } else {
            (self.destination(), self.port)
        };
        let source_port = Some(source_port);
        let [from, receiver] = [self.from, self.to].map(|end| node(shop, end));
        let echo = ProbeFlow::echo(from, address(&to), receiver);
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
        let node = |end: usize| (end == HOST).then_some(NODE);
        let (protocol, ports) = match (self.sent, self.family) {
            (Sent::Tcp, _) => ("TCP", Some((source_port, self.port))),
            (Sent::Udp, _) => ("UDP", Some((source_port, self.port))),
            (Sent::Sctp, _) => ("SCTP", Some((source_port, self.port))),
            (Sent::Echo, 0) => ("ICMP", None),
            (Sent::Echo, _) => ("ICMPv6", None),
        };
        let service = (self.to_service).then(|| (SERVICE[self.family], Some(SERVICE_PORT)));
        // The port stays, since no two flows of a batch have one.
        let is_masqueraded = self.from < OUTSIDE && self.to == OUTSIDE;
        let masqueraded = is_masqueraded.then(|| {
            let address = end_address(HOST, self.family);
            (address, ports.map(|(source, _)| source))
        });
        let ports = (ports.map(|(port, _)| port), ports.map(|(_, port)| port));
        format!(
            "{protocol} {:?} {:?} {} {:?} -> {:?} {:?} {} {:?} {service:?} {masqueraded:?} {egress:?} {ingress:?}",
            name(self.from),
            node(self.from),
            self.source(),
            ports.0,
            name(self.to),
            node(self.to),
            self.destination(),
            ports.1,
        )
    }
}

fn end_address(end: usize, family: usize) -> String {
    match end {
        HOST => HOST_ADDRESSES[family].to_string(),
        OUTSIDE => OUTSIDE_ADDRESSES[4 * family].to_string(),
        _ => ADDRESSES[end][family].to_owned(),
    }
}

fn node(shop: &Shop, end: usize) -> NodeId {
    match end {
        HOST => shop.lab.host(),
        OUTSIDE => shop.lab.outside(),
        _ => shop.pods[end],
    }
}

/// A line as [`Step::line`] has it.
fn told_line(flow: &Value) -> String {
    let passed = |direction: &str| {
        let decision = &flow[direction];
        let rule = decision.get("rule").map(|rule| {
            let name = rule["name"].as_str().unwrap();
            (name, rule["index"].as_u64())
        });
        let audit = decision["audit"]["verdict"].as_str();
        format!("Passed {{ rule: {rule:?}, audit: {audit:?} }}")
    };
    let port = |end: &str| flow[end]["port"].as_u64();
    let translated = |end: &str| {
        let end = flow["translation"].get(end)?;
        Some((end["address"].as_str().unwrap(), end["port"].as_u64()))
    };
    format!(
        "{} {:?} {:?} {} {:?} -> {:?} {:?} {} {:?} {:?} {:?} {} {}",
        flow["protocol"].as_str().unwrap(),
        flow["source"]["name"].as_str(),
        flow["source"]["node"].as_str(),
        flow["source"]["address"].as_str().unwrap(),
        port("source"),
        flow["destination"]["name"].as_str(),
        flow["destination"]["node"].as_str(),
        flow["destination"]["address"].as_str().unwrap(),
        port("destination"),
        translated("originalDestination"),
        translated("translatedSource"),
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

/// The shop with its policies, the Service, and what translates.
fn open_shop() -> Shop {
    let agent = Agent::with_nftables().with(&["--flows", "on", "--node-name", NODE]);
    let agent = agent.with(&["--masquerade", "outside"]);
    let shop = Shop::under(agent, "program");
    let [v4, v6] = HOST_ADDRESSES;
    let own = format!(
        "{{apiVersion: v1, kind: Node, metadata: {{name: {NODE}}}, status: {{addresses: [\
         {{type: InternalIP, address: '{v4}'}}, {{type: InternalIP, address: '{v6}'}}]}}}}\n"
    );
    let audited = policy("api", "api", API).replace(
        "namespace: shop}",
        "namespace: shop, annotations: {palisade.dev/mode: audit}}",
    );
    for (name, text) in [
        ("node.yaml", own.as_str()),
        ("nodes.yaml", NODES),
        ("db.yaml", policy("db", "db", DB).as_str()),
        ("web.yaml", policy("web", "web", WEB).as_str()),
        ("api.yaml", audited.as_str()),
    ] {
        shop.agent.apply(name, text);
    }
    let mut rules = "add table inet services\n\
        add chain inet services in { type nat hook prerouting priority dstnat; }\n"
        .to_owned();
    for (family, address, to) in [
        ("ip", SERVICE[0], format!("{}:8080", ADDRESSES[DB_END][0])),
        (
            "ip6",
            SERVICE[1],
            format!("[{}]:8080", ADDRESSES[DB_END][1]),
        ),
    ] {
        for protocol in ["tcp", "udp", "sctp"] {
            rules += &format!(
                "add rule inet services in {family} daddr {address} {protocol} dport {SERVICE_PORT} dnat {family} to {to}\n"
            );
        }
    }
    nft(&shop.lab, &rules);
    shop
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
    let shop = open_shop();
    let following = Following::start(&shop, &["--flows"]);
    wait_until_told(&shop, &following);
    let seeds = seeds(1);
    let (mut passed, mut translated) = (0, 0);
    for seed in &seeds {
        let mut random = SmallRng::seed_from_u64(*seed);
        for _ in 0..flows.div_ceil(BATCH * seeds.len()) {
            let steps: Vec<Step> = (0..BATCH).map(|_| Step::random(&mut random)).collect();
            send(&shop, &following, &steps, &mut Counts::new());
            let passing = steps.iter().filter(|step| step.passes().is_some());
            passed += passing.clone().count();
            let is_translated =
                |step: &&Step| step.to_service || step.from < OUTSIDE && step.to == OUTSIDE;
            translated += passing.filter(is_translated).count();
        }
    }
    println!(
        "account: flows: a random program, {flows} flows: {passed} passed, {translated} of them translated, each told once at its begin and at its end, none lost"
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
        to_service: false,
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

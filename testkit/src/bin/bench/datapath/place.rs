//! A host between a client and a server, and what it does with their packets.

use super::beside::NamesBeside;
use super::foreign::ForeignHost;
use super::loads::TrafficSide;
use crate::parsed_objects::{
    BenchNamespace, BenchObject, BenchPeer, BenchPod, BenchPolicy, BenchRule, LabelTest,
};
use crate::states::{self, BenchInput, Families};
use palisade_dataplane::ebpf::EbpfDataplane;
use palisade_dataplane::nftables;
use palisade_dataplane::{CounterLedger, Dataplane, DriverError, PolicyDriver};
use palisade_engine::{Engine, EngineOptions};
use palisade_model::{Action, Family, Prefix, Protocol, Update};
use palisade_sys::netns::NetNs;
use palisade_testkit::lab::{self, Lab, NodeId, OUTSIDE_ADDRESSES, PodSpec};
use palisade_testkit::test_driver::{open_fast_path, open_nftables};
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const CLIENT: [&str; 2] = ["10.66.0.1", "fd66::1"];
const SERVER: [&str; 2] = ["10.66.0.2", "fd66::2"];
const NAMESPACE: &str = "bench";
/// The port of the first rule.
const FIRST_PORT: u16 = 10_000;

/// What a host does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum HostSetup {
    /// It routes.
    Plain,
    /// It routes, and the server is beyond its uplink.
    PlainToOutside,
    /// It tracks connections, and accepts established and new ones.
    Tracking,
    /// It enforces so many rules at either end.
    Rules(usize),
    /// The same, and has the fast path.
    Fast(usize),
    /// It enforces egress rules of so many networks; the server is beyond its uplink.
    Networks(usize),
    /// The same, and has the fast path, which passes these packets.
    FastNetworks(usize),
    /// Client and server are no workloads, but beyond two interfaces of its own.
    Foreign(ForeignHost),
    /// It enforces one rule at either end, and policy of another workload.
    Beside(NamesBeside),
    /// It enforces one rule at either end, and tells somebody of every flow.
    Followed,
}

impl fmt::Display for HostSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostSetup::Plain | HostSetup::PlainToOutside => f.write_str("a host that routes"),
            HostSetup::Tracking => f.write_str("a host that tracks connections"),
            HostSetup::Rules(n) => write!(f, "a host with {n} rules"),
            HostSetup::Fast(n) => write!(f, "a host with {n} rules and the fast path"),
            HostSetup::Networks(n) => write!(f, "a host with rules of {n} networks"),
            HostSetup::FastNetworks(n) => {
                write!(f, "a host with rules of {n} networks and the fast path")
            }
            HostSetup::Foreign(host) => write!(f, "a host that forwards, {}", host.name()),
            HostSetup::Beside(names) => write!(f, "a host {} names of another", names.name()),
            HostSetup::Followed => f.write_str("a host whose flows are followed"),
        }
    }
}

/// A host, a client and a server, until dropped.
pub(super) struct DatapathLab {
    lab: Lab,
    host: HostSetup,
    client: NodeId,
    server: NodeId,
    dataplane: Option<EbpfDataplane>,
    _follower: Option<FlowFollower>,
}

/// Reads the flows of a host, until dropped.
struct FlowFollower {
    is_done: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl FlowFollower {
    fn start(dataplane: &EbpfDataplane) -> Result<Self, String> {
        let flows = dataplane.flow_events().map_err(|error| chain(&error))?;
        let mut flows = (flows.into_iter().next()).ok_or("the dataplane reports no flows")?;
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let read = move || {
            while !done.load(Ordering::Relaxed) {
                if flows.wait(Duration::from_millis(100)).is_err() {
                    break;
                }
            }
        };
        Ok(FlowFollower {
            is_done,
            reader: Some(std::thread::spawn(read)),
        })
    }
}

impl Drop for FlowFollower {
    fn drop(&mut self) {
        self.is_done.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn error_text(error: lab::LabError) -> String {
    error.to_string()
}

impl DatapathLab {
    pub(super) fn new(host: HostSetup) -> Result<Self, String> {
        let mut lab = Lab::new("bench").map_err(error_text)?;
        let [to_client, to_server] = match host {
            HostSetup::Foreign(_) => ["uplink0", "uplink1"],
            _ => ["palclient", "palserver"],
        };
        let client = lab.add_pod(PodSpec::new("client", to_client, &CLIENT));
        let client = client.map_err(error_text)?;
        let server = match host {
            HostSetup::PlainToOutside | HostSetup::Networks(_) | HostSetup::FastNetworks(_) => {
                lab.outside()
            }
            _ => {
                let server = lab.add_pod(PodSpec::new("server", to_server, &SERVER));
                server.map_err(error_text)?
            }
        };
        let dataplane = match host {
            HostSetup::Plain
            | HostSetup::PlainToOutside
            | HostSetup::Foreign(ForeignHost::Plain) => None,
            HostSetup::Tracking | HostSetup::Foreign(ForeignHost::Tracking) => {
                load_rules(&lab, TRACKING)?;
                None
            }
            HostSetup::Foreign(host) => Some(enforce(&lab, host.updates()?)?),
            HostSetup::Beside(names) => {
                load_rules(&lab, TRANSLATING)?;
                Some(enforce(&lab, names.updates()?)?)
            }
            HostSetup::Followed => Some(enforce(&lab, updates(&by_label(1)))?),
            HostSetup::Rules(rules) => Some(enforce(&lab, updates(&by_label(rules)))?),
            HostSetup::Fast(rules) => Some(enforce_fast(&lab, updates(&by_label(rules)))?),
            HostSetup::Networks(nets) => Some(enforce(&lab, updates(&by_network(nets)))?),
            HostSetup::FastNetworks(nets) => Some(enforce_fast(&lab, updates(&by_network(nets)))?),
        };
        let follower = match (&dataplane, host) {
            (Some(dataplane), HostSetup::Followed) => Some(FlowFollower::start(dataplane)?),
            _ => None,
        };
        Ok(DatapathLab {
            lab,
            host,
            client,
            server,
            dataplane,
            _follower: follower,
        })
    }

    /// Where the server listens: the port that the last rule allows.
    pub(super) fn server(&self, family: Family) -> SocketAddr {
        let addresses = self.lab.addresses(self.server).iter();
        let mut addresses = addresses.filter(|address| Family::of(**address) == family);
        let address = addresses.next().copied();
        let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        SocketAddr::new(address, self.port())
    }

    fn port(&self) -> u16 {
        match self.host {
            HostSetup::Rules(rules)
            | HostSetup::Fast(rules)
            | HostSetup::Networks(rules)
            | HostSetup::FastNetworks(rules) => port(rules - 1),
            _ => FIRST_PORT,
        }
    }

    /// Whether the host drops what no rule allows.
    pub(super) fn enforces(&self) -> bool {
        self.dataplane.is_some()
    }

    /// What enforces, if anything does.
    pub(super) fn dataplane(&self) -> Option<&EbpfDataplane> {
        self.dataplane.as_ref()
    }

    /// Does something in the namespace of one side.
    pub(super) fn run_in<R: Send>(
        &self,
        side: TrafficSide,
        work: impl FnOnce() -> R + Send,
    ) -> Result<R, String> {
        let node = match side {
            TrafficSide::Load => self.client,
            TrafficSide::Other => self.server,
        };
        self.lab.run_in(node, work).map_err(error_text)
    }

    /// Forgets all flows, so that the next ones are new.
    pub(super) fn forget_flows(&self) -> Result<(), String> {
        match self.host {
            // Nobody tracks them.
            HostSetup::Plain
            | HostSetup::PlainToOutside
            | HostSetup::Foreign(ForeignHost::Plain) => Ok(()),
            _ => {
                if let Some(dataplane) = &self.dataplane {
                    dataplane.forget_flows();
                }
                self.lab.flush_conntrack().map_err(error_text)
            }
        }
    }

    /// Whether the host does what it is there for: one that enforces lets nothing but the last rule's
    /// port pass.
    pub(super) fn check(&self) -> Result<(), String> {
        let mut to = self.server(Family::V4);
        to.set_port(to.port() ^ 0x4000);
        let refused = lab::connect(&self.lab, self.client, to, Duration::from_millis(200));
        let refused = refused.err().map(|error| error.kind());
        let passes = refused == Some(std::io::ErrorKind::ConnectionRefused);
        match self.host {
            HostSetup::Rules(_)
            | HostSetup::Fast(_)
            | HostSetup::Networks(_)
            | HostSetup::FastNetworks(_)
            | HostSetup::Beside(_)
            | HostSetup::Followed
                if passes =>
            {
                Err(format!("{}: what no rule allows passes", self.host))
            }
            HostSetup::Plain
            | HostSetup::PlainToOutside
            | HostSetup::Tracking
            | HostSetup::Foreign(_)
                if !passes =>
            {
                Err(format!("{}: does not route ({refused:?})", self.host))
            }
            _ => Ok(()),
        }
    }
}

fn port(rule: usize) -> u16 {
    FIRST_PORT + u16::try_from(rule).unwrap_or(0)
}

/// Connection tracking and nothing else.
const TRACKING: &str = "table inet tracking { chain forward { \
    type filter hook forward priority 0; ct state established,related accept; accept; }; }\n";
/// A host that translates addresses, as a node with Services does.
const TRANSLATING: &str =
    "table inet translating { chain post { type nat hook postrouting priority 100; }; }\n";

/// Adds rules by the host's own tool.
fn load_rules(lab: &Lab, rules: &str) -> Result<(), String> {
    let run = || -> std::io::Result<String> {
        #[allow(
            clippy::disallowed_methods,
            reason = "the second baseline is none of our rules, so it is not made by our means"
        )]
        let mut nft = Command::new("nft")
            .args(["-f", "-"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        if let Some(mut stdin) = nft.stdin.take() {
            stdin.write_all(rules.as_bytes())?;
        }
        let output = nft.wait_with_output()?;
        Ok(if output.status.success() {
            String::new()
        } else {
            String::from_utf8_lossy(&output.stderr).into_owned()
        })
    };
    let said = lab.run_in(lab.host(), run).map_err(error_text)?;
    match said {
        Ok(said) if said.is_empty() => Ok(()),
        Ok(said) => Err(format!("nft: {said}")),
        Err(error) => Err(format!("running nft: {error}")),
    }
}

fn updates(input: &BenchInput) -> Vec<Update> {
    input.objects().map(|written| written.update()).collect()
}

fn enforce(lab: &Lab, updates: Vec<Update>) -> Result<EbpfDataplane, String> {
    enforce_with(open_nftables(config(), &host_netns(lab)?), updates)
}

fn enforce_fast(lab: &Lab, updates: Vec<Update>) -> Result<EbpfDataplane, String> {
    let dataplane = enforce_with(open_fast_path(config(), &host_netns(lab)?), updates)?;
    match dataplane.conditions().first() {
        Some(condition) if !dataplane.is_fast() => Err(condition.message.clone()),
        _ => Ok(dataplane),
    }
}

fn host_netns(lab: &Lab) -> Result<NetNs, String> {
    NetNs::open(lab.namespace_name(lab.host())).map_err(|error| chain(&error))
}

fn enforce_with(
    dataplane: Result<EbpfDataplane, DriverError>,
    updates: Vec<Update>,
) -> Result<EbpfDataplane, String> {
    let mut engine = Engine::new(EngineOptions::default());
    engine.apply(updates);
    let mut dataplane = dataplane.map_err(|error| chain(&error))?;
    let started = dataplane.resync(engine.tables(), &mut CounterLedger::default());
    started.map_err(|error| chain(&error))?;
    Ok(dataplane)
}

/// What an agent runs with unless told otherwise.
pub(crate) fn config() -> nftables::Config {
    nftables::Config {
        deny_action: palisade_model::DenyAction::Drop,
        redirect: Some(palisade_nft::RedirectConfig::default()),
        ..nftables::Config::default()
    }
}

/// An error with what caused it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

fn namespace() -> BenchObject {
    BenchObject::Namespace(BenchNamespace {
        name: NAMESPACE.into(),
        labels: Vec::new(),
    })
}

fn pod(name: &str, addresses: Vec<IpAddr>, interface: Option<&str>) -> BenchObject {
    let local = interface.is_some();
    BenchObject::Pod(BenchPod {
        namespace: NAMESPACE.into(),
        name: name.into(),
        labels: vec![("app".into(), name.into())],
        addresses,
        interface: interface.map(Into::into),
        node: if local { "here" } else { "there" }.into(),
    })
}

fn local(name: &str, addresses: [&str; 2], interface: &str) -> BenchObject {
    let addresses = addresses.iter().filter_map(|text| text.parse().ok());
    pod(name, addresses.collect(), Some(interface))
}

fn rule(number: usize, last: usize, peer: BenchPeer) -> BenchRule {
    let action = if number == last || number.is_multiple_of(2) {
        Action::Allow
    } else {
        Action::Deny
    };
    let port = port(number);
    BenchRule {
        action,
        peer,
        ports: vec![(Protocol::TCP, port), (Protocol::UDP, port)],
    }
}

fn policy(
    subject: &str,
    ingress: Option<Vec<BenchRule>>,
    egress: Option<Vec<BenchRule>>,
) -> BenchObject {
    BenchObject::Policy(BenchPolicy {
        namespace: None,
        name: subject.into(),
        tier: "default",
        file: states::file(0),
        line: 1,
        subject: vec![is_app(subject)],
        ingress,
        egress,
    })
}

fn is_app(name: &str) -> LabelTest {
    LabelTest::Is("app".into(), name.into())
}

/// So many rules at either end, each about a peer, ports and a verdict of its own; the last is about
/// the other end.
fn by_label(rules: usize) -> BenchInput {
    let last = rules - 1;
    let about = move |end: &'static str| -> Vec<BenchRule> {
        let peer = |n| {
            if n == last {
                is_app(end)
            } else {
                is_app(&format!("peer-{n}"))
            }
        };
        (0..rules)
            .map(|n| rule(n, last, BenchPeer::Labelled(vec![peer(n)])))
            .collect()
    };
    let peer = |n| {
        pod(
            &format!("peer-{n}"),
            states::addresses(n, Families::Both),
            None,
        )
    };
    BenchInput::of(vec![
        (1, Box::new(|_| namespace())),
        (
            1,
            Box::new(move |_| policy("client", None, Some(about("server")))),
        ),
        (
            1,
            Box::new(move |_| policy("server", Some(about("client")), None)),
        ),
        (last, Box::new(peer)),
        (1, Box::new(|_| local("client", CLIENT, "palclient"))),
        (1, Box::new(|_| local("server", SERVER, "palserver"))),
    ])
}

/// So many egress rules, each about a network of its own; the last is about the server's.
fn by_network(nets: usize) -> BenchInput {
    let last = nets - 1;
    let net = move |n| {
        if n == last {
            Prefix::new(OUTSIDE_ADDRESSES[0], 24)
        } else {
            let n = u32::try_from(n).unwrap_or(0);
            let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + (n << 8));
            Prefix::new(address.into(), 24)
        }
    };
    let rules = move || -> Vec<BenchRule> {
        let of = |n| rule(n, last, BenchPeer::Net(net(n)));
        (0..nets).map(of).collect()
    };
    BenchInput::of(vec![
        (1, Box::new(|_| namespace())),
        (1, Box::new(move |_| policy("client", None, Some(rules())))),
        (1, Box::new(|_| local("client", CLIENT, "palclient"))),
    ])
}

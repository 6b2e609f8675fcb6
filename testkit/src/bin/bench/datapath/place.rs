//! A host between a client and a server, and what it does with their packets.

use super::loads::Side;
use crate::states::{self, Families, Input};
use crate::written::{
    Test, Written, WrittenNamespace, WrittenPeer, WrittenPod, WrittenPolicy, WrittenRule,
};
use palisade_dataplane::{Dataplane, NftConfig, NftDataplane};
use palisade_engine::{Engine, Options};
use palisade_model::{Action, Family, Prefix, Protocol};
use palisade_testkit::lab::{self, Lab, NodeId, OUTSIDE_ADDRESSES, PodSpec};
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

const CLIENT: [&str; 2] = ["10.66.0.1", "fd66::1"];
const SERVER: [&str; 2] = ["10.66.0.2", "fd66::2"];
const NAMESPACE: &str = "bench";
/// The port of the first rule.
const FIRST_PORT: u16 = 10_000;

/// What a host does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    /// It routes.
    Plain,
    /// It routes, and the server is beyond its uplink.
    PlainToOutside,
    /// It tracks connections, and accepts established and new ones.
    Tracking,
    /// It enforces so many rules at either end.
    Rules(usize),
    /// It enforces egress rules of so many networks; the server is beyond its uplink.
    Networks(usize),
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Plain | Host::PlainToOutside => f.write_str("a host that routes"),
            Host::Tracking => f.write_str("a host that tracks connections"),
            Host::Rules(n) => write!(f, "a host with {n} rules"),
            Host::Networks(n) => write!(f, "a host with rules of {n} networks"),
        }
    }
}

/// A host, a client and a server, until dropped.
pub(super) struct Place {
    lab: Lab,
    host: Host,
    client: NodeId,
    server: NodeId,
    _dataplane: Option<NftDataplane>,
}

fn told(error: lab::LabError) -> String {
    error.to_string()
}

impl Place {
    pub(super) fn new(host: Host) -> Result<Self, String> {
        let mut lab = Lab::new("bench").map_err(told)?;
        let client = lab.pod(PodSpec::new("client", "palclient", &CLIENT));
        let client = client.map_err(told)?;
        let server = match host {
            Host::PlainToOutside | Host::Networks(_) => lab.outside(),
            _ => {
                let server = lab.pod(PodSpec::new("server", "palserver", &SERVER));
                server.map_err(told)?
            }
        };
        let dataplane = match host {
            Host::Plain | Host::PlainToOutside => None,
            Host::Tracking => {
                track(&lab)?;
                None
            }
            Host::Rules(rules) => Some(enforce(&lab, &by_label(rules))?),
            Host::Networks(nets) => Some(enforce(&lab, &by_network(nets))?),
        };
        Ok(Place {
            lab,
            host,
            client,
            server,
            _dataplane: dataplane,
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
            Host::Rules(rules) | Host::Networks(rules) => port(rules - 1),
            _ => FIRST_PORT,
        }
    }

    /// Does something in the namespace of one side.
    pub(super) fn at<R: Send>(
        &self,
        side: Side,
        work: impl FnOnce() -> R + Send,
    ) -> Result<R, String> {
        let node = match side {
            Side::Load => self.client,
            Side::Other => self.server,
        };
        self.lab.inside(node, work).map_err(told)
    }

    /// Forgets all flows, so that the next ones are new.
    pub(super) fn forget_flows(&self) -> Result<(), String> {
        match self.host {
            // Nobody tracks them.
            Host::Plain | Host::PlainToOutside => Ok(()),
            _ => self.lab.forget_flows().map_err(told),
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
            Host::Rules(_) | Host::Networks(_) if passes => {
                Err(format!("{}: what no rule allows passes", self.host))
            }
            Host::Plain | Host::PlainToOutside | Host::Tracking if !passes => {
                Err(format!("{}: does not route ({refused:?})", self.host))
            }
            _ => Ok(()),
        }
    }
}

fn port(rule: usize) -> u16 {
    FIRST_PORT + u16::try_from(rule).unwrap_or(0)
}

/// Connection tracking and nothing else, by the host's own tool.
fn track(lab: &Lab) -> Result<(), String> {
    const RULES: &str = "table inet tracking { chain forward { \
        type filter hook forward priority 0; ct state established,related accept; accept; }; }\n";
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
            stdin.write_all(RULES.as_bytes())?;
        }
        let output = nft.wait_with_output()?;
        Ok(match output.status.success() {
            true => String::new(),
            false => String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    };
    let said = lab.inside(lab.host(), run).map_err(told)?;
    match said {
        Ok(said) if said.is_empty() => Ok(()),
        Ok(said) => Err(format!("nft: {said}")),
        Err(error) => Err(format!("running nft: {error}")),
    }
}

fn enforce(lab: &Lab, input: &Input) -> Result<NftDataplane, String> {
    let mut engine = Engine::new(Options::default());
    engine.apply(input.objects().map(|written| written.update()));
    let new = || NftDataplane::new(config());
    let dataplane = lab.inside(lab.host(), new).map_err(told)?;
    let mut dataplane = dataplane.map_err(|error| chain(&error))?;
    let started = dataplane.start(engine.tables());
    started.map_err(|error| chain(&error))?;
    Ok(dataplane)
}

/// What an agent runs with unless told otherwise.
pub(crate) fn config() -> NftConfig {
    NftConfig {
        table: "palisade".to_owned(),
        interface_prefix: "pal".to_owned(),
        mark_mask: 0xffff_ff00,
        judge_host_traffic: false,
        own_table: false,
        log_group: Some(20_545),
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

fn namespace() -> Written {
    Written::Namespace(WrittenNamespace {
        name: NAMESPACE.into(),
        labels: Vec::new(),
    })
}

fn pod(name: &str, addresses: Vec<IpAddr>, interface: Option<&str>) -> Written {
    let local = interface.is_some();
    Written::Pod(WrittenPod {
        namespace: NAMESPACE.into(),
        name: name.into(),
        labels: vec![("app".into(), name.into())],
        addresses,
        interface: interface.map(Into::into),
        node: if local { "here" } else { "there" }.into(),
    })
}

fn local(name: &str, addresses: [&str; 2], interface: &str) -> Written {
    let addresses = addresses.iter().filter_map(|text| text.parse().ok());
    pod(name, addresses.collect(), Some(interface))
}

fn rule(number: usize, last: usize, peer: WrittenPeer) -> WrittenRule {
    let action = match number == last || number.is_multiple_of(2) {
        true => Action::Allow,
        false => Action::Deny,
    };
    let port = port(number);
    WrittenRule {
        action,
        peer,
        ports: vec![(Protocol::TCP, port), (Protocol::UDP, port)],
    }
}

fn policy(
    subject: &str,
    ingress: Option<Vec<WrittenRule>>,
    egress: Option<Vec<WrittenRule>>,
) -> Written {
    Written::Policy(WrittenPolicy {
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

fn is_app(name: &str) -> Test {
    Test::Is("app".into(), name.into())
}

/// So many rules at either end, each about a peer, ports and a verdict of its own; the last is about
/// the other end.
fn by_label(rules: usize) -> Input {
    let last = rules - 1;
    let about = move |end: &'static str| -> Vec<WrittenRule> {
        let peer = |n| match n == last {
            true => is_app(end),
            false => is_app(&format!("peer-{n}")),
        };
        (0..rules)
            .map(|n| rule(n, last, WrittenPeer::Labelled(vec![peer(n)])))
            .collect()
    };
    let peer = |n| {
        pod(
            &format!("peer-{n}"),
            states::addresses(n, Families::Both),
            None,
        )
    };
    Input::of(vec![
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
fn by_network(nets: usize) -> Input {
    let last = nets - 1;
    let net = move |n| match n == last {
        true => Prefix::new(OUTSIDE_ADDRESSES[0], 24),
        false => {
            let n = u32::try_from(n).unwrap_or(0);
            let address = Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) + (n << 8));
            Prefix::new(address.into(), 24)
        }
    };
    let rules = move || -> Vec<WrittenRule> {
        let of = |n| rule(n, last, WrittenPeer::Net(net(n)));
        (0..nets).map(of).collect()
    };
    Input::of(vec![
        (1, Box::new(|_| namespace())),
        (1, Box::new(move |_| policy("client", None, Some(rules())))),
        (1, Box::new(|_| local("client", CLIENT, "palclient"))),
    ])
}

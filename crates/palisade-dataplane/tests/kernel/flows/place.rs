//! Two pods and an external host, with a dataplane whose tables are built from a list of allowed flows.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use palisade_dataplane::ebpf::ProgramAttachment;
use palisade_dataplane::nftables::Config;
use palisade_model::{Direction, Prefix, Protocol};
use palisade_sys::netns::NetNs;
use palisade_tables::{
    Cell, ClassId, IdentityId, JudgementOptions, Point, PolicySet, PolicySetId, PortMap, Program,
    RuleId, Tables, Verdict, VerdictCause,
};
use palisade_testkit::lab::craft::CraftedPacket;
use palisade_testkit::lab::{
    HOST_ADDRESSES, Lab, NodeId, OUTSIDE_ADDRESSES, PodSpec, send_crafted_packets,
};
use palisade_testkit::test_driver::open_driver;
use palisade_testkit::{CountedDriver, CountedOutcome};

/// The two pods, and the external host.
pub(crate) const A: usize = 0;
pub(crate) const B: usize = 1;
pub(crate) const OUT: usize = 2;
/// The host's own stack.
pub(crate) const HOST: usize = 3;

const PODS: [[&str; 2]; 2] = [["10.88.0.1", "fd88::1"], ["10.88.0.2", "fd88::2"]];
pub(crate) const INTERFACES: [&str; 2] = ["pal-a", "pal-b"];

/// An allowed flow: from, to, protocol and destination port; without a port, all of the protocol.
pub(crate) type Allowed = (usize, usize, u8, Option<u16>);

pub(crate) struct Place {
    pub(crate) lab: Lab,
    pub(crate) nodes: [NodeId; 3],
    /// How a fast path attaches its programs; `None`: as the kernel does it best.
    pub(crate) attachment: Option<ProgramAttachment>,
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let mut lab = Lab::new(name).unwrap();
        let pod = |lab: &mut Lab, at: usize| {
            let name = ["a", "b"][at];
            lab.add_pod(PodSpec::new(name, INTERFACES[at], &PODS[at]))
                .unwrap()
        };
        let nodes = [pod(&mut lab, A), pod(&mut lab, B), lab.outside()];
        Place {
            lab,
            nodes,
            attachment: None,
        }
    }

    /// The same, with pods and external host that answer nothing: packets are seen, and go no further.
    pub(crate) fn quiet(name: &str) -> Self {
        let place = Place::new(name);
        for node in place.nodes {
            place.nft(
                node,
                "add table inet quiet { chain c { type filter hook input priority -200; meta mark set 0; udp dport 9 accept; meta l4proto ipv6-icmp icmpv6 type >= 130 accept; drop; }; }",
            );
        }
        place
    }

    /// The same, for a fast path that attaches its programs in this way.
    pub(crate) fn attached_by(self, attachment: ProgramAttachment) -> Self {
        Place {
            attachment: Some(attachment),
            ..self
        }
    }

    pub(crate) fn nft(&self, node: NodeId, script: &str) -> String {
        let name = self.lab.namespace_name(node);
        let output = Command::new("ip")
            .args(["netns", "exec", name, "nft", script])
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "nft {script}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn driver(&self) -> CountedDriver {
        self.driver_with(0xffff_ff00)
    }

    pub(crate) fn driver_with(&self, mark_mask: u32) -> CountedDriver {
        let config = Config {
            deny_action: palisade_model::DenyAction::Drop,
            ct_mark_mask: mark_mask,
            ..config()
        };
        open_driver(config, &self.netns()).unwrap().into()
    }

    /// A dataplane that applies policy to the host's own stack.
    pub(crate) fn driver_for_host(&self) -> CountedDriver {
        let config = Config {
            deny_action: palisade_model::DenyAction::Drop,
            judgement: JudgementOptions {
                judge_host_traffic: true,
                ..JudgementOptions::default()
            },
            ..config()
        };
        open_driver(config, &self.netns()).unwrap().into()
    }

    /// Deletes the link of a pod, and makes another one of the same name.
    pub(crate) fn remake(&mut self, pod: usize) {
        self.lab.reattach(self.nodes[pod]).unwrap();
    }

    pub(crate) fn netns(&self) -> NetNs {
        NetNs::open(self.lab.namespace_name(self.lab.host())).unwrap()
    }

    /// The address of an end: family 0 is IPv4.
    pub(crate) fn address(end: usize, family: usize) -> IpAddr {
        match end {
            OUT => OUTSIDE_ADDRESSES[family * 4],
            HOST => HOST_ADDRESSES[family],
            pod => PODS[pod][family].parse().unwrap(),
        }
    }

    pub(crate) fn at(end: usize, family: usize, port: u16) -> SocketAddr {
        SocketAddr::new(Place::address(end, family), port)
    }

    /// Sends packets and returns which arrived.
    pub(crate) fn arrive(&self, packets: Vec<(usize, usize, Vec<u8>)>) -> Vec<bool> {
        let packets: Vec<CraftedPacket> = packets
            .into_iter()
            .map(|(from, to, bytes)| CraftedPacket {
                from: self.nodes[from],
                receiver: self.nodes[to],
                bytes,
            })
            .collect();
        send_crafted_packets(&self.lab, &packets).unwrap()
    }

    /// Sends one packet.
    pub(crate) fn arrives(&self, from: usize, to: usize, bytes: Vec<u8>) -> bool {
        self.arrive(vec![(from, to, bytes)])[0]
    }
}

fn config() -> Config {
    Config {
        deny_action: palisade_model::DenyAction::Drop,
        table: "t".into(),
        log: None,
        ..Config::default()
    }
}

/// Sixteen bytes that no other packet ends with.
pub(crate) fn tag() -> [u8; 16] {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let mut tag = *b"kernel flows....";
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    tag[12..].copy_from_slice(&number.to_be_bytes());
    tag
}

fn cell(verdict: Verdict) -> Cell {
    let rule = match verdict {
        Verdict::Allow | Verdict::Continue => 1,
        Verdict::Deny => 2,
    };
    Cell {
        verdict,
        causes: vec![RuleId(rule)],
        log: None,
        audit: None,
        redirect: None,
    }
}

/// Tables in which the ends and directions in `isolated` allow only the flows in `allowed`, and all other
/// directions allow everything.
pub(crate) fn tables(isolated: &[(usize, Direction)], allowed: &[Allowed]) -> Tables {
    let mut tables = Tables::default();
    for rule in [1, 2] {
        let cause = VerdictCause::MissingProfile {
            profile: format!("rule {rule}").as_str().into(),
            direction: Direction::Ingress,
        };
        tables.rules.insert(RuleId(rule), Arc::new(cause));
    }
    let (open, closed) = (ClassId(1), ClassId(2));
    let mut next = 3;
    for (class, verdict) in [(open, Verdict::Allow), (closed, Verdict::Deny)] {
        let program = Program::constant(cell(verdict));
        tables.programs.insert(class, Arc::new(program));
    }
    let identity = |end: usize| IdentityId(end as u32 + 1);
    for end in [A, B, OUT, HOST] {
        for family in [0, 1] {
            let prefix = Prefix::host(Place::address(end, family));
            tables.addresses.insert(prefix, identity(end));
        }
    }
    for pod in [A, B] {
        tables.interfaces.insert(INTERFACES[pod].into());
        for direction in Direction::BOTH {
            let set = PolicySetId(10 * (pod as u32 + 1) + direction as u32);
            let is_closed = isolated.contains(&(pod, direction));
            let default = if is_closed { closed } else { open };
            tables.sets.insert(set, PolicySet { default });
            for family in [0, 1] {
                let point = Point::of_workload(
                    INTERFACES[pod].into(),
                    Place::address(pod, family),
                    direction,
                );
                tables.points.insert(point, set);
            }
            if !is_closed {
                continue;
            }
            for peer in [A, B, OUT, HOST] {
                let mut ports: BTreeMap<u8, Vec<Option<u16>>> = BTreeMap::new();
                for (from, to, protocol, port) in allowed {
                    let ends = match direction {
                        Direction::Egress => (pod, peer),
                        Direction::Ingress => (peer, pod),
                    };
                    if (*from, *to) == ends {
                        ports.entry(*protocol).or_default().push(*port);
                    }
                }
                if !ports.is_empty() {
                    let class = ClassId(next);
                    next += 1;
                    tables.programs.insert(class, Arc::new(program(&ports)));
                    tables.classes.insert((set, identity(peer)), class);
                }
            }
        }
    }
    tables
}

fn program(allowed: &BTreeMap<u8, Vec<Option<u16>>>) -> Program {
    let constant = |verdict| PortMap::constant(cell(verdict));
    let mut protocols = BTreeMap::new();
    for (protocol, ports) in allowed {
        let mut ends = Vec::new();
        let mut ports = ports.clone();
        ports.sort_unstable();
        for port in ports.iter().flatten() {
            ends.push((port - 1, constant(Verdict::Deny)));
            ends.push((*port, constant(Verdict::Allow)));
        }
        let rest = if ports.contains(&None) {
            Verdict::Allow
        } else {
            Verdict::Deny
        };
        ends.push((u16::MAX, constant(rest)));
        protocols.insert(Protocol(*protocol), PortMap::from_segments(ends).unwrap());
    }
    Program::new(protocols, cell(Verdict::Deny))
}

/// A dataplane and the tables applied last.
pub(crate) struct Enforced {
    pub(crate) driver: CountedDriver,
}

impl Enforced {
    pub(crate) fn on(place: &Place) -> Self {
        Enforced {
            driver: place.driver(),
        }
    }

    /// Applies other tables, with the phases of any change.
    pub(crate) fn set(
        &mut self,
        isolated: &[(usize, Direction)],
        allowed: &[Allowed],
    ) -> CountedOutcome {
        self.driver.resync(&tables(isolated, allowed)).unwrap()
    }
}

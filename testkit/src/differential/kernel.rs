//! The oracle against nftables in the kernel, with real packets between network namespaces.
//!
//! One [`Lab`] stands for the whole run; for every world its pods are given the addresses that the
//! world's local endpoints hold, and the outside everything else. The dataplane is started on the
//! tables as they are half-way through the updates and follows the rest delta by delta, so both ways
//! of writing are tried. A case is one packet that was sent; a flow between two ends that are not
//! local passes no interface of ours and is not sent. Besides what a world draws, its pods and their node
//! send to each other, where the node's own packets are judged and where they are not. Packets are
//! sent between deltas too, each judged by the oracle in the state of that moment; of a datagram that
//! arrived, an answer must arrive; and of Kubernetes objects the naive reading is asked as well.

use super::kernel_case::GeneratedCase;
use super::lab_flows::{
    PODS, UPLINK, can_be_sent, host_path, is_node, local_endpoint, mismatch_text,
};
use super::report::{self, ReplayCase};
use super::run::generator_kind;
use super::{GeneratorKind, StageFailure};
use crate::CountedDriver;
use crate::lab::{self, Lab, NodeId, PodSpec, probe, translate_destination};
use crate::test_driver::{open_fast_path, open_nftables};
use palisade_dataplane::DriverError;
use palisade_dataplane::nftables;
use palisade_engine::Engine;
use palisade_generators::{Dice, lowered, naive};
use palisade_model::{
    DenyAction, Direction, Encapsulations, FailsafePorts, Flow, FlowOrigin, HairpinAction,
    HostTrafficAction, L4, PolicyStage, Protocol,
};
use palisade_oracle::{HostJudgement, HostPath, OracleOptions, PreparedState, Question};
use palisade_sys::netns::NetNs;
use palisade_tables::{JudgementOptions, icmp_key};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Packets sent in one world, before the next is made.
const PACKETS: usize = 8;
/// Of these, packets of which no host endpoint is asked, where there are any.
const OF_WORKLOADS: usize = 2;

/// Packets sent after one delta of several.
const BETWEEN: usize = 2;

/// After how many deltas in a hundred packets are sent.
const SENDING: u32 = 30;

const STAGE: &str = "oracle and kernel";
const STAGE_BETWEEN: &str = "oracle and kernel between deltas";
const STAGE_REPLY: &str = "replies in the kernel";
const STAGE_FAST: &str = "fast path and its projection";
const STAGE_NAIVE: &str = "naive reading and kernel";

/// What a run with real packets came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// Packets that the kernel treated as the oracle says.
    pub passed: u64,
    /// Worlds in which it did not.
    pub failed: u64,
    /// Of the packets that agreed, how many arrived.
    pub arrived: u64,
    /// Packets sent between two deltas, which agreed.
    pub between: u64,
    /// Answers to what arrived, which arrived.
    pub replies: u64,
    /// Packets between a pod and its node, which agreed.
    pub with_node: u64,
    /// Packets at an interface of the host that a host endpoint governs, which agreed.
    pub at_host: u64,
    /// Of these, packets whose destination the host translated.
    pub translated: u64,
    /// Packets where there is a fast path.
    pub fast: FastPathPackets,
}

/// Packets that were sent where there is a fast path above nftables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathPackets {
    /// All that the kernel treated as the oracle says.
    pub passed: u64,
    /// Those that arrived from pod to pod.
    pub between_pods: u64,
    /// Of these, packets that the fast path delivered: all that it may.
    pub delivered: u64,
    /// Packets that the fast path delivered between a pod and another host: all that it may.
    pub delivered_outside: u64,
}

/// The labs in turn: most have the fast path, whose nftables judges all that it does not deliver.
const TURNS: [usize; 12] = [1, 2, 1, 2, 1, 2, 0, 1, 2, 1, 2, 3];

/// From how many cases on a run must have some of every kind of packet.
const LONG_RUN: u64 = 400;

/// Judges this many cases with real packets; needs root.
///
/// # Errors
/// The laboratory could not be made or failed, in words.
pub fn run_kernel(
    cases: u64,
    seed: u64,
    only: Option<GeneratorKind>,
    say: &mut dyn FnMut(&str),
) -> Result<KernelReport, String> {
    // The mix with host endpoints is that with Calico.
    let prefers_hosts = only == Some(GeneratorKind::Calico);
    let mut places = [
        KernelLab::new(false, false, prefers_hosts)?,
        KernelLab::new(true, true, prefers_hosts)?,
        KernelLab::new(false, true, prefers_hosts)?,
        KernelLab::new(true, false, prefers_hosts)?,
    ];
    let mut report = KernelReport::default();
    // A world may have nothing to send; so many in a row have not.
    for world in 0..cases * 4 {
        if report.passed >= cases {
            break;
        }
        let half = generator_kind(only, world);
        let drawn = GeneratedCase::generate(half, seed, world)?;
        // Every kind of world in all modes.
        let place = &mut places[TURNS[world as usize / 4 % TURNS.len()]];
        match place.judge(&drawn, seed, world, &mut report)? {
            Ok(arrivals) => {
                let before = report.passed;
                report.passed += arrivals.len() as u64;
                if place.dataplane.is_fast() {
                    report.fast.passed += arrivals.len() as u64;
                }
                report.arrived += arrivals.iter().filter(|arrived| **arrived).count() as u64;
                if before * 10 / cases.max(1) != report.passed * 10 / cases.max(1) {
                    say(&format!("{} cases in the kernel", report.passed));
                }
            }
            Err(failure) => {
                report.failed += 1;
                let left = report::write_case(&drawn.left, &failure, seed, world);
                say(&left.unwrap_or_else(|error| format!("{failure:?}, not written down: {error}")));
                if report.failed == 3 {
                    break;
                }
            }
        }
    }
    if report.failed == 0 && report.passed < cases {
        return Err(format!("only {} packets to send", report.passed));
    }
    // Far fewer than there are in any run of this length; packets come some from a world, so a short run may have none.
    let is_long = report.failed == 0 && cases >= LONG_RUN;
    let parts = [report.between, report.replies, report.with_node];
    if is_long && parts.iter().any(|part| part * 40 < cases) {
        return Err(format!(
            "too few between deltas, replies or with the node: {parts:?}"
        ));
    }
    let has_hosts = only == Some(GeneratorKind::Calico);
    if is_long && has_hosts && report.at_host * 2 < cases {
        return Err(format!(
            "too few packets at host endpoints: {} of {cases}",
            report.at_host
        ));
    }
    Ok(report)
}

/// The lab, and the dataplane on its host.
struct KernelLab {
    lab: Lab,
    pods: Vec<NodeId>,
    dataplane: CountedDriver,
    /// Whether the node's own packets are judged.
    judge_host_traffic: bool,
    /// Whether flows at host endpoints are sent before others.
    prefers_hosts: bool,
    /// The addresses that the worlds so far have given out, and to whom.
    given: BTreeMap<IpAddr, NodeId>,
}

impl KernelLab {
    fn new(
        judge_host_traffic: bool,
        has_fast_path: bool,
        prefers_hosts: bool,
    ) -> Result<KernelLab, String> {
        let told = |error: lab::LabError| error.to_string();
        let name = if judge_host_traffic { "diffh" } else { "diff" };
        let mut lab = Lab::new(name).map_err(told)?;
        let mut pods = Vec::new();
        for n in 0..PODS {
            // Addresses that no world knows, so that the pod has routes for both families.
            let own = [format!("10.255.0.{}", n + 1), format!("fdff::{}", n + 1)];
            let own = own.each_ref().map(String::as_str);
            let spec = PodSpec::new(&format!("p{n}"), &format!("pal{n}"), &own);
            pods.push(lab.add_pod(spec).map_err(told)?);
        }
        let host = lab.namespace_path(lab.host());
        let netns = NetNs::open(&host.display().to_string()).map_err(|e| e.to_string())?;
        let config = nftables::Config {
            // Each value in one of the two labs.
            judgement: JudgementOptions {
                judge_host_traffic,
                judge_hairpin: judge_host_traffic,
                ..JudgementOptions::default()
            },
            deny_action: if judge_host_traffic {
                DenyAction::Reject
            } else {
                DenyAction::Drop
            },
            ..nftables::Config::default()
        };
        let dataplane = if has_fast_path {
            open_fast_path(config, &netns)
        } else {
            open_nftables(config, &netns)
        };
        let dataplane = dataplane.map_err(|error| format!("{error}: {error:?}"))?;
        Ok(KernelLab {
            lab,
            pods,
            dataplane: dataplane.into(),
            judge_host_traffic,
            prefers_hosts,
            given: BTreeMap::new(),
        })
    }

    /// What arrived of the packets of a world, or how that differs from what should.
    fn judge(
        &mut self,
        drawn: &GeneratedCase,
        seed: u64,
        case: u64,
        report: &mut KernelReport,
    ) -> Result<Result<Vec<bool>, StageFailure>, String> {
        let prepared = PreparedState::new(&drawn.state);
        let all = drawn.flows.iter();
        let (mut sent, rest): (Vec<&Flow>, Vec<&Flow>) = all
            .filter(|flow| can_be_sent(&prepared, flow))
            .partition(|flow| self.prefers_hosts && self.is_at_host_endpoint(&prepared, flow));
        // What host endpoints judge comes first, and leaves some room.
        sent.truncate(PACKETS - OF_WORKLOADS.min(rest.len()));
        sent.extend(rest);
        sent.truncate(PACKETS);
        if sent.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        self.assign_addresses(&prepared, &sent)?;
        match self.enforce(drawn, &sent, seed, case)? {
            Ok(between) => report.between += between,
            Err(failure) => return Ok(Err(failure)),
        }
        let mut arrivals = Vec::new();
        for flow in sent {
            let index = drawn.flows.iter().position(|f| f == flow).unwrap_or(0);
            let arrived = self.send(&prepared, flow)?;
            let is_translated = self.path(&prepared, flow).pre_dnat.is_some();
            if let Err(detail) = self.check_fast_path(flow, is_translated, arrived, report) {
                return Ok(Err(StageFailure::at_flow(STAGE_FAST, index, detail)));
            }
            let wanted = self.oracle_verdict(&prepared, flow);
            if arrived != wanted {
                let detail = mismatch_text("oracle", wanted, arrived, &prepared, flow);
                return Ok(Err(StageFailure::at_flow(STAGE, index, detail)));
            }
            if let Some(wanted) = self.naive_verdict(drawn, &prepared, flow)
                && arrived != wanted
            {
                let detail = mismatch_text("naive reading", wanted, arrived, &prepared, flow);
                return Ok(Err(StageFailure::at_flow(STAGE_NAIVE, index, detail)));
            }
            if arrived && flow.protocol == Protocol::UDP {
                let wanted = self.allows_reply(&prepared, flow);
                let replied = self.send_reply(flow)?;
                if replied != wanted {
                    let verb = if replied {
                        "arrives"
                    } else {
                        "does not arrive"
                    };
                    let detail = format!("the answer to {flow} {verb}");
                    return Ok(Err(StageFailure::at_flow(STAGE_REPLY, index, detail)));
                }
                report.replies += 1;
            }
            report.with_node += u64::from(is_node(flow.source) || is_node(flow.destination));
            if self.is_at_host_endpoint(&prepared, flow) {
                report.at_host += 1;
                report.translated += u64::from(self.path(&prepared, flow).pre_dnat.is_some());
            }
            arrivals.push(arrived);
        }
        Ok(Ok(arrivals))
    }

    /// Whether the first packet of a flow that nobody knows arrives.
    fn send(&self, prepared: &PreparedState<'_>, flow: &Flow) -> Result<bool, String> {
        self.lab.flush_conntrack().map_err(|e| e.to_string())?;
        self.dataplane.forget_flows();
        let mut packet = self.packet(flow);
        if let Some(sent) = self.path(prepared, flow).pre_dnat
            && let L4::Ports { destination, .. } = flow.l4
        {
            let protocol = match flow.protocol {
                Protocol::TCP => "tcp",
                _ => "udp",
            };
            let sent_to = SocketAddr::new(sent.destination, sent.port);
            let to = SocketAddr::new(flow.destination, destination);
            let translated = translate_destination(&self.lab, protocol, sent_to, to);
            translated.map_err(|error| error.to_string())?;
            packet = packet.to_destination(sent_to);
        }
        let arrived = probe(&self.lab, &[packet]).map_err(|e| e.to_string())?;
        Ok(arrived.first().copied().unwrap_or_default())
    }

    fn is_between_pods(&self, flow: &Flow) -> bool {
        let is_pod = |address: &IpAddr| {
            let holder = self.given.get(address);
            holder.is_some_and(|holder| self.pods.contains(holder))
        };
        is_pod(&flow.source) && is_pod(&flow.destination)
    }

    /// Whether the fast path did not deliver what arrived and it proves, or delivered what it does not prove. Counts what
    /// it delivered.
    fn check_fast_path(
        &self,
        flow: &Flow,
        is_translated: bool,
        arrived: bool,
        report: &mut KernelReport,
    ) -> Result<(), String> {
        let Some(counts) = self.dataplane.flow_counts() else {
            return Ok(());
        };
        let port = match flow.l4 {
            L4::Ports { destination, .. } => destination,
            L4::Icmp { kind, code } => icmp_key(kind, code),
            L4::None => 0,
        };
        // Requests alone begin flows of ICMP.
        let may_begin = match flow.l4 {
            L4::Icmp { kind, code: 0 } => [8, 13, 15, 17, 128].contains(&kind),
            L4::Icmp { .. } | L4::None => false,
            L4::Ports { .. } => true,
        };
        // Routes lead packets of the node itself, and those to it, past the interfaces to other hosts.
        let is_routed = !is_node(flow.source) && !is_node(flow.destination);
        let is_proven = !is_translated
            && may_begin
            && is_routed
            && self
                .dataplane
                .is_proven(flow.source, flow.destination, flow.protocol, port);
        if is_proven != (counts.owned > 0) || (is_proven && !arrived) {
            return Err(format!(
                "the fast path proves {flow}: {is_proven}; flows of it: {}; arrived: {arrived}",
                counts.owned
            ));
        }
        let is_between_pods = self.is_between_pods(flow);
        report.fast.delivered += u64::from(is_proven && is_between_pods);
        report.fast.delivered_outside += u64::from(is_proven && !is_between_pods);
        report.fast.between_pods += u64::from(arrived && is_between_pods);
        Ok(())
    }

    /// Whether an answer to what has just arrived arrives.
    fn send_reply(&self, flow: &Flow) -> Result<bool, String> {
        let answer = Flow {
            source: flow.destination,
            destination: flow.source,
            l4: reverse_ports(flow.l4),
            ..*flow
        };
        let arrived = probe(&self.lab, &[self.packet(&answer)]).map_err(|e| e.to_string())?;
        Ok(arrived.first().copied().unwrap_or_default())
    }

    fn options(&self) -> OracleOptions {
        OracleOptions {
            hairpin: if self.judge_host_traffic {
                HairpinAction::Policy
            } else {
                HairpinAction::ByKind
            },
            allowed_encapsulation: Encapsulations::NONE,
            host_to_endpoint: if self.judge_host_traffic {
                HostTrafficAction::Policy
            } else {
                HostTrafficAction::Allow
            },
            ..OracleOptions::default()
        }
    }

    /// Whether a flow crosses an interface of the host that a host endpoint governs.
    fn is_at_host_endpoint(&self, prepared: &PreparedState<'_>, flow: &Flow) -> bool {
        let path = self.path(prepared, flow);
        let mut crossed = [&path.input, &path.output].into_iter().flatten();
        crossed.any(|interface| prepared.host_endpoint(interface).is_some())
    }

    /// The interfaces of the host that a flow crosses. What is not tracked is not translated either.
    fn path(&self, prepared: &PreparedState<'_>, flow: &Flow) -> HostPath {
        let path = host_path(prepared, flow, lab::OUTSIDE_INTERFACE);
        let question = Question {
            path: path.clone(),
            ..Question::from(*flow)
        };
        let is_tracked = !prepared.is_untracked(&question, &self.options());
        HostPath {
            pre_dnat: path.pre_dnat.filter(|_| is_tracked),
            ..path
        }
    }

    /// Whether an answer to what arrived must arrive: always, but where the flow is not tracked or the answer is decided
    /// before connection tracking, and so is judged by itself.
    fn allows_reply(&self, prepared: &PreparedState<'_>, flow: &Flow) -> bool {
        let options = self.options();
        let path = self.path(prepared, flow);
        let question = Question {
            path: path.clone(),
            ..Question::from(*flow)
        };
        let is_tracked = !prepared.is_untracked(&question, &options);
        let answer = Flow {
            source: flow.destination,
            destination: flow.source,
            l4: reverse_ports(flow.l4),
            origin: if is_node(flow.destination) {
                FlowOrigin::HostStack
            } else {
                FlowOrigin::Network
            },
            ..*flow
        };
        let path = HostPath {
            input: path.output,
            output: path.input,
            pre_dnat: None,
            ..path
        };
        let question = Question {
            path: path.clone(),
            ..Question::from(answer)
        };
        let host = prepared.judge(&question, &options).host;
        let is_decided = |at: &HostJudgement| at.stage == PolicyStage::Untracked && at.is_last();
        if is_tracked && !host.iter().any(is_decided) {
            return true;
        }
        self.verdict_on_path(prepared, &answer, path)
    }

    /// What the oracle says, at the ends that are local.
    fn oracle_verdict(&self, prepared: &PreparedState<'_>, flow: &Flow) -> bool {
        self.verdict_on_path(prepared, flow, self.path(prepared, flow))
    }

    fn verdict_on_path(&self, prepared: &PreparedState<'_>, flow: &Flow, path: HostPath) -> bool {
        let options = self.options();
        let question = Question {
            path,
            ..Question::from(*flow)
        };
        let (egress, ingress) = prepared.verdict(&question, &options);
        (egress || local_endpoint(prepared, flow.source).is_none())
            && (ingress || local_endpoint(prepared, flow.destination).is_none())
            && Direction::BOTH
                .into_iter()
                .all(|direction| prepared.host_allows(&question, direction, &options))
    }

    /// What the naive reading of the same objects says, at the ends that are local; of lowered policies
    /// there is none.
    fn naive_verdict(
        &self,
        drawn: &GeneratedCase,
        prepared: &PreparedState<'_>,
        flow: &Flow,
    ) -> Option<bool> {
        let ReplayCase::Cluster(world, _) = &drawn.left else {
            return None;
        };
        // Which of several claimants is local here, and so holds the address, the objects do not say.
        let claims = |address: &IpAddr| {
            let endpoints = drawn.state.endpoints.values();
            endpoints.filter(|e| e.addresses.contains(address)).count()
        };
        // Pods that name other nodes are attached here; by their objects, the node of this host is a remote one.
        let is_moved = |address: &IpAddr| {
            let holder = prepared.address_holder(*address);
            holder.is_some_and(|e| e.interface.is_some() && e.node != drawn.state.host_node)
        };
        if [flow.source, flow.destination]
            .iter()
            .any(|end| claims(end) > 1 || is_moved(end))
        {
            return None;
        }
        let objects = world.objects();
        let path = self.path(prepared, flow);
        let of = |interface: Option<palisade_model::Str>| interface.map(|_| UPLINK);
        let naive_flow = naive::NaiveFlow {
            path: naive::NaivePath {
                is_forwarded: path.is_forwarded,
                sent_to: path.pre_dnat.map(|sent| (sent.destination, sent.port)),
                input: of(path.input),
                output: of(path.output),
            },
            ..report::naive_flow(flow)
        };
        let (egress, ingress) = naive::verdicts(&objects, &naive_flow);
        let host = naive::read(&objects, &naive_flow).host;
        let from_node = flow.origin == FlowOrigin::HostStack && !self.judge_host_traffic;
        Some(
            host && (egress || local_endpoint(prepared, flow.source).is_none())
                && (ingress || from_node || local_endpoint(prepared, flow.destination).is_none()),
        )
    }

    /// Gives every end of a flow to the pod of the local endpoint that holds it, or to the outside.
    fn assign_addresses(
        &mut self,
        prepared: &PreparedState<'_>,
        flows: &[&Flow],
    ) -> Result<(), String> {
        let told = |error: lab::LabError| error.to_string();
        let mut wanted: BTreeMap<IpAddr, NodeId> = BTreeMap::new();
        for address in flows
            .iter()
            .flat_map(|flow| [flow.source, flow.destination])
        {
            let local = local_endpoint(prepared, address).and_then(|n| self.pods.get(n).copied());
            let elsewhere = if is_node(address) {
                self.lab.host()
            } else {
                self.lab.outside()
            };
            wanted.insert(address, local.unwrap_or(elsewhere));
        }
        let given = std::mem::take(&mut self.given);
        for (address, node) in given {
            if wanted.get(&address) == Some(&node) {
                self.given.insert(address, node);
            } else {
                self.lab.remove_address(node, address).map_err(told)?;
            }
        }
        for (address, node) in wanted {
            let held = self.lab.addresses(node).contains(&address);
            if !held {
                self.lab.add_address(node, address).map_err(told)?;
                self.given.insert(address, node);
            }
        }
        Ok(())
    }

    /// Brings the kernel to a state: the first half of the updates at once, the rest one by one, with
    /// packets between. How many of these were sent.
    fn enforce(
        &mut self,
        drawn: &GeneratedCase,
        flows: &[&Flow],
        seed: u64,
        case: u64,
    ) -> Result<Result<u64, StageFailure>, String> {
        let state = &drawn.state;
        let prepared = PreparedState::new(state);
        let mut dice = Dice::new(seed ^ 0x7570_6461_7465, case);
        let detour = lowered::ModelWorld::generate(seed, case + 1, 0).state;
        let batches = lowered::batches(&mut dice, &detour, state);
        let half = dice.below(batches.len());
        let options = self.options();
        let mut engine = Engine::new(palisade_engine::EngineOptions {
            host_node: state.host_node.clone(),
            judgement: JudgementOptions::new(
                options.host_to_endpoint,
                options.hairpin,
                FailsafePorts::default(),
            ),
            judges_hairpin_by_kind: options.hairpin == HairpinAction::ByKind,
            ..palisade_engine::EngineOptions::default()
        });
        let mut rest = batches.into_iter();
        for batch in rest.by_ref().take(half) {
            engine.apply(batch);
        }
        let failed =
            |error: DriverError| StageFailure::new("kernel refuses", format!("{error}: {error:?}"));
        if let Err(error) = self.dataplane.resync(engine.tables()) {
            return Ok(Err(failed(error)));
        }
        let mut between = 0;
        for batch in rest {
            let delta = engine.apply(batch);
            if let Err(error) = self.dataplane.execute(&delta, engine.tables()) {
                return Ok(Err(failed(error)));
            }
            if !dice.chance(SENDING) {
                continue;
            }
            let state = engine.state();
            let now = PreparedState::new(&state);
            // The lab's pods have the addresses of the state that is on its way.
            let in_place = |flow: &&&Flow| {
                let same =
                    |address| local_endpoint(&now, address) == local_endpoint(&prepared, address);
                same(flow.source) && same(flow.destination) && can_be_sent(&now, flow)
            };
            for flow in flows.iter().filter(in_place).take(BETWEEN) {
                let (wanted, arrived) = (self.oracle_verdict(&now, flow), self.send(&now, flow)?);
                if wanted != arrived {
                    let index = drawn.flows.iter().position(|f| f == *flow).unwrap_or(0);
                    let detail = mismatch_text("oracle", wanted, arrived, &now, flow);
                    return Ok(Err(StageFailure::at_flow(STAGE_BETWEEN, index, detail)));
                }
                between += 1;
            }
        }
        match self.dataplane.verify(engine.tables()) {
            Ok(outcome) if outcome.writes == 0 => Ok(Ok(between)),
            Ok(outcome) => Ok(Err(StageFailure::new(
                "read back",
                format!("{} writes to repair what was just written", outcome.writes),
            ))),
            Err(error) => Ok(Err(failed(error))),
        }
    }

    fn packet(&self, flow: &Flow) -> lab::ProbeFlow {
        let node = |address| self.lab.node_at(address).unwrap_or(self.lab.outside());
        let l4 = match (flow.l4, flow.protocol.0) {
            (
                L4::Ports {
                    source,
                    destination,
                },
                protocol,
            ) => {
                let (source_port, port) = (Some(source), destination);
                match protocol {
                    6 => lab::ProbeL4::Tcp { source_port, port },
                    17 => lab::ProbeL4::Udp { source_port, port },
                    _ => lab::ProbeL4::Sctp { source_port, port },
                }
            }
            (L4::Icmp { kind, code }, _) => lab::ProbeL4::Icmp {
                icmp_type: kind,
                code,
            },
            (L4::None, protocol) => lab::ProbeL4::Other { protocol },
        };
        let receiver = node(flow.destination);
        lab::ProbeFlow::new(node(flow.source), flow.destination, l4, receiver)
            .with_source(flow.source)
    }
}

/// The ports of an answer.
fn reverse_ports(l4: L4) -> L4 {
    match l4 {
        L4::Ports {
            source,
            destination,
        } => L4::Ports {
            source: destination,
            destination: source,
        },
        other => other,
    }
}

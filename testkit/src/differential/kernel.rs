//! The oracle against nftables in the kernel, with real packets between network namespaces.
//!
//! One [`Lab`] stands for the whole run; for every world its pods are given the addresses that the
//! world's local endpoints hold, and the outside everything else. The dataplane is started on the
//! tables as they are half-way through the updates and follows the rest delta by delta, so both ways
//! of writing are tried. A case is one packet that was sent; a flow between two ends that are not
//! local passes no interface of ours and is not sent.

use super::report::{self, Left};
use super::{Failure, Half, cluster, flows_of, tables};
use crate::generate::{Dice, kubernetes, lowered};
use crate::lab::{self, Lab, NodeId, PodSpec, probe};
use palisade_dataplane::{Dataplane, NftConfig, NftDataplane};
use palisade_engine::Engine;
use palisade_model::{Flow, L4, Origin, State};
use palisade_oracle::{Options, Prepared, Question};
use palisade_sys::netns::NetNs;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Packets sent in one world, before the next is made.
const PACKETS: usize = 8;
/// Flows drawn for one world: some of them are not sent.
const DRAWN: usize = 14;
/// Pods in the lab: as many as a world can have local endpoints, by the number in their interface.
const PODS: usize = 8;

const STAGE: &str = "oracle and kernel";

/// What a run with real packets came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// Packets that the kernel treated as the oracle says.
    pub passed: u64,
    /// Worlds in which it did not.
    pub failed: u64,
    /// Of the packets that agreed, how many arrived.
    pub arrived: u64,
}

/// Judges this many cases with real packets; needs root.
///
/// # Errors
/// The laboratory could not be made or failed, in words.
pub fn run_kernel(
    cases: u64,
    seed: u64,
    only: Option<Half>,
    say: &mut dyn FnMut(&str),
) -> Result<KernelReport, String> {
    let mut place = Place::new()?;
    let mut report = KernelReport::default();
    // A world may have nothing to send; so many in a row have not.
    for world in 0..cases * 4 {
        if report.passed >= cases {
            break;
        }
        let half = match only {
            Some(half) => half,
            None if world.is_multiple_of(2) => Half::Kubernetes,
            None => Half::Lowered,
        };
        let drawn = Drawn::make(half, seed, world)?;
        match place.judge(&drawn, seed, world)? {
            Ok(arrivals) => {
                let before = report.passed;
                report.passed += arrivals.len() as u64;
                report.arrived += arrivals.iter().filter(|arrived| **arrived).count() as u64;
                if before * 10 / cases.max(1) != report.passed * 10 / cases.max(1) {
                    say(&format!("{} cases in the kernel", report.passed));
                }
            }
            Err(failure) => {
                report.failed += 1;
                let left = report::leave(&drawn.left, &failure, seed, world);
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
    Ok(report)
}

/// A world that was drawn, some of its endpoints local.
struct Drawn {
    state: State,
    flows: Vec<Flow>,
    left: Left,
}

impl Drawn {
    fn make(half: Half, seed: u64, case: u64) -> Result<Drawn, String> {
        // Other worlds than those of the run without a kernel.
        let seed = seed ^ 0x6b65_726e_656c;
        match half {
            Half::Kubernetes => {
                let world = kubernetes::World::generate(seed, case, DRAWN);
                let files = cluster::files(&world, seed, case, false);
                let mut state =
                    cluster::lower(&files).map_err(|f| format!("{}: {}", f.stage, f.detail))?;
                cluster::attach(&mut Dice::new(seed, case), &mut state);
                let trials = world.trials.iter();
                Ok(Drawn {
                    state,
                    flows: trials.map(|trial| cluster::flow(&trial.flow)).collect(),
                    left: Left::Cluster(world, files),
                })
            }
            Half::Lowered => {
                let world = lowered::World::generate(seed, case, DRAWN);
                let flows = flows_of(&world);
                Ok(Drawn {
                    state: world.state.clone(),
                    flows: flows.clone(),
                    left: Left::State(world.state, flows),
                })
            }
        }
    }
}

/// The lab, and the dataplane on its host.
struct Place {
    lab: Lab,
    pods: Vec<NodeId>,
    dataplane: NftDataplane,
    /// The addresses that the worlds so far have given out, and to whom.
    given: BTreeMap<IpAddr, NodeId>,
}

impl Place {
    fn new() -> Result<Place, String> {
        let told = |error: lab::LabError| error.to_string();
        let mut lab = Lab::new("diff").map_err(told)?;
        let mut pods = Vec::new();
        for n in 0..PODS {
            // Addresses that no world knows, so that the pod has routes for both families.
            let own = [format!("10.255.0.{}", n + 1), format!("fdff::{}", n + 1)];
            let own = own.each_ref().map(String::as_str);
            let spec = PodSpec::new(&format!("p{n}"), &format!("pal{n}"), &own);
            pods.push(lab.pod(spec).map_err(told)?);
        }
        let host = lab.namespace_path(lab.host());
        let netns = NetNs::open(&host.display().to_string()).map_err(|e| e.to_string())?;
        let config = NftConfig {
            table: "palisade".to_owned(),
            interface_prefix: "pal".to_owned(),
            mark_mask: 0xffff_ff00,
            judge_host_traffic: false,
            log_group: Some(20545),
        };
        let dataplane = NftDataplane::new_in(config, &netns).map_err(|e| e.to_string())?;
        Ok(Place {
            lab,
            pods,
            dataplane,
            given: BTreeMap::new(),
        })
    }

    /// What arrived of the packets of a world, or how that differs from what should.
    fn judge(
        &mut self,
        drawn: &Drawn,
        seed: u64,
        case: u64,
    ) -> Result<Result<Vec<bool>, Failure>, String> {
        let prepared = Prepared::new(&drawn.state);
        let sent: Vec<&Flow> = drawn
            .flows
            .iter()
            .filter(|flow| can_be_sent(&prepared, flow))
            .take(PACKETS)
            .collect();
        if sent.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        self.hand_out(&prepared, &sent)?;
        if let Err(failure) = self.enforce(&drawn.state, seed, case) {
            return Ok(Err(failure));
        }
        let mut arrivals = Vec::new();
        for flow in sent {
            self.lab.forget_flows().map_err(|e| e.to_string())?;
            let packet = self.packet(flow);
            let arrived = probe(&self.lab, &[packet]).map_err(|e| e.to_string())?;
            let arrived = arrived.first().copied().unwrap_or_default();
            let wanted = wanted(&prepared, flow);
            if arrived != wanted {
                let index = drawn.flows.iter().position(|f| f == flow).unwrap_or(0);
                let says = |passes| if passes { "passes" } else { "is dropped" };
                let judged = tables::packet(&prepared, flow);
                let detail = format!(
                    "by the oracle it {}, in the kernel it {}: {flow} ({judged:?})",
                    says(wanted),
                    says(arrived)
                );
                return Ok(Err(Failure::at(STAGE, index, detail)));
            }
            arrivals.push(arrived);
        }
        Ok(Ok(arrivals))
    }

    /// Gives every end of a flow to the pod of the local endpoint that holds it, or to the outside.
    fn hand_out(&mut self, prepared: &Prepared<'_>, flows: &[&Flow]) -> Result<(), String> {
        let told = |error: lab::LabError| error.to_string();
        let mut wanted: BTreeMap<IpAddr, NodeId> = BTreeMap::new();
        for address in flows
            .iter()
            .flat_map(|flow| [flow.source, flow.destination])
        {
            let local = local(prepared, address).and_then(|n| self.pods.get(n).copied());
            wanted.insert(address, local.unwrap_or(self.lab.outside()));
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

    /// Brings the kernel to a state: the first half of the updates at once, the rest one by one.
    fn enforce(&mut self, state: &State, seed: u64, case: u64) -> Result<(), Failure> {
        let mut dice = Dice::new(seed ^ 0x7570_6461_7465, case);
        let detour = lowered::World::generate(seed, case + 1, 0).state;
        let batches = lowered::batches(&mut dice, &detour, state);
        let half = dice.below(batches.len());
        let mut engine = Engine::new(palisade_engine::Options::default());
        let mut rest = batches.into_iter();
        for batch in rest.by_ref().take(half) {
            engine.apply(batch);
        }
        let failed = |error: palisade_dataplane::Error| {
            Failure::of("kernel refuses", format!("{error}: {error:?}"))
        };
        self.dataplane.start(engine.tables()).map_err(failed)?;
        for batch in rest {
            let delta = engine.apply(batch);
            self.dataplane
                .apply(&delta, engine.tables())
                .map_err(failed)?;
        }
        let outcome = self.dataplane.verify(engine.tables()).map_err(failed)?;
        match outcome.writes {
            0 => Ok(()),
            writes => Err(Failure::of(
                "read back",
                format!("{writes} writes to repair what was just written"),
            )),
        }
    }

    fn packet(&self, flow: &Flow) -> lab::Flow {
        let node = |address| self.lab.holder(address).unwrap_or(self.lab.outside());
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
                    6 => lab::L4::Tcp { source_port, port },
                    17 => lab::L4::Udp { source_port, port },
                    _ => lab::L4::Sctp { source_port, port },
                }
            }
            (L4::Icmp { kind, code }, _) => lab::L4::Icmp {
                icmp_type: kind,
                code,
            },
            (L4::None, protocol) => lab::L4::Other { protocol },
        };
        let receiver = node(flow.destination);
        lab::Flow::new(node(flow.source), flow.destination, l4, receiver).source(flow.source)
    }
}

/// The number of the local endpoint that holds an address.
fn local(prepared: &Prepared<'_>, address: IpAddr) -> Option<usize> {
    let interface = prepared.claimant(address)?.interface.clone()?;
    interface.strip_prefix("pal")?.parse().ok()
}

/// Whether a flow passes an interface of ours and can be made here: the host's own packets come from
/// its own addresses, and over IPv6 some protocols are extension headers.
fn can_be_sent(prepared: &Prepared<'_>, flow: &Flow) -> bool {
    let (from, to) = (
        local(prepared, flow.source),
        local(prepared, flow.destination),
    );
    let ours = [from, to].into_iter().flatten().any(|n| n < PODS);
    let extension = flow.source.is_ipv6() && [50, 4].contains(&flow.protocol.0);
    flow.origin == Origin::Network && ours && from != to && !extension
}

/// What the oracle says, at the ends that are local.
fn wanted(prepared: &Prepared<'_>, flow: &Flow) -> bool {
    let (egress, ingress) = prepared.verdict(&Question::from(*flow), &Options::default());
    (egress || local(prepared, flow.source).is_none())
        && (ingress || local(prepared, flow.destination).is_none())
}

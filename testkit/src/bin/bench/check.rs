//! Sampled verdicts of the tables against the oracle: a figure of a wrong engine is worth nothing.
//!
//! The oracle reads a state of the sampled endpoints only, and of the policies that select a local
//! one: no other object has a say in what a local endpoint decides about a sampled flow.

use palisade_generators::Dice;
use palisade_model::{
    Direction, Endpoint, Flow, FlowOrigin, L4, Policy, PolicyView, Prefix, Protocol, Rule,
    Selector, State,
};
use palisade_oracle::{OracleOptions, PreparedState, Question};
use palisade_tables::{DirectionVerdict, Packet, Tables, Verdict};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How many flows are compared.
pub(crate) const FLOWS: usize = 10_000;

/// How many endpoints that are not local are among the ends.
const REMOTE: usize = 400;

/// How many rules' peers are among the ends for sure.
const NAMING: usize = 10;

/// What was compared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CheckTotals {
    pub(crate) allowed: usize,
    pub(crate) denied: usize,
}

/// Compares [`FLOWS`] flows, each judged at every end that is local.
pub(crate) fn check(state: &State, tables: &Tables) -> Result<CheckTotals, String> {
    let mut dice = Dice::new(4, 0);
    let (sample, named) = sample(&mut dice, state);
    let prepared = PreparedState::new(&sample);
    let pool = FlowPool::of(&sample, named);
    if pool.local.is_empty() {
        return Err("no local endpoint to judge at".into());
    }
    let mut compared = CheckTotals::default();
    for _ in 0..FLOWS {
        let flow = pool.flow(&mut dice);
        let allowed = agree(&prepared, tables, &flow)?;
        if allowed {
            compared.allowed += 1
        } else {
            compared.denied += 1
        }
    }
    match compared {
        CheckTotals { allowed: 0, .. } => {
            Err("no sampled flow is allowed: nothing is shown".into())
        }
        CheckTotals { denied: 0, .. } => Err("no sampled flow is denied: nothing is shown".into()),
        compared => Ok(compared),
    }
}

/// Whether both allow the flow at its local ends if nothing were in audit, if they agree on that and on what is
/// enforced.
fn agree(prepared: &PreparedState<'_>, tables: &Tables, flow: &Flow) -> Result<bool, String> {
    let interface = |address| {
        let holder = prepared.address_holder(address);
        Some(
            holder
                .and_then(|e| e.interface.clone())
                .unwrap_or_else(|| "eth0".into()),
        )
    };
    let packet = Packet {
        input_interface: interface(flow.source),
        output_interface: interface(flow.destination),
        source: flow.source,
        destination: flow.destination,
        protocol: flow.protocol,
        l4: flow.l4,
        pre_dnat: None,
    };
    let question = Question::from(*flow);
    let enforced = prepared.verdict(&question, &OracleOptions::default());
    let without_audit = OracleOptions {
        view: PolicyView::Audit,
        ..OracleOptions::default()
    };
    let audit = prepared.verdict(&question, &without_audit);
    let mut allowed = true;
    for (direction, address, wanted, audit) in [
        (Direction::Egress, flow.source, enforced.0, audit.0),
        (Direction::Ingress, flow.destination, enforced.1, audit.1),
    ] {
        let local = prepared
            .address_holder(address)
            .is_some_and(|e| e.interface.is_some());
        if !local {
            continue;
        }
        let judged = tables.judge_direction(&packet, direction);
        if (judged.verdict() == Verdict::Allow) != wanted {
            return Err(format!(
                "{flow}: {direction} {} by the oracle, {judged:?} by the tables",
                if wanted { "allowed" } else { "denied" }
            ));
        }
        let audited = match judged {
            DirectionVerdict::Evaluated(seen) => {
                let audit = seen.cell.audit.as_ref();
                audit.map_or(seen.cell.verdict, |audit| audit.verdict)
            }
            other => other.verdict(),
        };
        if (audited == Verdict::Allow) != audit {
            return Err(format!(
                "{flow}: {direction} {} by the oracle if nothing were in audit, {judged:?} by the tables",
                if audit { "allowed" } else { "denied" }
            ));
        }
        allowed &= audit;
    }
    Ok(allowed)
}

fn is_local(endpoint: &Endpoint) -> bool {
    endpoint.interface.is_some()
}

/// The local endpoints and some others, with all that has a say about them; and which of the others
/// a rule names.
fn sample(dice: &mut Dice, state: &State) -> (State, Vec<IpAddr>) {
    let (local, mut remote): (Vec<&Endpoint>, Vec<&Endpoint>) =
        state.endpoints.values().partition(|e| is_local(e));
    let selects = |policy: &&Policy| {
        let mut local = local.iter();
        local.any(|e| policy.subject.matches(&state.endpoint_labels(e)))
    };
    let policies: Vec<&Policy> = state.policies.values().filter(selects).collect();
    let named = named(dice, state, &policies, &remote);
    // Drawn one by one: shuffling all of them would cost more than the rest.
    let mut drawn = Vec::new();
    while drawn.len() < REMOTE && !remote.is_empty() {
        let at = dice.below(remote.len());
        drawn.push(remote.swap_remove(at));
    }
    let endpoints = local.iter().chain(&drawn).chain(&named);
    let sample = State {
        host_node: None,
        tiers: state.tiers.clone(),
        policies: policies
            .into_iter()
            .map(|p| (p.id.clone(), p.clone()))
            .collect(),
        profiles: state.profiles.clone(),
        endpoints: endpoints.map(|e| (e.id.clone(), (*e).clone())).collect(),
        namespaces: state.namespaces.clone(),
        service_accounts: state.service_accounts.clone(),
        network_sets: state.network_sets.clone(),
        nodes: state.nodes.clone(),
        services: BTreeMap::new(),
    };
    let named = named.into_iter().flat_map(|e| &e.addresses).copied();
    (sample, named.collect())
}

/// Some endpoints that a few rules, drawn by chance, have as their peers.
fn named<'a>(
    dice: &mut Dice,
    state: &State,
    policies: &[&Policy],
    among: &[&'a Endpoint],
) -> Vec<&'a Endpoint> {
    let selectors: Vec<&Selector> = rules(policies.iter().copied())
        .flat_map(|rule| &rule.peers)
        .filter_map(|peer| peer.selector.as_ref())
        .collect();
    let mut named: Vec<&Endpoint> = Vec::new();
    for _ in 0..NAMING.min(selectors.len()) {
        let selector = *dice.pick(&selectors);
        let matching = among
            .iter()
            .filter(|e| selector.matches(&state.endpoint_labels(e)));
        named.extend(matching.take(REMOTE / NAMING));
    }
    named
}

fn rules<'a>(policies: impl Iterator<Item = &'a Policy>) -> impl Iterator<Item = &'a Rule> {
    let directions = policies.flat_map(|p| p.ingress.iter().chain(&p.egress));
    directions.flat_map(|d| &d.rules)
}

/// What flows are drawn from.
struct FlowPool {
    local: Vec<IpAddr>,
    all: Vec<IpAddr>,
    named: Vec<IpAddr>,
    nets: Vec<Prefix>,
    ports: Vec<u16>,
}

impl FlowPool {
    fn of(state: &State, named: Vec<IpAddr>) -> Self {
        let addresses = |only_local: bool| {
            let endpoints = state.endpoints.values();
            endpoints
                .filter(move |e| !only_local || is_local(e))
                .flat_map(|e| e.addresses.iter().copied())
                .collect()
        };
        let rules = || rules(state.policies.values());
        let nets = |rule: &Rule| -> Vec<Prefix> {
            let peers = rule.peers.iter();
            peers
                .flat_map(|p| p.nets.iter().flatten().chain(&p.not_nets).copied())
                .collect()
        };
        let ports = rules().flat_map(|rule| &rule.traffic).flat_map(|term| {
            let specs = term.destination.any_of.iter().flatten();
            specs.filter_map(|spec| match spec {
                palisade_model::PortSpec::Range(range) => Some(range.first),
                palisade_model::PortSpec::Named(_) => None,
            })
        });
        let mut ports: Vec<u16> = ports.collect();
        ports.sort_unstable();
        ports.dedup();
        FlowPool {
            local: addresses(true),
            all: addresses(false),
            named,
            nets: rules().flat_map(nets).collect(),
            ports,
        }
    }

    /// A flow with a local end.
    fn flow(&self, dice: &mut Dice) -> Flow {
        let own = *dice.pick(&self.local);
        let other = self.other(dice, own);
        let (source, destination) = if dice.chance(50) {
            (own, other)
        } else {
            (other, own)
        };
        let protocol = *dice.pick(&[
            Protocol::TCP,
            Protocol::TCP,
            Protocol::TCP,
            Protocol::UDP,
            Protocol::SCTP,
            Protocol::ICMP,
        ]);
        let protocol = match (protocol, own) {
            (Protocol::ICMP, IpAddr::V6(_)) => Protocol::ICMPV6,
            (protocol, _) => protocol,
        };
        let any_port = |dice: &mut Dice| u16::try_from(dice.below(65_536)).unwrap_or(0);
        Flow {
            source,
            destination,
            protocol,
            l4: if protocol.has_ports() {
                L4::Ports {
                    source: any_port(dice),
                    destination: if dice.chance(70) && !self.ports.is_empty() {
                        *dice.pick(&self.ports)
                    } else {
                        any_port(dice)
                    },
                }
            } else {
                L4::Icmp { kind: 8, code: 0 }
            },
            origin: FlowOrigin::Network,
        }
    }

    /// Another end of the same family: an endpoint, an address of a network that a rule names, or
    /// any.
    fn other(&self, dice: &mut Dice, own: IpAddr) -> IpAddr {
        let same = |address: &IpAddr| address.is_ipv4() == own.is_ipv4() && *address != own;
        for _ in 0..8 {
            let drawn = match dice.below(10) {
                0 => random_address(dice, own),
                1..=4 if !self.nets.is_empty() => {
                    let net = dice.pick(&self.nets);
                    if dice.chance(50) {
                        net.last()
                    } else {
                        net.address()
                    }
                }
                1..=6 if !self.named.is_empty() => *dice.pick(&self.named),
                _ => *dice.pick(&self.all),
            };
            if same(&drawn) {
                return drawn;
            }
        }
        random_address(dice, own)
    }
}

fn random_address(dice: &mut Dice, own: IpAddr) -> IpAddr {
    let number = u32::try_from(dice.below(1 << 32)).unwrap_or(0);
    match own {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(number)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from((0x2001 << 112) | u128::from(number))),
    }
}

//! The chains that judge packets at the interfaces of the host itself.
//!
//! Those of a stage exist only while the tables have points of that stage, so a host without a host endpoint pays
//! nothing, and forwarded packets pay nothing where no policy applies on forward. Their base chains stand before those
//! of workloads. The first rule of each looks up the interface among those with points at
//! that stage; a packet of any other interface passes after that lookup, a forwarded one after one for each of its two
//! interfaces, and a workload's interface is never looked up. A judgement is the same as that of a workload
//! ([`crate::judgement`]), but for how the policy set is found: the local address may be any, so it is looked up
//! exactly and then among ranges. A packet of a flow with the live mark was judged by this host as well, since these
//! chains come first and the mark is set last.
//!
//! Promises: failsafe ports and the link's own traffic (neighbour discovery, MLD) pass before anything is judged. An
//! interface without a point of the stage is not judged. Packets of the host's own stack in flows with NAT are judged
//! in the postrouting hook, as in [`crate::translated`]. Never: judges a packet at a workload's interface.

use crate::answering;
use crate::early_stages;
use crate::hook_rules::{fast_path_rule, filter_base_chain, own_interface_rules};
use crate::host_judgement::{
    PacketSide, judged_interface, link_rule, lookup_rules, own_stack_chains, side_chain,
};
use crate::judgement::{L4Fields, Orientation, TupleFields, address_field, family_digit};
use crate::names::{self, L4_ICMP, L4_PORTS, LIVE_MARK};
use crate::nflog::counted_drop_rule;
use crate::redirect;
use crate::rule::{RuleBuilder, chain};
use crate::{
    Chain, CmpOp, Config, CtKey, Element, ElementKey, Hook, MetaKey, NftFault, NftRule, NftVerdict,
    PayloadBase, ct_state, tcp_flag,
};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_layout::AddressRanges;
use palisade_model::{Direction, Family, PolicyStage, Prefix, Protocol, Str, address_from_number};
use palisade_tables::ReportReason;

/// The priority of the base chains: before the filter chains of workloads, after destination NAT.
const PRIORITY: i32 = -1;

/// The base chain whose presence tells that the table has the chains of a stage.
fn marker(stage: PolicyStage) -> &'static str {
    match stage {
        PolicyStage::Untracked => early_stages::UNTRACKED_MARKER,
        PolicyStage::PreDnat => early_stages::PRE_DNAT_MARKER,
        PolicyStage::Forward => "p_host_forward",
        PolicyStage::Normal => "p_host_input",
    }
}

/// The stages whose chains these are among.
pub(crate) fn stages_of(chains: &BTreeMap<Str, Chain>) -> Vec<PolicyStage> {
    let stages = PolicyStage::ALL.into_iter();
    stages
        .filter(|stage| chains.contains_key(marker(*stage)))
        .collect()
}

fn header_chain(side: PacketSide, stage: PolicyStage, orientation: Orientation) -> String {
    format!("{}_{}", side_chain(side, stage), orientation.letter())
}

fn judge_chain(
    (side, stage): (PacketSide, PolicyStage),
    orientation: Orientation,
    family: Family,
    header: L4Fields,
) -> String {
    let digit = family_digit(family);
    format!(
        "{}{digit}_{}",
        header_chain(side, stage, orientation),
        header.letter()
    )
}

/// The chains of a stage, in an order in which each can be deleted: those that refer to others first.
pub(crate) fn chains(config: &Config, stage: PolicyStage) -> Vec<(Str, Chain)> {
    let mut out = match stage {
        PolicyStage::Untracked => return early_stages::untracked_chains(config),
        PolicyStage::PreDnat => return early_stages::pre_dnat_chains(config),
        PolicyStage::Forward => forward_chains(config),
        PolicyStage::Normal => normal_chains(config),
    };
    let sides = PacketSide::BOTH;
    out.extend(sides.map(|side| {
        let rules = side_rules(config, side, stage);
        chain(&side_chain(side, stage), None, rules)
    }));
    for side in sides {
        for orientation in Orientation::BOTH {
            let name = header_chain(side, stage, orientation);
            out.push(chain(&name, None, header_rules((side, stage), orientation)));
        }
    }
    for side in sides {
        for orientation in Orientation::BOTH {
            for family in Family::BOTH {
                for header in L4Fields::ALL {
                    let name = judge_chain((side, stage), orientation, family, header);
                    let rules = judge_rules(config, (side, stage), orientation, family, header);
                    out.push(chain(&name, None, rules));
                }
            }
        }
    }
    answering::separate_postrouting(config, out, &mut BTreeMap::new())
}

/// The chains that lead packets to and from the host to their judgement.
fn normal_chains(config: &Config) -> Vec<(Str, Chain)> {
    let entry = |side, to: &str| judged_interface(config, side, PolicyStage::Normal).goto(to);
    let (arriving, leaving) = (PacketSide::Arriving, PacketSide::Leaving);
    let base = |hook| filter_base_chain(hook, PRIORITY);
    let mut out = vec![chain(
        marker(PolicyStage::Normal),
        base(Hook::Input),
        vec![entry(arriving, "p_host_in")],
    )];
    let judged = || entry(leaving, "p_host_out");
    out.extend(own_stack_chains("p_host", &base, &judged));
    for (side, name) in [(arriving, "p_host_in"), (leaving, "p_host_out")] {
        let end = || RuleBuilder::new().goto("p_host_end");
        let mut rules = vec![fast_path_rule(config)];
        rules.extend(redirect::upstream_rule(config));
        if side == leaving {
            rules.extend(answering::own_answer_rules(config));
        }
        rules.extend(early_stages::decided_rules(config, side, &end));
        rules.push(link_rule());
        if !NftFault::FailsafeIgnored.is_injected() {
            rules.extend(failsafe_rules(side));
        }
        rules.push(RuleBuilder::new().jump(&side_chain(side, PolicyStage::Normal)));
        rules.push(end());
        out.push(chain(name, None, rules));
    }
    out.push(chain("p_host_end", None, end_rules().into()));
    out
}

/// The chains that lead forwarded packets to their judgements, each side in the order of the flow.
fn forward_chains(config: &Config) -> Vec<(Str, Chain)> {
    let (arriving, leaving) = (PacketSide::Arriving, PacketSide::Leaving);
    let entry = |side| judged_interface(config, side, PolicyStage::Forward).goto("p_host_through");
    let replies = RuleBuilder::new().state(ct_state::ESTABLISHED).reply();
    let rest = |name: &'static str| move || RuleBuilder::new().goto(name);
    let mut through = vec![fast_path_rule(config), replies.goto("p_host_back")];
    let decided = early_stages::decided_rules(config, arriving, &rest("p_host_leaving"));
    through.extend(decided);
    through.extend(through_rules(config, &[arriving, leaving]));
    let mut back = early_stages::decided_rules(config, leaving, &rest("p_host_arriving"));
    back.extend(through_rules(config, &[leaving, arriving]));
    let mut out = Vec::new();
    if let Some(queries) = redirect::passed_queries(config) {
        // As if it came from the client without the proxy.
        let judged = queries.and(judged_interface(config, leaving, PolicyStage::Forward));
        let side_chain = side_chain(leaving, PolicyStage::Forward);
        out.push(chain(
            "p_host_forward_proxy",
            filter_base_chain(Hook::Output, PRIORITY),
            vec![judged.jump(&side_chain)],
        ));
    }
    out.extend([
        chain(
            marker(PolicyStage::Forward),
            filter_base_chain(Hook::Forward, PRIORITY),
            vec![entry(arriving), entry(leaving)],
        ),
        chain("p_host_through", None, through),
        chain("p_host_back", None, back),
        chain("p_host_leaving", None, through_rules(config, &[leaving])),
        chain("p_host_arriving", None, through_rules(config, &[arriving])),
    ]);
    out
}

/// The rules that judge these sides of a forwarded packet, in this order.
fn through_rules(config: &Config, sides: &[PacketSide]) -> Vec<NftRule> {
    let mut rules = Vec::new();
    for side in sides.iter().copied() {
        if side == PacketSide::Leaving && NftFault::HostForwardJudgedOnce.is_injected() {
            continue;
        }
        let side_chain = side_chain(side, PolicyStage::Forward);
        rules.push(judged_interface(config, side, PolicyStage::Forward).jump(&side_chain));
    }
    // The chains of workloads follow, and set the mark themselves.
    for key in [MetaKey::IifName, MetaKey::OifName] {
        rules.extend(own_interface_rules(config, key, |line| {
            line.verdict(NftVerdict::Accept)
        }));
    }
    rules.extend(end_rules());
    rules
}

/// The rules that accept flows to failsafe ports, their replies, and packets of such TCP flows that connection
/// tracking sees first in their middle: what is no SYN opens no connection.
fn failsafe_rules(side: PacketSide) -> Vec<NftRule> {
    let mut out = Vec::new();
    for family in Family::BOTH {
        let is_arriving = side == PacketSide::Arriving;
        // The other end's address and the port of the flow's destination.
        let (peer, len) = address_field(family, !is_arriving);
        let in_set = |line: RuleBuilder, direction, is_reply: bool| {
            let port = if is_reply { 0 } else { 2 };
            line.meta(MetaKey::L4Proto, 0)
                .payload(PayloadBase::Transport, port, 2, 1)
                .payload(PayloadBase::Network, peer, len, 2)
                .in_set(names::failsafe_set(family, direction), 0)
                .verdict(NftVerdict::Accept)
        };
        let direction = |orientation| side.direction(orientation);
        let line = || RuleBuilder::new().family(family);
        let (original, reply) = (
            direction(Orientation::Original),
            direction(Orientation::Reply),
        );
        out.push(in_set(line().original(), original, false));
        out.push(in_set(line().reply(), reply, true));
        // Connection tracking never begins with the answer to a SYN, and no host that answers one has opened the flow.
        let midstream = |line: RuleBuilder| line.tcp_flags(tcp_flag::SYN, CmpOp::Eq, 0);
        out.push(in_set(midstream(line().original()), reply, true));
        out.push(in_set(midstream(line().reply()), original, false));
        let syn = tcp_flag::SYN | tcp_flag::ACK;
        let no_syn = |line: RuleBuilder| line.tcp_flags(syn, CmpOp::Neq, tcp_flag::SYN);
        let untracked = || line().state(ct_state::UNTRACKED);
        out.push(in_set(untracked(), original, false));
        out.push(in_set(no_syn(untracked()), reply, true));
    }
    out
}

/// The end of what is allowed: the flow gets the live mark, but for an error about another flow.
fn end_rules() -> [NftRule; 2] {
    [
        RuleBuilder::new()
            .state(ct_state::RELATED)
            .verdict(NftVerdict::Accept),
        RuleBuilder::new().goto("p_mark"),
    ]
}

fn side_rules(config: &Config, side: PacketSide, stage: PolicyStage) -> Vec<NftRule> {
    let header = |orientation| header_chain(side, stage, orientation);
    let icmp = || {
        RuleBuilder::new()
            .meta(MetaKey::L4Proto, 0)
            .in_set(L4_ICMP, 0)
    };
    let related = || RuleBuilder::new().state(ct_state::RELATED);
    let untracked_error = || icmp().state(ct_state::INVALID);
    vec![
        // An ICMP error passes with the flow that it is about, or is judged as a flow of its own.
        icmp()
            .state(ct_state::RELATED | ct_state::INVALID)
            .ct(CtKey::Mark, 0)
            .bitwise(0, &config.generation_mask().to_ne_bytes(), &[0; 4])
            .in_set(LIVE_MARK, 0)
            .verdict(NftVerdict::Return),
        untracked_error().goto(&header(Orientation::Original)),
        counted_drop_rule(
            config,
            RuleBuilder::new().state(ct_state::INVALID),
            ReportReason::Invalid,
        ),
        related().goto(&header(Orientation::Original)),
        RuleBuilder::new().reply().goto(&header(Orientation::Reply)),
        RuleBuilder::new().goto(&header(Orientation::Original)),
    ]
}

fn header_rules(
    (side, stage): (PacketSide, PolicyStage),
    orientation: Orientation,
) -> Vec<NftRule> {
    let mut rules = Vec::new();
    for family in Family::BOTH {
        let to = |header| judge_chain((side, stage), orientation, family, header);
        let protocol = || RuleBuilder::new().family(family).meta(MetaKey::L4Proto, 0);
        rules.push(protocol().in_set(L4_PORTS, 0).goto(&to(L4Fields::Ports)));
        rules.push(protocol().in_set(L4_ICMP, 0).goto(&to(L4Fields::Icmp)));
        rules.push(RuleBuilder::new().family(family).goto(&to(L4Fields::Other)));
    }
    rules
}

fn judge_rules(
    config: &Config,
    (side, stage): (PacketSide, PolicyStage),
    orientation: Orientation,
    family: Family,
    header: L4Fields,
) -> Vec<NftRule> {
    let direction = side.direction(orientation);
    let fields = TupleFields::Packet(orientation);
    lookup_rules(config, (side, stage), (direction, fields), family, header)
}

/// The elements of the sets of failsafe ports.
pub(crate) fn failsafe_elements(config: &Config) -> Vec<(&'static str, ElementKey, Element)> {
    let mut out = Vec::new();
    for (direction, family) in Direction::BOTH
        .into_iter()
        .flat_map(|direction| Family::BOTH.map(|family| (direction, family)))
    {
        let mut ports: BTreeMap<(Protocol, u16), BTreeMap<Prefix, u32>> = BTreeMap::new();
        for port in config.judgement.failsafe.of(direction) {
            let net = port.net.unwrap_or(Prefix::all(family));
            if net.family() == family {
                let nets = ports.entry((port.protocol, port.port)).or_default();
                nets.insert(net, 1);
            }
        }
        for ((protocol, port), nets) in ports {
            let mut ranges = AddressRanges::default();
            ranges.recompute(&nets, Prefix::all(family), |_, _| {});
            for (first, last, _) in ranges.ranges() {
                let end = |number| {
                    let address = names::address_bytes(address_from_number(family, number));
                    names::concat_fields(&[&[protocol.0], &port.to_be_bytes(), &address])
                };
                let key = ElementKey::Range(end(first), end(last));
                out.push((
                    names::failsafe_set(family, direction),
                    key,
                    Element::default(),
                ));
            }
        }
    }
    out
}

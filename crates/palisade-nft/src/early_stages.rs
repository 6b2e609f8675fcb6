//! The chains of the early stages of host interfaces: before connection tracking, and before destination NAT.
//!
//! A judgement of an early stage has three ends: a denied packet is dropped, an allowed one returns, and one that is
//! not decided returns with a bit of its own mark set
//! ([`PacketMarkBits::early_stage`](crate::PacketMarkBits::early_stage)), since what allows or leaves open may be in a
//! chain that tests source ports. What is allowed gets the bit for the chains of the other stages, which then do not
//! judge it at that interface and clear the bit; they trust it only at an interface with points of the early stage,
//! whose chains have written it.
//!
//! Before connection tracking each packet is judged by itself, where it arrives or where the host's own stack sends it.
//! What is allowed is not tracked. Before destination NAT, flows are judged, in the same hooks as the stages that
//! follow, by the addresses and the port that the connection's first packet had; so replies are judged as well, and a
//! flow that is allowed is not interrupted.
//!
//! Promises: the chains of a stage exist only while the tables have points of it; failsafe ports and the link's own
//! traffic are not judged. Never: leaves the bit set.

use crate::hook_rules::{fast_path_rule, filter_base_chain, own_interface_rules};
use crate::host_judgement::{
    PacketSide, judged_interface, link_rule, lookup_rules, own_stack_chains, side_chain,
};
use crate::judgement::{L4Fields, Orientation, TupleFields, family_digit};
use crate::names::{self, L4_ICMP, L4_PORTS};
use crate::nflog;
use crate::redirect;
use crate::rule::{RuleBuilder, chain};
use crate::{
    Chain, CmpOp, Config, Expr, Hook, MetaKey, NftFault, NftRule, NftVerdict, ct_state, tcp_flag,
};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, PolicyStage, Protocol, Str};
use palisade_tables::ReportReason;

/// After the check of source addresses, before connection tracking.
const RAW_PRIORITY: i32 = -299;

/// Before the chains of the other stages of host interfaces.
const PRE_DNAT_PRIORITY: i32 = -2;

/// The base chain whose presence tells that the table has the chains of [`PolicyStage::Untracked`].
pub(crate) const UNTRACKED_MARKER: &str = "p_untracked_prerouting";

/// The base chain whose presence tells that the table has the chains of [`PolicyStage::PreDnat`].
pub(crate) const PRE_DNAT_MARKER: &str = "p_dnat_input";

/// The reports of a packet that is not decided.
const REPORTED: [ReportReason; 4] = [
    ReportReason::Logged(Direction::Ingress),
    ReportReason::Logged(Direction::Egress),
    ReportReason::Audited(Direction::Ingress),
    ReportReason::Audited(Direction::Egress),
];

fn continue_chain(reported: Option<ReportReason>) -> String {
    let word = reported.map(nflog::chain_name).unwrap_or_default();
    format!("p_continue{}", word.trim_start_matches('p'))
}

/// The verdict of a packet that is not decided.
pub(crate) fn continue_verdict(reported: Option<ReportReason>) -> NftVerdict {
    NftVerdict::Goto(continue_chain(reported).into())
}

/// The chains of packets that are not decided: they set the bit, and return.
pub(crate) fn continue_chains(config: &Config) -> Vec<(Str, Chain)> {
    let reasons = [None].into_iter().chain(REPORTED.map(Some));
    let chains = reasons.map(|reported| {
        let set = RuleBuilder::new().set_packet_mark(config.packet_mark.early_stage, true);
        let report =
            reported.map(|reason| RuleBuilder::new().verdict(nflog::final_verdict(config, reason)));
        let rules = [set.build()].into_iter().chain(report).collect();
        chain(&continue_chain(reported), None, rules)
    });
    chains.collect()
}

/// The rules for packets that an early stage has allowed at the interface of this side: they clear the bit, and end as
/// `end` says.
pub(crate) fn decided_rules(
    config: &Config,
    side: PacketSide,
    end: &dyn Fn() -> NftRule,
) -> Vec<NftRule> {
    if NftFault::EarlyAllowJudgedAgain.is_injected() {
        return Vec::new();
    }
    let bit = config.packet_mark.early_stage;
    let is_set = || RuleBuilder::new().packet_mark(bit);
    let cleared = |line: RuleBuilder, stage| {
        let mut rule = end();
        let line = line.and(judged_interface(config, side, stage));
        let mut exprs = line.set_packet_mark(bit, false).build().exprs;
        exprs.append(&mut rule.exprs);
        NftRule { exprs, ..rule }
    };
    vec![
        cleared(is_set().state(ct_state::UNTRACKED), PolicyStage::Untracked),
        cleared(is_set(), PolicyStage::PreDnat),
    ]
}

/// The chains of [`PolicyStage::Untracked`], in an order in which each can be deleted.
pub(crate) fn untracked_chains(config: &Config) -> Vec<(Str, Chain)> {
    let entry = |side, to: &str| judged_interface(config, side, PolicyStage::Untracked).goto(to);
    let (arriving, leaving) = (PacketSide::Arriving, PacketSide::Leaving);
    let base = |hook| filter_base_chain(hook, RAW_PRIORITY);
    let mut out = vec![
        chain(
            UNTRACKED_MARKER,
            base(Hook::Prerouting),
            vec![entry(arriving, "p_untracked_in")],
        ),
        chain(
            "p_untracked_output",
            base(Hook::Output),
            vec![entry(leaving, "p_untracked_out")],
        ),
    ];
    let bit = config.packet_mark.early_stage;
    for (side, name) in [(arriving, "p_untracked_in"), (leaving, "p_untracked_out")] {
        let mut rules = vec![
            RuleBuilder::new().set_packet_mark(bit, false).build(),
            link_rule(),
        ];
        if side == leaving {
            rules.extend(redirect::own_jump(config, Hook::Output));
        }
        rules.extend(untracked_failsafe_rules(side));
        rules.push(RuleBuilder::new().jump(&side_chain(side, PolicyStage::Untracked)));
        rules.push(not_decided_rule(config, NftVerdict::Accept));
        let allowed = RuleBuilder::new().set_packet_mark(bit, true);
        let allowed = if NftFault::UntrackedTracked.is_injected() {
            allowed
        } else {
            allowed.push(Expr::Notrack)
        };
        rules.push(allowed.verdict(NftVerdict::Accept));
        out.push(chain(name, None, rules));
    }
    for side in [arriving, leaving] {
        let direction = match side {
            PacketSide::Arriving => Direction::Ingress,
            PacketSide::Leaving => Direction::Egress,
        };
        let fields = TupleFields::Packet(Orientation::Original);
        let name = side_chain(side, PolicyStage::Untracked);
        out.push(chain(&name, None, header_rules(&name)));
        out.extend(judge_chains(
            config,
            &name,
            (side, PolicyStage::Untracked),
            (direction, fields),
        ));
    }
    out
}

/// What is not decided: clears the bit.
fn not_decided_rule(config: &Config, verdict: NftVerdict) -> NftRule {
    let bit = config.packet_mark.early_stage;
    RuleBuilder::new()
        .packet_mark(bit)
        .set_packet_mark(bit, false)
        .verdict(verdict)
}

/// The rules that lead to the judgement of a chain, by family and header.
fn header_rules(name: &str) -> Vec<NftRule> {
    let mut rules = Vec::new();
    for family in Family::BOTH {
        let to = |header| judge_chain(name, family, header);
        let protocol = || RuleBuilder::new().family(family).meta(MetaKey::L4Proto, 0);
        rules.push(protocol().in_set(L4_PORTS, 0).goto(&to(L4Fields::Ports)));
        rules.push(protocol().in_set(L4_ICMP, 0).goto(&to(L4Fields::Icmp)));
        rules.push(RuleBuilder::new().family(family).goto(&to(L4Fields::Other)));
    }
    rules
}

fn judge_chain(name: &str, family: Family, header: L4Fields) -> String {
    format!("{name}{}_{}", family_digit(family), header.letter())
}

fn judge_chains(
    config: &Config,
    name: &str,
    judged: (PacketSide, PolicyStage),
    lookup: (Direction, TupleFields),
) -> Vec<(Str, Chain)> {
    let families = Family::BOTH.into_iter();
    let kinds = families.flat_map(|family| L4Fields::ALL.map(|header| (family, header)));
    let chains = kinds.map(|(family, header)| {
        let mut rules = lookup_rules(config, judged, lookup, family, header);
        // There is no point for this direction.
        rules.push(RuleBuilder::new().verdict(continue_verdict(None)));
        chain(&judge_chain(name, family, header), None, rules)
    });
    chains.collect()
}

/// The rules for flows to failsafe ports, and for their replies.
fn untracked_failsafe_rules(side: PacketSide) -> Vec<NftRule> {
    if NftFault::FailsafeIgnored.is_injected() {
        return Vec::new();
    }
    let (direction, opposite) = match side {
        PacketSide::Arriving => (Direction::Ingress, Direction::Egress),
        PacketSide::Leaving => (Direction::Egress, Direction::Ingress),
    };
    let mut rules = Vec::new();
    for family in Family::BOTH {
        for (direction, fields) in [
            (direction, TupleFields::Packet(Orientation::Original)),
            (opposite, TupleFields::Packet(Orientation::Reply)),
        ] {
            let is_destination = side == PacketSide::Leaving;
            let line = RuleBuilder::new().family(family);
            rules.push(failsafe_rule(
                line,
                (direction, fields),
                family,
                is_destination,
            ));
        }
    }
    rules
}

/// The rule that accepts packets of flows to failsafe ports of a direction; the other end is the destination or the
/// source of what the fields are of.
fn failsafe_rule(
    line: RuleBuilder,
    (direction, fields): (Direction, TupleFields),
    family: Family,
    peer_is_destination: bool,
) -> NftRule {
    let line = fields.load_port(line.meta(MetaKey::L4Proto, 0), 1);
    fields
        .load_address(line, family, peer_is_destination, 2)
        .in_set(names::failsafe_set(family, direction), 0)
        .verdict(NftVerdict::Accept)
}

/// The chains of [`PolicyStage::PreDnat`], in an order in which each can be deleted.
pub(crate) fn pre_dnat_chains(config: &Config) -> Vec<(Str, Chain)> {
    let judged = |side| judged_interface(config, side, PolicyStage::PreDnat);
    let (arriving, leaving) = (PacketSide::Arriving, PacketSide::Leaving);
    let base = |hook| filter_base_chain(hook, PRE_DNAT_PRIORITY);
    let mut out = vec![chain(
        PRE_DNAT_MARKER,
        base(Hook::Input),
        vec![judged(arriving).goto("p_dnat_in")],
    )];
    let judged_leaving = || judged(leaving).goto("p_dnat_out");
    out.extend(own_stack_chains("p_dnat", &base, &judged_leaving));
    out.push(chain(
        "p_dnat_forward",
        base(Hook::Forward),
        // A packet is judged on one side, so one of its interfaces is looked up.
        vec![
            replies().goto("p_dnat_back"),
            judged(arriving).goto("p_dnat_through"),
        ],
    ));
    out.extend(pre_dnat_flow_chains(config));
    for side in [arriving, leaving] {
        let name = side_chain(side, PolicyStage::PreDnat);
        let orientation = orientation_of(side);
        let packet = TupleFields::Packet(orientation);
        let connection = if NftFault::PreDnatAfterDnat.is_injected() {
            packet
        } else {
            TupleFields::Connection(orientation)
        };
        let (of_packet, of_connection) = (format!("{name}_p"), format!("{name}_c"));
        let mut rules = Vec::new();
        if !config.sctp_tracked {
            // Its connection has no ports.
            let sctp = RuleBuilder::new().protocol(Protocol::SCTP);
            rules.push(sctp.goto(&of_packet));
        }
        rules.extend([
            tracked().goto(&of_connection),
            RuleBuilder::new().goto(&of_packet),
        ]);
        out.push(chain(&name, None, rules));
        for (name, fields) in [(of_packet, packet), (of_connection, connection)] {
            out.push(chain(&name, None, header_rules(&name)));
            let lookup = (Direction::Ingress, fields);
            out.extend(judge_chains(
                config,
                &name,
                (side, PolicyStage::PreDnat),
                lookup,
            ));
        }
    }
    out
}

/// The direction of the packets that are judged before destination NAT on a side: those that begin flows as they
/// arrive, and replies as they leave.
fn orientation_of(side: PacketSide) -> Orientation {
    match side {
        PacketSide::Arriving => Orientation::Original,
        PacketSide::Leaving => Orientation::Reply,
    }
}

fn replies() -> RuleBuilder {
    RuleBuilder::new().state(ct_state::ESTABLISHED).reply()
}

fn tracked() -> RuleBuilder {
    RuleBuilder::new().state(ct_state::NEW | ct_state::ESTABLISHED)
}

/// The chains that lead flows to their judgement, and what was allowed on.
fn pre_dnat_flow_chains(config: &Config) -> Vec<(Str, Chain)> {
    let (arriving, leaving) = (PacketSide::Arriving, PacketSide::Leaving);
    let bit = config.packet_mark.early_stage;
    let clear = || RuleBuilder::new().set_packet_mark(bit, false).build();
    // Not tracked, and so not judged here either.
    let untracked = || {
        RuleBuilder::new()
            .state(ct_state::UNTRACKED)
            .packet_mark(bit)
            .and(judged_interface(config, arriving, PolicyStage::Untracked))
            .verdict(NftVerdict::Accept)
    };
    let mut input = vec![
        fast_path_rule(config),
        untracked(),
        clear(),
        replies().verdict(NftVerdict::Accept),
        link_rule(),
    ];
    input.extend(judged_rules(arriving));
    input.push(not_decided_rule(config, NftVerdict::Accept));
    input.push(
        RuleBuilder::new()
            .set_packet_mark(bit, true)
            .verdict(NftVerdict::Accept),
    );
    let output = vec![fast_path_rule(config), replies().goto("p_dnat_reply")];
    let mut reply = vec![clear()];
    reply.extend(judged_rules(leaving));
    reply.push(not_decided_rule(config, NftVerdict::Accept));
    reply.push(
        RuleBuilder::new()
            .set_packet_mark(bit, true)
            .verdict(NftVerdict::Accept),
    );
    let mut through = vec![fast_path_rule(config), untracked(), clear()];
    through.extend(judged_rules(arriving));
    through.extend(forward_end_rules(config, arriving));
    let back =
        vec![judged_interface(config, leaving, PolicyStage::PreDnat).goto("p_dnat_back_reply")];
    let mut back_reply = vec![fast_path_rule(config), clear()];
    back_reply.extend(judged_rules(leaving));
    back_reply.extend(forward_end_rules(config, leaving));
    let mut end = Vec::new();
    for side in [arriving, leaving] {
        end.push(judged_interface(config, side, PolicyStage::Forward).verdict(NftVerdict::Accept));
        // The chains of workloads follow, and set the mark themselves.
        let key = side.interface_key();
        end.extend(own_interface_rules(config, key, |line| {
            line.verdict(NftVerdict::Accept)
        }));
    }
    end.push(
        RuleBuilder::new()
            .state(ct_state::RELATED)
            .verdict(NftVerdict::Accept),
    );
    end.push(RuleBuilder::new().goto("p_mark"));
    vec![
        chain("p_dnat_in", None, input),
        chain("p_dnat_out", None, output),
        chain("p_dnat_reply", None, reply),
        chain("p_dnat_through", None, through),
        chain("p_dnat_back", None, back),
        chain("p_dnat_back_reply", None, back_reply),
        chain("p_dnat_end", None, end),
    ]
}

/// The rules that judge a side, failsafe ports first.
fn judged_rules(side: PacketSide) -> Vec<NftRule> {
    let mut rules = Vec::new();
    let orientation = orientation_of(side);
    for family in Family::BOTH {
        if NftFault::FailsafeIgnored.is_injected() {
            break;
        }
        let others = ct_state::UNTRACKED | ct_state::RELATED | ct_state::INVALID;
        let connection = (Direction::Ingress, TupleFields::Connection(orientation));
        rules.push(failsafe_rule(
            tracked().family(family),
            connection,
            family,
            false,
        ));
        if side == PacketSide::Arriving {
            let packet = (Direction::Ingress, TupleFields::Packet(orientation));
            let line = RuleBuilder::new().state(others).family(family);
            rules.push(failsafe_rule(line, packet, family, false));
            // From the middle of a flow of this host to such a port: what is no SYN opens no connection.
            let syn = tcp_flag::SYN | tcp_flag::ACK;
            let line = tracked().original().family(family);
            let line = line.tcp_flags(syn, CmpOp::Neq, tcp_flag::SYN);
            let answer = (Direction::Egress, TupleFields::Packet(Orientation::Reply));
            rules.push(failsafe_rule(line, answer, family, false));
        }
    }
    rules.push(RuleBuilder::new().jump(&side_chain(side, PolicyStage::PreDnat)));
    rules
}

/// The end of what is forwarded: what is allowed gets the bit where a stage follows that judges this side.
fn forward_end_rules(config: &Config, side: PacketSide) -> Vec<NftRule> {
    let bit = config.packet_mark.early_stage;
    vec![
        not_decided_rule(config, NftVerdict::Goto("p_dnat_end".into())),
        judged_interface(config, side, PolicyStage::Forward)
            .set_packet_mark(bit, true)
            .verdict(NftVerdict::Accept),
        RuleBuilder::new().goto("p_dnat_end"),
    ]
}

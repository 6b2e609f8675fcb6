//! The fixed part of the table: chains and rules that never change while the agent runs (except the rule
//! that writes the generation), the empty maps, and their constant elements.
//!
//! Packets that neither arrive nor leave by our interfaces pass after one or two lookups, and are never
//! dropped. A packet of our interfaces is judged on its egress and its ingress side. One judgement is *one
//! rule*: peer → identity, point → policy set, class, and then the class's elements for the packet, the most
//! specific first, each with its verdict: the first match ends the rule. A class whose elements have no
//! default has a base, whose elements follow in the same way. No lookup can miss once the peer is known,
//! since each map has a catch-all element, and class 0, the class of an address without a point, has no
//! elements. So nothing is looked up twice, and a table that changes between two rules never gives a packet
//! a mixture of old and new.

use crate::answering;
use crate::early_stages;
use crate::hairpin::{self, has_hairpin_rule, packet_chains};
use crate::hook_rules::{
    fast_path_rule, filter_base_chain, judges_host_traffic, own_interface_rules,
};
use crate::host_chains;
use crate::judgement::{
    L4Fields, Orientation, address_field, family_digit, judge_chains, packet_chain_name,
};
use crate::midstream;
use crate::names::{self, CLASS_BASE, ICMP_REQUEST, IDENTITY_CLASS, L4_ICMP, L4_PORTS, LIVE_MARK};
use crate::names::{
    CODE_VERDICT, DISPATCH, DROP_VERDICT, GENERATION, ND_IN, ND_OUT, PENDING_REVOCATION, SET_CLASS,
};
use crate::names::{concat_fields, mark_bytes, zero_prefixed_marks};
use crate::nflog::{self, counted_drop_rule};
use crate::proof;
use crate::redirect;
use crate::rule::{RuleBuilder, chain, family_number};
use crate::translated;
use crate::{Chain, CmpOp, Config, CtKey, Element, ElementKey, Hook, MapValue, MetaKey, NftFault};
use crate::{NftRule, NftSet, NftVerdict, PayloadBase, Ruleset, ct_state};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, PolicyStage, Protocol, Str};
use palisade_tables::{
    AuditCell, Cell, ICMP_REPLIES, LOOPBACK, ReportReason, Verdict as Judgement,
};

/// The comment of the table. The number changes whenever the skeleton's meaning does.
pub const SCHEMA: &str = "palisade layout 13";

/// The table without endpoints: everything that depends on the configuration alone, and the generation that
/// accepted flows are marked with.
pub fn skeleton(config: &Config, generation: u32) -> Ruleset {
    let mut ruleset = Ruleset::empty(config.table.clone());
    ruleset.comment = Some(SCHEMA.into());
    ruleset.flags = config.table_flags();
    for (name, decl) in names::declarations() {
        let is_unused = config.judgement.judge_hairpin && names::is_of_hairpin(name)
            || name == DROP_VERDICT && !config.is_answering()
            || config.redirect.is_none()
                && [names::REDIRECT, names::REDIRECT_PORTS].contains(&name);
        if is_unused {
            continue;
        }
        let elements = BTreeMap::new();
        ruleset.sets.insert(name.into(), NftSet { decl, elements });
    }
    for (set, key, element) in constant_elements(config, generation) {
        if let Some(set) = ruleset.sets.get_mut(set) {
            set.elements.insert(key, element);
        }
    }
    let mut chains = base_chains(config);
    chains.extend(flow_chains(config, generation));
    chains.extend(nflog::chains(config));
    chains.extend(midstream::chains(config));
    chains.extend(translated::chains(config));
    chains.extend(early_stages::continue_chains(config));
    chains.extend(proof::chains(config));
    chains.extend(answering::chains(config));
    for direction in Direction::BOTH {
        for orientation in Orientation::BOTH {
            for family in Family::BOTH {
                chains.extend(judge_chains(config, direction, orientation, family));
                if has_hairpin_rule(config) {
                    chains.extend(hairpin::judge_chains(
                        config,
                        direction,
                        orientation,
                        family,
                    ));
                }
            }
        }
    }
    let chains = answering::separate_postrouting(config, chains, &mut ruleset.sets);
    ruleset.chains = chains.into_iter().collect();
    ruleset
}

/// The rule that writes the generation to the flow's mark, keeping other bits, and accepts.
pub(crate) fn generation_rule(config: &Config, generation: u32) -> NftRule {
    RuleBuilder::new()
        .set_ct_mark(config.generation_mask(), config.mark(generation))
        .verdict(NftVerdict::Accept)
}

/// The generation that a [`generation_rule`] writes; `None` for other rules.
pub(crate) fn generation_of(config: &Config, rule: &NftRule) -> Option<u32> {
    let crate::Expr::Bitwise { xor, .. } = rule.exprs.get(1)? else {
        return None;
    };
    let generation = config.generation(names::number_from_bytes(xor)?);
    (*rule == generation_rule(config, generation)).then_some(generation)
}

/// The elements that are always in the table.
fn constant_elements(config: &Config, generation: u32) -> Vec<(&'static str, ElementKey, Element)> {
    let mut out = point_defaults();
    out.extend(host_chains::failsafe_elements(config));
    out.extend(class_defaults());
    out.extend(code_verdict_elements(config));
    out.extend(midstream::verdict_elements());
    out.extend(dispatch_elements());
    let mut set = |name: &'static str, members: &[u8]| {
        for one in members {
            out.push((name, ElementKey::Exact([*one].into()), Element::default()));
        }
    };
    set(L4_PORTS, &Protocol::WITH_PORTS.map(|protocol| protocol.0));
    set(L4_ICMP, &[Protocol::ICMP.0, Protocol::ICMPV6.0]);
    // MLD queries, reports and done; router solicitation; neighbour solicitation and advertisement. What
    // only a router sends (advertisements, redirects) is accepted from this host only.
    set(ND_IN, &[130, 131, 132, 133, 135, 136, 143]);
    set(ND_OUT, &[130, 131, 132, 133, 134, 135, 136, 137, 143]);
    let live = config.mark(generation);
    out.push((
        LIVE_MARK,
        ElementKey::Exact(mark_bytes(live)),
        Element::default(),
    ));
    out.extend(icmp_reply_elements());
    out
}

/// An element that maps to a number.
fn number_element(number: u32) -> Element {
    Element {
        data: Some(MapValue::Value(mark_bytes(number))),
        ..Element::default()
    }
}

/// What an address without identity, an address without point and the loopback interface map to.
fn point_defaults() -> Vec<(&'static str, ElementKey, Element)> {
    let mut out = Vec::new();
    for family in Family::BOTH {
        let networks = names::network_map(family);
        out.push((networks, ElementKey::CatchAll, number_element(0)));
        for direction in Direction::BOTH {
            let points = names::point_map(family, direction);
            out.push((points, ElementKey::CatchAll, number_element(0)));
        }
    }
    for stage in PolicyStage::ALL {
        let loopback = ElementKey::Exact(names::interface_name(LOOPBACK));
        out.push((names::interface_map(stage), loopback, number_element(0)));
    }
    out
}

/// What a key without an entry maps to, in the maps of classes.
fn class_defaults() -> impl Iterator<Item = (&'static str, ElementKey, Element)> {
    let plain = [IDENTITY_CLASS, SET_CLASS, CLASS_BASE].map(|map| (map, number_element(0)));
    let counted = names::COUNTED.into_iter().map(|map| {
        let counter = Some(crate::CounterValue::default());
        let element = Element {
            counter,
            ..number_element(0)
        };
        (map, element)
    });
    let defaults = plain.into_iter().chain(counted);
    defaults.map(|(map, element)| (map, ElementKey::CatchAll, element))
}

/// The verdict of every code, in the hooks that can answer and in the others.
fn code_verdict_elements(config: &Config) -> Vec<(&'static str, ElementKey, Element)> {
    type CodeVerdict = fn(&Config, u32) -> NftVerdict;
    let maps: [(&'static str, CodeVerdict); 2] = [
        (CODE_VERDICT, answering_verdict),
        (DROP_VERDICT, code_verdict),
    ];
    let mut out = Vec::new();
    for (map, verdict_of) in maps {
        let mut push = |code, verdict| {
            let (_, key, element) = verdict_element(code, verdict);
            out.push((map, key, element));
        };
        push(0, NftVerdict::Continue);
        for code in 1..=names::LAST_VERDICT {
            push(code, verdict_of(config, code));
        }
        let element = Element {
            data: Some(MapValue::Verdict(nflog::final_verdict(
                config,
                ReportReason::NoPoint,
            ))),
            ..Element::default()
        };
        out.push((map, ElementKey::CatchAll, element));
    }
    out
}

/// The type of the ICMP request that each type of reply answers.
fn icmp_reply_elements() -> impl Iterator<Item = (&'static str, ElementKey, Element)> {
    ICMP_REPLIES.into_iter().map(|(protocol, reply, request)| {
        let request = if NftFault::ReplyNotTranslated.is_injected() {
            reply
        } else {
            request
        };
        let element = Element {
            data: Some(MapValue::Value([request].into())),
            ..Element::default()
        };
        let key = ElementKey::Exact(concat_fields(&[&[protocol], &[reply]]));
        (ICMP_REQUEST, key, element)
    })
}

/// The code of a cell in the class maps. A packet is reported once: a Log rule has precedence.
pub(crate) fn cell_code(cell: &Cell) -> u32 {
    let log = cell
        .log
        .filter(|_| !NftFault::LogRuleForgotten.is_injected());
    let audit = cell
        .audit_report()
        .filter(|_| !NftFault::AuditReportForgotten.is_injected());
    let reported = match (log, audit) {
        (Some(Direction::Ingress), _) => Some(names::LOG_INGRESS),
        (Some(Direction::Egress), _) => Some(names::LOG_EGRESS),
        (None, Some(Direction::Ingress)) => Some(names::AUDIT_INGRESS),
        (None, Some(Direction::Egress)) => Some(names::AUDIT_EGRESS),
        (None, None) => None,
    };
    match cell.verdict {
        // Denied packets are always reported.
        Judgement::Deny => names::DENY,
        Judgement::Allow => reported.unwrap_or(names::ALLOW),
        Judgement::Continue => {
            reported.map_or(names::CONTINUE, |code| code + names::CONTINUE_REPORTED)
        }
    }
}

/// The cell of a code as far as the kernel has it, without its causes; `None` for the
/// code of a source-port chain.
pub(crate) fn code_cell(code: u32) -> Option<Cell> {
    let (verdict, code) = match code {
        names::CONTINUE => (Judgement::Continue, names::ALLOW),
        _ if (names::CONTINUE..=names::LAST_VERDICT).contains(&code) => {
            (Judgement::Continue, code - names::CONTINUE_REPORTED)
        }
        names::DENY => (Judgement::Deny, code),
        code => (Judgement::Allow, code),
    };
    let (log, audit) = match code {
        names::DENY | names::ALLOW => (None, None),
        names::LOG_INGRESS => (Some(Direction::Ingress), None),
        names::LOG_EGRESS => (Some(Direction::Egress), None),
        names::AUDIT_INGRESS => (None, Some(Direction::Ingress)),
        names::AUDIT_EGRESS => (None, Some(Direction::Egress)),
        _ => return None,
    };
    let audit = audit.map(|direction| {
        Box::new(AuditCell {
            direction,
            verdict: Judgement::Deny,
            causes: Vec::new(),
        })
    });
    Some(Cell {
        verdict,
        causes: Vec::new(),
        log,
        audit,
        redirect: None,
    })
}

/// The verdict of a code; source-port codes and invalid ones deny.
pub(crate) fn code_verdict(config: &Config, code: u32) -> NftVerdict {
    let Some(cell) = code_cell(code).filter(|cell| cell.verdict.passes()) else {
        return nflog::final_verdict(config, ReportReason::Denied);
    };
    let logged = cell.log.map(ReportReason::Logged);
    let audited = || cell.audit_report().map(ReportReason::Audited);
    let reason = logged.or_else(audited);
    match (cell.verdict, reason) {
        (Judgement::Continue, reason) => early_stages::continue_verdict(reason),
        (_, Some(reason)) => nflog::final_verdict(config, reason),
        (_, None) => NftVerdict::Return,
    }
}

/// The verdict of a code in the hooks that can answer.
pub(crate) fn answering_verdict(config: &Config, code: u32) -> NftVerdict {
    if config.is_answering() && code == names::DENY {
        nflog::final_verdict(config, ReportReason::Rejected)
    } else {
        code_verdict(config, code)
    }
}

/// The element that maps a code to its verdict: code 0 continues with the next map, the code of a
/// source-port chain goes to that chain.
pub(crate) fn verdict_element(
    code: u32,
    verdict: NftVerdict,
) -> (&'static str, ElementKey, Element) {
    let element = Element {
        data: Some(MapValue::Verdict(verdict)),
        ..Element::default()
    };
    (CODE_VERDICT, zero_prefixed_marks(&[code]), element)
}

/// The elements that dispatch a packet of a connection to the chain for its direction, family and header in
/// one lookup. Other packets get there by the rules that follow.
fn dispatch_elements() -> Vec<(&'static str, ElementKey, Element)> {
    let mut out = Vec::new();
    for state in [ct_state::NEW, ct_state::ESTABLISHED] {
        for orientation in Orientation::BOTH {
            for family in Family::BOTH {
                let icmp = match family {
                    Family::V4 => Protocol::ICMP,
                    Family::V6 => Protocol::ICMPV6,
                };
                for protocol in Protocol::WITH_PORTS.into_iter().chain([icmp]) {
                    let chain = match protocol {
                        Protocol::TCP => midstream::tcp_entry_chain(orientation, family),
                        _ if protocol == icmp => {
                            packet_chain_name(orientation, family, L4Fields::Icmp)
                        }
                        _ => packet_chain_name(orientation, family, L4Fields::Ports),
                    };
                    let direction = [u8::from(orientation == Orientation::Reply)];
                    let family = [family_number(family)];
                    let fields: [&[u8]; 4] =
                        [&mark_bytes(state), &direction, &family, &[protocol.0]];
                    let element = Element {
                        data: Some(MapValue::Verdict(NftVerdict::Goto(chain.as_str().into()))),
                        ..Element::default()
                    };
                    out.push((DISPATCH, ElementKey::Exact(concat_fields(&fields)), element));
                }
            }
        }
    }
    out
}

/// The base chains.
fn base_chains(config: &Config) -> Vec<(Str, Chain)> {
    use MetaKey::{IifName, OifName};
    let nd = |key, icmp_types| {
        RuleBuilder::new()
            .family(Family::V6)
            .meta(MetaKey::L4Proto, 0)
            .cmp(0, CmpOp::Eq, &[Protocol::ICMPV6.0])
            .payload(PayloadBase::Transport, 0, 1, 0)
            .in_set(icmp_types, 0)
            .own_interface(key)
            .verdict(NftVerdict::Accept)
    };
    let own_interface_jumps =
        |key, chain: &str| own_interface_rules(config, key, |line| line.goto(chain));
    let mut raw: Vec<NftRule> = proof::untrack_rule(config).into_iter().collect();
    if !NftFault::SpoofCheckSkipped.is_injected() {
        raw.extend(own_interface_jumps(IifName, "p_source"));
        if !NftFault::ForeignSpoofAccepted.is_injected() {
            raw.extend(Family::BOTH.map(|family| foreign_spoof_rule(config, family)));
        }
    }
    let mut forward = vec![fast_path_rule(config)];
    forward.extend(proof::forward_rule(config));
    forward.extend(own_interface_jumps(IifName, "p_flow"));
    forward.extend(own_interface_jumps(OifName, "p_flow"));
    let mut input = vec![fast_path_rule(config), nd(IifName, ND_IN)];
    input.extend(own_interface_jumps(IifName, "p_input_ours"));
    let mut output = vec![fast_path_rule(config), nd(OifName, ND_OUT)];
    output.extend(own_interface_jumps(OifName, "p_output_ours"));

    let reply = |state| RuleBuilder::new().state(state).reply();
    let (input_ours, output_ours) = if judges_host_traffic(config) {
        let judge = || RuleBuilder::new().goto("p_flow");
        let mut output: Vec<NftRule> = proof::error_rule(config).into_iter().collect();
        output.extend([translated::defer_rule(), judge()]);
        (vec![judge()], output)
    } else {
        // Packets of this host's own stack are allowed, and so are the replies to them; but this host's
        // replies to an endpoint are subject to the endpoint's egress policy.
        let input = vec![
            reply(ct_state::ESTABLISHED).goto("p_mark"),
            reply(ct_state::RELATED).verdict(NftVerdict::Accept),
            midstream::host_rule(),
            RuleBuilder::new().goto("p_flow"),
        ];
        let output = vec![
            midstream::host_output_rule(config),
            midstream::host_rule(),
            reply(ct_state::ESTABLISHED).goto("p_flow"),
            RuleBuilder::new()
                .state(ct_state::NEW | ct_state::ESTABLISHED)
                .goto("p_mark"),
            RuleBuilder::new().verdict(NftVerdict::Accept),
        ];
        (input, output)
    };
    let mut input_rules: Vec<NftRule> = redirect::own_jump(config, Hook::Input)
        .into_iter()
        .collect();
    input_rules.extend(input_ours);
    let mut output_rules: Vec<NftRule> = redirect::own_jump(config, Hook::Output)
        .into_iter()
        .collect();
    output_rules.extend(answering::own_answer_rules(config));
    output_rules.extend(output_ours);
    let mut chains = vec![
        chain("p_raw", filter_base_chain(Hook::Prerouting, -300), raw),
        chain("p_source", None, source_rules(config)),
        chain("p_forward", filter_base_chain(Hook::Forward, 0), forward),
        chain("p_input", filter_base_chain(Hook::Input, 0), input),
        chain("p_output", filter_base_chain(Hook::Output, 0), output),
        chain("p_input_ours", None, input_rules),
        chain("p_output_ours", None, output_rules),
    ];
    chains.extend(redirect::empty_own_chains(config));
    chains
}

/// Anti-spoofing: packets from other interfaces never have an endpoint's source address. Loopback is exempt:
/// its packets come from this host's own stack, for example from a proxy that keeps its client's address.
fn foreign_spoof_rule(config: &Config, family: Family) -> NftRule {
    let (offset, len) = address_field(family, false);
    let line = RuleBuilder::new()
        .family(family)
        .payload(PayloadBase::Network, offset, len, 0)
        .in_set(names::local_addresses_set(family), 0)
        .meta(MetaKey::IifName, 0)
        .cmp(0, CmpOp::Neq, &names::interface_name(LOOPBACK));
    counted_drop_rule(config, line, ReportReason::Spoofed)
}

/// Anti-spoofing: an endpoint sends from its own addresses; neighbour discovery also from a link-local or
/// the unspecified address.
fn source_rules(config: &Config) -> Vec<NftRule> {
    let own = |family| {
        let (offset, len) = address_field(family, false);
        RuleBuilder::new()
            .family(family)
            .meta(MetaKey::IifName, 0)
            .payload(PayloadBase::Network, offset, len, 4)
            .map_lookup(names::point_map(family, Direction::Egress), 0, 8)
            .cmp(8, CmpOp::Neq, &[0; 4])
            .verdict(NftVerdict::Accept)
    };
    let on_link = |mask: [u8; 16], source: [u8; 16]| {
        RuleBuilder::new()
            .family(Family::V6)
            .meta(MetaKey::L4Proto, 0)
            .cmp(0, CmpOp::Eq, &[Protocol::ICMPV6.0])
            .payload(PayloadBase::Transport, 0, 1, 0)
            .in_set(ND_IN, 0)
            .payload(PayloadBase::Network, 8, 16, 0)
            .bitwise(0, &mask, &[0; 16])
            .cmp(0, CmpOp::Eq, &source)
            .verdict(NftVerdict::Accept)
    };
    let mut link_local = ([0; 16], [0; 16]);
    link_local.0[..2].copy_from_slice(&[0xff, 0xc0]);
    link_local.1[..2].copy_from_slice(&[0xfe, 0x80]);
    vec![
        own(Family::V4),
        own(Family::V6),
        on_link(link_local.0, link_local.1),
        on_link([0xff; 16], [0; 16]),
        counted_drop_rule(
            config,
            RuleBuilder::new()
                .meta(MetaKey::IifName, 0)
                .not_in_set(names::IF_OURS, 0),
            ReportReason::UnknownInterface,
        ),
        counted_drop_rule(config, RuleBuilder::new(), ReportReason::Spoofed),
    ]
}

/// The chains that dispatch by direction of a flow, and those after both judgements.
fn flow_chains(config: &Config, generation: u32) -> Vec<(Str, Chain)> {
    let mut mark = Vec::new();
    if !config.sctp_tracked {
        mark.push(
            RuleBuilder::new()
                .meta(MetaKey::L4Proto, 0)
                .cmp(0, CmpOp::Eq, &[Protocol::SCTP.0])
                .verdict(NftVerdict::Accept),
        );
    }
    mark.push(RuleBuilder::new().goto(GENERATION));
    let mut chains = vec![
        chain("p_flow", None, dispatch_rules()),
        chain("p_odd", None, odd_packet_rules(config)),
        chain("p_mark", None, mark),
        chain(GENERATION, None, vec![generation_rule(config, generation)]),
    ];
    for family in Family::BOTH {
        for orientation in Orientation::BOTH {
            chains.extend(header_chains(config, family, orientation));
        }
        let (original, end) = (Orientation::Original, NftVerdict::Accept);
        let name = format!("p_x{}", family_digit(family));
        let way = (family, L4Fields::Icmp);
        chains.extend(packet_chains(config, &name, original, way, end));
    }
    chains
}

/// The rules that lead a packet to the chain for its direction, family and header.
fn dispatch_rules() -> Vec<NftRule> {
    use Family::V4;
    let mut flow = vec![
        RuleBuilder::new()
            .ct(CtKey::State, 0)
            .ct(CtKey::Direction, 1)
            .meta(MetaKey::NfProto, 2)
            .meta(MetaKey::L4Proto, 3)
            .vmap(DISPATCH, 0),
        // Invalid, related or untracked packets, and other protocols.
        RuleBuilder::new()
            .state(ct_state::INVALID | ct_state::RELATED)
            .goto("p_odd"),
        RuleBuilder::new().reply().family(V4).goto("p_r4"),
        RuleBuilder::new().reply().goto("p_r6"),
        RuleBuilder::new().family(V4).goto("p_o4"),
        RuleBuilder::new().goto("p_o6"),
    ];
    if NftFault::InvalidAccepted.is_injected() {
        let accept = RuleBuilder::new().state(ct_state::INVALID);
        flow.insert(0, accept.verdict(NftVerdict::Accept));
    }
    flow
}

/// The rules for invalid and related packets.
///
/// An ICMP error carries the connection of the flow that it is about: it passes with that flow. Otherwise
/// it is judged as a flow of its own, and never writes the other flow's mark. A connection expected by a
/// conntrack helper is no error, and is judged like any new flow.
fn odd_packet_rules(config: &Config) -> Vec<NftRule> {
    use Family::V4;
    let icmp = || {
        RuleBuilder::new()
            .meta(MetaKey::L4Proto, 0)
            .in_set(L4_ICMP, 0)
    };
    let related = || RuleBuilder::new().state(ct_state::RELATED);
    let live = if NftFault::RelatedAccepted.is_injected() {
        icmp().verdict(NftVerdict::Accept)
    } else {
        icmp()
            .ct(CtKey::Mark, 0)
            .bitwise(0, &config.generation_mask().to_ne_bytes(), &[0; 4])
            .in_set(LIVE_MARK, 0)
            .verdict(NftVerdict::Accept)
    };
    vec![
        live,
        icmp().family(V4).goto("p_x4"),
        icmp().goto("p_x6"),
        related().family(V4).goto("p_o4"),
        related().goto("p_o6"),
        counted_drop_rule(config, RuleBuilder::new(), ReportReason::Invalid),
    ]
}

/// The chains that judge packets of a family and an orientation, and the one that selects among them by header.
fn header_chains(config: &Config, family: Family, orientation: Orientation) -> Vec<(Str, Chain)> {
    let name = |header| packet_chain_name(orientation, family, header);
    let mut chains = Vec::new();
    for header in L4Fields::ALL {
        let end = NftVerdict::Goto("p_mark".into());
        let way = (family, header);
        chains.extend(packet_chains(config, &name(header), orientation, way, end));
    }
    let protocol = || RuleBuilder::new().meta(MetaKey::L4Proto, 0);
    let by_header = vec![
        protocol().in_set(L4_PORTS, 0).goto(&name(L4Fields::Ports)),
        protocol().in_set(L4_ICMP, 0).goto(&name(L4Fields::Icmp)),
        RuleBuilder::new().goto(&name(L4Fields::Other)),
    ];
    let letter = orientation.letter();
    let name = format!("p_{letter}{}", family_digit(family));
    chains.push(chain(&name, None, by_header));
    chains
}

/// The element of a pending revocation: tables are tightened, and the generation is not yet raised.
pub(crate) fn pending_revocation() -> (&'static str, ElementKey, Element) {
    (
        PENDING_REVOCATION,
        ElementKey::Exact(mark_bytes(1)),
        Element::default(),
    )
}

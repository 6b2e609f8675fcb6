//! Mid-stream TCP flows: flows that existed before they were tracked or judged.
//!
//! Connection tracking takes the first packet that it sees of such a flow for the flow's first packet, so
//! the initiator is not known. The packet passes if policy allows it in *either* direction; the flow's mark
//! keeps a bit for this, because the flow is judged again with each revocation. This permits no new
//! connection: every connection is opened by a SYN, and a SYN is always judged in its own direction. An
//! allowed SYN also makes the flow an ordinary one. A SYN on a mid-stream flow is never accepted by the
//! flow's mark, because connection tracking lets SYNs pass that it means to ignore.
//!
//! A flow whose mark is 0 was never judged. A flow that was tracked before the table existed is marked
//! beforehand ([`Config::stale_generation`]), and keeps its tracked direction.
//!
//! A denial of the direction tried first must not drop the packet. So that trial has verdict maps of its
//! own, in which denial returns; then the tracked direction is judged as usual. The trial is not reported.
//! Where source ports decide (source-port chains), the trial counts as denied, and so it does for hairpin traffic.

use crate::hairpin::{hairpin_rule, has_hairpin_rule, packet_chains};
use crate::hook_rules::{judges_host_traffic, own_interface_rules};
use crate::judgement::{
    L4Fields, Orientation, endpoint_interface_key, judgement_rule, packet_chain_name,
};
use crate::names::{self, LAST_TRIAL, LIVE_MARK, TRIAL_VERDICTS, zero_prefixed_marks};
use crate::nflog::counted_drop_rule;
use crate::rule::{RuleBuilder, chain};
use crate::{
    Chain, CmpOp, Config, CtKey, Element, ElementKey, MapValue, MetaKey, NftFault, NftRule,
    NftVerdict, ct_state, tcp_flag,
};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Protocol, Str};
use palisade_tables::ReportReason;

/// A trial: the orientation and family in which a packet is judged first.
#[derive(Clone, Copy)]
pub(crate) struct MidstreamTrial {
    orientation: Orientation,
    family: Family,
    /// The verdict map of the egress side: allow continues with the ingress side.
    pub(crate) verdict_map: &'static str,
}

const fn trial(orientation: Orientation, family: Family, next: &'static str) -> MidstreamTrial {
    MidstreamTrial {
        orientation,
        family,
        verdict_map: next,
    }
}

/// All trials.
pub(crate) const TRIALS: [MidstreamTrial; 4] = [
    trial(Orientation::Original, Family::V4, TRIAL_VERDICTS[0]),
    trial(Orientation::Original, Family::V6, TRIAL_VERDICTS[1]),
    trial(Orientation::Reply, Family::V4, TRIAL_VERDICTS[2]),
    trial(Orientation::Reply, Family::V6, TRIAL_VERDICTS[3]),
];

impl MidstreamTrial {
    /// The name of a chain of this trial: `p_try_`, the letter, and the suffix of the verdict map.
    fn chain_name(self, letter: &str) -> String {
        let way = self.verdict_map.trim_start_matches("p_either_");
        format!("p_try_{letter}{way}")
    }
}

/// The entry chain for TCP of a connection: it returns packets that need no trial.
pub(crate) fn tcp_entry_chain(orientation: Orientation, family: Family) -> String {
    format!(
        "{}_tcp",
        packet_chain_name(orientation, family, L4Fields::Ports)
    )
}

/// The rule for packets from or to this host's own stack, where those are not subject to policy: one of the
/// two directions is always allowed.
pub(crate) fn host_rule() -> NftRule {
    RuleBuilder::new()
        .protocol(Protocol::TCP)
        .state(ct_state::NEW | ct_state::ESTABLISHED)
        .jump("p_older_host")
}

/// The rule for packets from this host's own stack, where those are not subject to policy: even a SYN
/// passes.
pub(crate) fn host_output_rule(config: &Config) -> NftRule {
    let bit = config.midstream_bit();
    RuleBuilder::new()
        .protocol(Protocol::TCP)
        .state(ct_state::NEW | ct_state::ESTABLISHED)
        .ct_mark(bit, CmpOp::Eq, bit)
        .goto("p_mark")
}

/// The constant elements of the verdict maps.
pub(crate) fn verdict_elements() -> Vec<(&'static str, ElementKey, Element)> {
    let element = |verdict| Element {
        data: Some(MapValue::Verdict(verdict)),
        ..Element::default()
    };
    let mut out = Vec::new();
    let mut map = |name: &'static str, allowed: Str| {
        out.push((
            name,
            zero_prefixed_marks(&[0]),
            element(NftVerdict::Continue),
        ));
        for code in names::ALLOWING {
            let allowed = NftVerdict::Goto(allowed.clone());
            out.push((name, zero_prefixed_marks(&[code]), element(allowed)));
        }
        out.push((name, ElementKey::CatchAll, element(NftVerdict::Return)));
    };
    for way in TRIALS {
        map(way.verdict_map, way.chain_name("n").as_str().into());
    }
    map(LAST_TRIAL, "p_mark".into());
    out
}

/// The chains for mid-stream flows.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let mut chains = state_chains(config);
    if !judges_host_traffic(config) {
        chains.push(host_chain(config));
    }
    for (name, family) in [("p_open4", Family::V4), ("p_open6", Family::V6)] {
        let end = NftVerdict::Goto("p_opened".into());
        let fields = (family, L4Fields::Ports);
        let opening = packet_chains(config, name, Orientation::Original, fields, end);
        chains.extend(opening);
    }
    chains.extend(TRIALS.map(entry_chain));
    chains.push(either_chain());
    for trial in TRIALS {
        chains.extend(trial_chains(config, trial));
    }
    chains
}

/// Continues only with a mid-stream flow.
fn midstream(config: &Config) -> RuleBuilder {
    let bit = config.midstream_bit();
    RuleBuilder::new().ct_mark(bit, CmpOp::Eq, bit)
}

/// Continues only with a flow that was never judged, and not with a SYN.
fn never_judged(config: &Config) -> RuleBuilder {
    RuleBuilder::new()
        .ct_mark(config.ct_mark_mask, CmpOp::Eq, 0)
        .tcp_flags(tcp_flag::SYN, CmpOp::Eq, 0)
}

/// The chains that tell mid-stream flows from others, and set and clear the bit of the mark.
fn state_chains(config: &Config) -> Vec<(Str, Chain)> {
    let bit = config.midstream_bit();
    let live = RuleBuilder::new()
        .ct(CtKey::Mark, 0)
        .bitwise(0, &config.generation_mask().to_ne_bytes(), &[0; 4])
        .in_set(LIVE_MARK, 0)
        .verdict(NftVerdict::Accept);
    let opens =
        || RuleBuilder::new().tcp_flags(tcp_flag::SYN | tcp_flag::ACK, CmpOp::Eq, tcp_flag::SYN);
    let mut midstream_rules = vec![
        // Connection tracking itself calls such a packet invalid.
        counted_drop_rule(config, opens().reply(), ReportReason::Invalid),
        opens().family(Family::V4).goto("p_open4"),
        opens().goto("p_open6"),
        live,
        RuleBuilder::new().goto("p_either"),
    ];
    if NftFault::MidstreamSynAccepted.is_injected() {
        midstream_rules.drain(..3);
    }
    let entry = vec![
        midstream(config).goto("p_older"),
        never_judged(config).goto("p_midway"),
    ];
    let set = RuleBuilder::new().set_ct_mark(bit, bit).goto("p_either");
    let clear = RuleBuilder::new().set_ct_mark(bit, 0).goto("p_mark");
    vec![
        chain("p_tcp", None, entry),
        chain("p_older", None, midstream_rules),
        chain("p_midway", None, vec![set]),
        chain("p_opened", None, vec![clear]),
    ]
}

/// The chain for packets from or to this host's own stack, where those are not subject to policy.
fn host_chain(config: &Config) -> (Str, Chain) {
    let bit = config.midstream_bit();
    let rules = vec![
        midstream(config)
            .tcp_flags(tcp_flag::SYN | tcp_flag::ACK, CmpOp::Neq, tcp_flag::SYN)
            .goto("p_mark"),
        never_judged(config).set_ct_mark(bit, bit).goto("p_mark"),
    ];
    chain("p_older_host", None, rules)
}

/// The entry chain of a trial's orientation and family.
fn entry_chain(trial: MidstreamTrial) -> (Str, Chain) {
    let (orientation, family) = (trial.orientation, trial.family);
    let judged = packet_chain_name(orientation, family, L4Fields::Ports);
    let rules = vec![
        RuleBuilder::new().jump("p_tcp"),
        RuleBuilder::new().goto(&judged),
    ];
    chain(&tcp_entry_chain(orientation, family), None, rules)
}

/// The chain that tries the direction opposite to the tracked one, and then judges the tracked one.
fn either_chain() -> (Str, Chain) {
    let mut rules = Vec::new();
    for trial in TRIALS {
        let untracked_direction = match trial.orientation {
            Orientation::Original => RuleBuilder::new().reply(),
            Orientation::Reply => RuleBuilder::new().original(),
        };
        rules.push(
            untracked_direction
                .family(trial.family)
                .jump(&trial.chain_name("")),
        );
    }
    if NftFault::MidstreamJudgedOneWay.is_injected() {
        rules.clear();
    }
    let packet_chain =
        |orientation, family| packet_chain_name(orientation, family, L4Fields::Ports);
    let (original, reply) = (Orientation::Original, Orientation::Reply);
    rules.extend([
        RuleBuilder::new()
            .reply()
            .family(Family::V4)
            .goto(&packet_chain(reply, Family::V4)),
        RuleBuilder::new()
            .reply()
            .goto(&packet_chain(reply, Family::V6)),
        RuleBuilder::new()
            .family(Family::V4)
            .goto(&packet_chain(original, Family::V4)),
        RuleBuilder::new().goto(&packet_chain(original, Family::V6)),
    ]);
    chain("p_either", None, rules)
}

/// The chains of one trial: they return if it denies.
fn trial_chains(config: &Config, way: MidstreamTrial) -> Vec<(Str, Chain)> {
    let mut chains = Vec::new();
    let mut side = |direction, letter: &str, entry: &str, verdicts: &str, next: &str| {
        let interface: MetaKey = endpoint_interface_key(direction, way.orientation);
        let judge_chain = way.chain_name(letter);
        let mut rules = Vec::new();
        if has_hairpin_rule(config) && direction == Direction::Egress {
            rules.push(hairpin_rule(way.family, NftVerdict::Return));
        }
        rules.extend(own_interface_rules(config, interface, |line| {
            line.goto(&judge_chain)
        }));
        rules.push(RuleBuilder::new().goto(next));
        chains.push(chain(entry, None, rules));
        let judged = (direction, way.orientation);
        let rule = |ids| {
            judgement_rule(
                judged,
                way.family,
                L4Fields::Ports,
                ids,
                (verdicts, NftVerdict::Return),
            )
        };
        let rules = vec![
            rule(names::host_map(way.family)),
            rule(names::network_map(way.family)),
        ];
        chains.push(chain(&judge_chain, None, rules));
    };
    let next = way.chain_name("n");
    side(
        Direction::Egress,
        "e",
        &way.chain_name(""),
        way.verdict_map,
        &next,
    );
    side(Direction::Ingress, "i", &next, LAST_TRIAL, "p_mark");
    chains
}

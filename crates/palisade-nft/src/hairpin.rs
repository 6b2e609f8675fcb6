//! The chains that have a packet judged on its sides, and those that judge what a workload sends to itself through a
//! Service, at the points of hairpin traffic.
//!
//! Promises: a direction without such a point is not judged, and costs other packets nothing, since only the rule that
//! finds hairpin traffic leads here. A point is looked up before its judgement and within it, so a packet that sees the
//! point go in between is allowed, as without the point. Never: judges a side that is no
//! hairpin traffic's ([`crate::judgement`]).

use crate::hook_rules::own_interface_rules;
use crate::judgement::{
    L4Fields, Orientation, TupleFields, address_field, class_rule, endpoint_interface_key,
    endpoint_is_source, family_digit, judge_chain_name, load_identity,
};
use crate::names::{self, CODE_VERDICT};
use crate::nflog::{self, counted_drop_rule};
use crate::rule::{RuleBuilder, chain};
use crate::{Chain, CmpOp, Config, MetaKey, NftFault, NftRule, NftVerdict, PayloadBase};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Str};
use palisade_tables::ReportReason;

/// The chain of this name, which judges the sides that are ours and ends so if both allow, and that of hairpin traffic.
pub(crate) fn packet_chains(
    config: &Config,
    name: &str,
    orientation: Orientation,
    (family, header): (Family, L4Fields),
    allow_verdict: NftVerdict,
) -> Vec<(Str, Chain)> {
    let mut chains = Vec::new();
    let mut rules = Vec::new();
    if has_hairpin_rule(config) {
        let (hairpin, judgements) =
            hairpin_chain(name, orientation, (family, header), allow_verdict.clone());
        rules.push(hairpin_rule(family, NftVerdict::Goto(hairpin.clone())));
        chains.push((hairpin, judgements));
    }
    for direction in [Direction::Egress, Direction::Ingress] {
        let judge = judge_chain_name(direction, orientation, family, header);
        let interface = endpoint_interface_key(direction, orientation);
        rules.extend(own_interface_rules(config, interface, |line| {
            line.jump(&judge)
        }));
    }
    rules.push(RuleBuilder::new().verdict(allow_verdict));
    chains.push(chain(name, None, rules));
    chains
}

/// Whether packets from an endpoint to itself are not judged as any other.
pub(crate) fn has_hairpin_rule(config: &Config) -> bool {
    !config.judgement.judge_hairpin && !NftFault::HairpinJudged.is_injected()
}

/// The rule for packets from an endpoint to itself through a Service: they arrive and leave by one
/// interface, and both addresses belong to it. The skeleton's source rules have checked the source.
pub(crate) fn hairpin_rule(family: Family, verdict: NftVerdict) -> NftRule {
    let (offset, len) = address_field(family, true);
    RuleBuilder::new()
        .meta(MetaKey::IifName, 0)
        .payload(PayloadBase::Network, offset, len, 4)
        .map_lookup(names::point_map(family, Direction::Egress), 0, 8)
        .cmp(8, CmpOp::Neq, &[0; 4])
        .meta(MetaKey::OifName, 4)
        .in_set(names::IF_HAIRPIN, 0)
        .verdict(verdict)
}

/// The chain that has both directions of hairpin traffic judged, in place of the chain of this name.
fn hairpin_chain(
    instead_of: &str,
    orientation: Orientation,
    (family, header): (Family, L4Fields),
    allow_verdict: NftVerdict,
) -> (Str, Chain) {
    let mut rules = Vec::new();
    for direction in [Direction::Egress, Direction::Ingress] {
        let judge = self_chain_name((direction, orientation), (family, header));
        let line = load_policy_set(RuleBuilder::new(), (direction, orientation), family);
        rules.push(line.jump(&judge));
    }
    if NftFault::HairpinPointIgnored.is_injected() {
        rules.clear();
    }
    rules.push(RuleBuilder::new().verdict(allow_verdict));
    let name = format!("p_same{}", instead_of.trim_start_matches('p'));
    chain(&name, None, rules)
}

/// The chains that judge one direction; they return if it is allowed.
pub(crate) fn judge_chains(
    config: &Config,
    direction: Direction,
    orientation: Orientation,
    family: Family,
) -> Vec<(Str, Chain)> {
    let side = (direction, orientation);
    let judge_chain = |header| {
        let verdict = nflog::final_verdict(config, ReportReason::NoPoint);
        let rule = |identities| {
            hairpin_judgement_rule(side, (family, header), identities, verdict.clone())
        };
        let too_short = load_policy_set(RuleBuilder::new(), side, family);
        let rules = vec![
            rule(names::host_map(family)),
            rule(names::network_map(family)),
            counted_drop_rule(config, too_short, ReportReason::NoPoint),
        ];
        chain(&self_chain_name(side, (family, header)), None, rules)
    };
    L4Fields::ALL.map(judge_chain).into()
}

/// One judgement of hairpin traffic in one rule. The lookup of the point may miss as well.
fn hairpin_judgement_rule(
    (direction, orientation): (Direction, Orientation),
    (family, header): (Family, L4Fields),
    identities: &str,
    default_verdict: NftVerdict,
) -> NftRule {
    let own_is_source = endpoint_is_source(direction, orientation);
    let fields = TupleFields::Packet(orientation);
    let line = load_identity(
        RuleBuilder::new(),
        (own_is_source, fields),
        family,
        identities,
    );
    let line = load_policy_set(line, (direction, orientation), family);
    class_rule(line, fields, header, (CODE_VERDICT, default_verdict))
}

/// Loads the policy set of the judged endpoint's point of hairpin traffic into register 9; breaks if there is none.
fn load_policy_set(
    line: RuleBuilder,
    (direction, orientation): (Direction, Orientation),
    family: Family,
) -> RuleBuilder {
    let (local, len) = address_field(family, !endpoint_is_source(direction, orientation));
    line.meta(MetaKey::IifName, 0)
        .payload(PayloadBase::Network, local, len, 4)
        .map_lookup(names::hairpin_point_map(family, direction), 0, 9)
}

fn self_chain_name(
    (direction, orientation): (Direction, Orientation),
    (family, header): (Family, L4Fields),
) -> String {
    let d = match direction {
        Direction::Egress => 'e',
        Direction::Ingress => 'i',
    };
    let (o, digit, h) = (orientation.letter(), family_digit(family), header.letter());
    format!("p_self_{d}{o}{digit}_{h}")
}

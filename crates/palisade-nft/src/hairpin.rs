//! The chains that judge what a workload sends to itself through a Service, at the points of hairpin traffic.
//!
//! Promises: a direction without such a point is not judged, and costs other packets nothing, since only the rule that
//! finds hairpin traffic leads here. A point is looked up before its judgement and within it, so a packet that sees the
//! point go in between is allowed, as without the point. Never: says which packets are hairpin traffic
//! ([`crate::judgement`]).

use crate::judgement::{
    L4Fields, Orientation, address_field, endpoint_is_source, family_digit, hairpin_judgement_rule,
};
use crate::names;
use crate::nflog::{self, counted_drop_rule};
use crate::rule::{RuleBuilder, chain};
use crate::{Chain, Config, MetaKey, NftFault, NftVerdict, PayloadBase};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, Str};
use palisade_tables::ReportReason;

/// The chain that has both directions of hairpin traffic judged, in place of the chain of this name.
pub(crate) fn pass_chain(
    instead_of: &str,
    orientation: Orientation,
    (family, header): (Family, L4Fields),
    allow_verdict: NftVerdict,
) -> (Str, Chain) {
    let mut rules = Vec::new();
    for direction in [Direction::Egress, Direction::Ingress] {
        let judge = judge_chain_name((direction, orientation), (family, header));
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
        chain(&judge_chain_name(side, (family, header)), None, rules)
    };
    L4Fields::ALL.map(judge_chain).into()
}

/// Loads the policy set of the judged endpoint's point of hairpin traffic into register 9; breaks if there is none.
pub(crate) fn load_policy_set(
    line: RuleBuilder,
    (direction, orientation): (Direction, Orientation),
    family: Family,
) -> RuleBuilder {
    let (own, len) = address_field(family, !endpoint_is_source(direction, orientation));
    line.meta(MetaKey::IifName, 0)
        .payload(PayloadBase::Network, own, len, 4)
        .map_lookup(names::hairpin_point_map(family, direction), 0, 9)
}

fn judge_chain_name(
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

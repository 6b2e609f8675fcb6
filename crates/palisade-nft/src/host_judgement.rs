//! The judgement of one side of a packet at an interface of the host, which the chains of every stage end in.
//!
//! Promises: an interface without a point of the stage is not judged. Never: says which packets come to it, or what
//! happens to those that are allowed ([`crate::host_chains`], [`crate::early_stages`]).

use crate::answering;
use crate::judgement::{
    HostLookup, L4Fields, Orientation, TupleFields, host_judgement_rule, load_host_set,
};
use crate::names::{self, CODE_VERDICT, ND_OUT};
use crate::nflog::{self, counted_drop_rule};
use crate::rule::{RuleBuilder, chain};
use crate::{
    BaseChain, Chain, CmpOp, Config, Hook, MetaKey, NftFault, NftRule, NftVerdict, PayloadBase,
};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Direction, Family, PolicyStage, Protocol, Str};
use palisade_tables::ReportReason;

/// Whether a packet is judged as it arrives or as it leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacketSide {
    Arriving,
    Leaving,
}

impl PacketSide {
    pub(crate) const BOTH: [PacketSide; 2] = [PacketSide::Arriving, PacketSide::Leaving];

    pub(crate) fn interface_key(self) -> MetaKey {
        match self {
            PacketSide::Arriving => MetaKey::IifName,
            PacketSide::Leaving => MetaKey::OifName,
        }
    }

    /// The direction of the flow that is judged on this side of one of its packets.
    pub(crate) fn direction(self, orientation: Orientation) -> Direction {
        let orientation = if NftFault::HostReplyAsOriginal.is_injected() {
            Orientation::Original
        } else {
            orientation
        };
        match (self, orientation) {
            (PacketSide::Arriving, Orientation::Original)
            | (PacketSide::Leaving, Orientation::Reply) => Direction::Ingress,
            (PacketSide::Leaving, Orientation::Original)
            | (PacketSide::Arriving, Orientation::Reply) => Direction::Egress,
        }
    }

    fn letter(self) -> char {
        match self {
            PacketSide::Arriving => 'i',
            PacketSide::Leaving => 'o',
        }
    }
}

fn stage_letter(stage: PolicyStage) -> char {
    match stage {
        PolicyStage::Untracked => 'u',
        PolicyStage::PreDnat => 'd',
        PolicyStage::Forward => 'f',
        PolicyStage::Normal => 'n',
    }
}

/// The chain that has one side of a packet judged at one stage; it returns if the side is allowed.
pub(crate) fn side_chain(side: PacketSide, stage: PolicyStage) -> String {
    format!("p_hj_{}{}", side.letter(), stage_letter(stage))
}

/// Continues only if the interface has points of this host at the stage.
pub(crate) fn judged_interface(
    config: &Config,
    side: PacketSide,
    stage: PolicyStage,
) -> RuleBuilder {
    let key = side.interface_key();
    RuleBuilder::new()
        .interface_prefix(key, CmpOp::Neq, &config.interface_prefix)
        .meta(key, 0)
        .map_lookup(names::interface_map(stage), 0, 4)
        .cmp(4, CmpOp::Neq, &[0; 4])
}

/// The chains of a stage, of this prefix, for what this host's own stack sends: it is judged in the output hook, and in
/// flows with NAT in the postrouting hook. `base` makes a base chain, and `judged` the rule that has the packet judged.
pub(crate) fn own_stack_chains(
    prefix: &str,
    base: &dyn Fn(Hook) -> Option<BaseChain>,
    judged: &dyn Fn() -> NftRule,
) -> [(Str, Chain); 3] {
    let translated = || RuleBuilder::new().translated();
    let translated_chain = format!("{prefix}_translated");
    [
        chain(
            &format!("{prefix}_output"),
            base(Hook::Output),
            vec![translated().verdict(NftVerdict::Accept), judged()],
        ),
        chain(
            &format!("{prefix}_postrouting"),
            base(Hook::Postrouting),
            vec![translated().goto(&translated_chain)],
        ),
        chain(
            &translated_chain,
            None,
            vec![
                // What is forwarded was judged in the forward hook.
                RuleBuilder::new()
                    .meta(MetaKey::IifName, 0)
                    .cmp(0, CmpOp::Neq, &[0; 16])
                    .verdict(NftVerdict::Accept),
                judged(),
            ],
        ),
    ]
}

/// Neighbour discovery and MLD on the link, router advertisements and redirects included: a host receives them.
pub(crate) fn link_rule() -> NftRule {
    RuleBuilder::new()
        .family(Family::V6)
        .protocol(Protocol::ICMPV6)
        .payload(PayloadBase::Transport, 0, 1, 0)
        .in_set(ND_OUT, 0)
        .verdict(NftVerdict::Accept)
}

/// The rules that judge a direction of a packet at the interface of one side of it.
pub(crate) fn lookup_rules(
    config: &Config,
    (side, stage): (PacketSide, PolicyStage),
    (direction, fields): (Direction, TupleFields),
    family: Family,
    header: L4Fields,
) -> Vec<NftRule> {
    let judged_stage = match stage {
        PolicyStage::Forward if NftFault::HostStagesSwapped.is_injected() => PolicyStage::Normal,
        PolicyStage::Normal if NftFault::HostStagesSwapped.is_injected() => PolicyStage::Forward,
        PolicyStage::Untracked if NftFault::EarlyStagesSwapped.is_injected() => {
            PolicyStage::PreDnat
        }
        PolicyStage::PreDnat if NftFault::EarlyStagesSwapped.is_injected() => {
            PolicyStage::Untracked
        }
        stage => stage,
    };
    let lookup = HostLookup {
        key: side.interface_key(),
        stage: judged_stage,
        direction,
        fields,
    };
    let map = if stage.is_early() {
        answering::dropping_verdicts(config)
    } else {
        CODE_VERDICT
    };
    let verdicts = (map, nflog::final_verdict(config, ReportReason::NoPoint));
    let local_maps = [
        names::host_point_map(family),
        names::host_point_range_map(family),
    ];
    let mut rules = Vec::new();
    for map in local_maps {
        for identities in [names::host_map(family), names::network_map(family)] {
            let verdicts = verdicts.clone();
            rules.push(host_judgement_rule(
                lookup, family, header, map, identities, verdicts,
            ));
        }
    }
    // The packet is too short to have the header.
    for map in local_maps {
        let line = load_host_set(RuleBuilder::new(), lookup, family, map);
        rules.push(counted_drop_rule(config, line, ReportReason::NoPoint));
    }
    rules
}

//! Packets that a fast path vouches for by a bit of the packet mark: of flows that it delivers itself, but for packets
//! such as these. It has found both ends to allow the flow, and connection tracking does not know it.
//!
//! A program at each workload's interface writes the bit on every packet that arrives there, and the kernel clears the
//! mark of what comes from another namespace, so no workload can set it. Before connection tracking, such a packet is
//! left out of it, or it would begin a connection in the middle of its flow. Its source is checked as that of any
//! packet. Where it is forwarded, the bit is cleared and the packet accepted.
//!
//! Promises: the bit means nothing at any other interface, nor on a packet that connection tracking has seen: another
//! program set it after the first of these chains. What the host receives is judged with the bit as without, as a packet
//! that is not tracked. A packet without the bit costs one rule in each hook. Never: exists without
//! [`PacketMarkBits::proof`](crate::PacketMarkBits::proof).

use crate::hook_rules::own_interface_rules;
use crate::rule::{RuleBuilder, chain};
use crate::{Chain, Config, Expr, MetaKey, NftFault, NftRule, NftVerdict, ct_state};
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::Str;

/// The chain of marked packets before connection tracking.
const UNTRACK_CHAIN: &str = "p_proof_raw";
/// The chain of marked packets that are forwarded.
const FORWARD_CHAIN: &str = "p_proof_forward";

/// The rule for marked packets before connection tracking; none without a fast path.
pub(crate) fn untrack_rule(config: &Config) -> Option<NftRule> {
    let bit = config.packet_mark.proof?;
    Some(RuleBuilder::new().packet_mark(bit).jump(UNTRACK_CHAIN))
}

/// The rule for marked packets that are forwarded; none without a fast path.
pub(crate) fn forward_rule(config: &Config) -> Option<NftRule> {
    let bit = config.packet_mark.proof?;
    let line = RuleBuilder::new().packet_mark(bit);
    Some(line.state(ct_state::UNTRACKED).jump(FORWARD_CHAIN))
}

/// The chains that these rules lead to.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(bit) = config.packet_mark.proof else {
        return Vec::new();
    };
    let of_workloads = |is_untested: bool, rule: &dyn Fn(RuleBuilder) -> NftRule| {
        if is_untested {
            return vec![rule(RuleBuilder::new())];
        }
        own_interface_rules(config, MetaKey::IifName, rule)
    };
    let untrack = |line: RuleBuilder| line.push(Expr::Notrack).build();
    let accept = |line: RuleBuilder| {
        let line = if NftFault::ProofBitLeft.is_injected() {
            line
        } else {
            line.set_packet_mark(bit, false)
        };
        line.verdict(NftVerdict::Accept)
    };
    let untrack_rules = if NftFault::ProofTracked.is_injected() {
        Vec::new()
    } else {
        let is_untested = NftFault::ProofUntracksAnything.is_injected();
        of_workloads(is_untested, &untrack)
    };
    let is_untested = NftFault::ProofOfAnyInterface.is_injected();
    vec![
        chain(UNTRACK_CHAIN, None, untrack_rules),
        chain(FORWARD_CHAIN, None, of_workloads(is_untested, &accept)),
    ]
}

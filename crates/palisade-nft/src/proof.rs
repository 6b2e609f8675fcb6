//! Packets that a fast path vouches for by a bit of the packet mark: of flows that it delivers itself, but for packets
//! such as these. It has found both ends to allow the flow, and connection tracking does not know it.
//!
//! A program at each workload's interface writes the bit on every packet that arrives there, and the kernel clears the
//! mark of what comes from another namespace, so no workload can set it. Before connection tracking, such a packet is
//! left out of it, or it would begin a connection in the middle of its flow. Its source is checked as that of any
//! packet. Where it is forwarded, the bit is cleared and the packet accepted.
//!
//! The same holds at the interfaces to other hosts whose programs write the bit ([`PacketMarkBits::uplinks`](crate::PacketMarkBits::uplinks)),
//! of packets to workloads; no mark comes from another host.
//!
//! Promises: the bit means nothing at any other interface, nor on a packet that connection tracking has seen: another
//! program set it after the first of these chains. What the host receives is judged with the bit as without, as a packet
//! that is not tracked. A packet without the bit costs one rule in each hook. Never: exists without
//! [`PacketMarkBits::proof`](crate::PacketMarkBits::proof).
//!
//! The host's own ICMP error about such a packet (a hop too many, a packet too big) belongs to no connection. Where the
//! host is judged, it passes if it quotes a packet from a workload of this host to another, or to other hosts where the fast
//! path sends packets there: with the flow tracked it would have passed as related to it.

use crate::hook_rules::{judges_host_traffic, own_interface_rules};
use crate::judgement::address_field;
use crate::names::{self, L4_ICMP};
use crate::rule::{RuleBuilder, chain};
use crate::{
    Chain, CmpOp, Config, Expr, MetaKey, NftFault, NftRule, NftVerdict, PayloadBase, ct_state,
};
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::{Family, Protocol, Str};

/// The chain of marked packets before connection tracking.
const UNTRACK_CHAIN: &str = "p_proof_raw";
/// The chain of marked packets that are forwarded.
const FORWARD_CHAIN: &str = "p_proof_forward";
/// The chain of this host's ICMP errors that belong to no connection.
const ERROR_CHAIN: &str = "p_proof_error";

/// What an ICMP message has before the packet that it quotes.
const QUOTED_AT: u32 = 8;

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

/// The rule for what this host's own stack sends to a workload, where that is judged; none without a fast path.
pub(crate) fn error_rule(config: &Config) -> Option<NftRule> {
    config.packet_mark.proof?;
    let line = RuleBuilder::new().state(ct_state::INVALID);
    let line = line.meta(MetaKey::L4Proto, 0).in_set(L4_ICMP, 0);
    Some(line.jump(ERROR_CHAIN))
}

/// The rules that accept errors about packets between workloads of this host.
fn error_rules(config: &Config) -> Vec<NftRule> {
    let v4 = [3, 11, 12].map(|kind| (Family::V4, CmpOp::Eq, kind));
    // All types below are errors.
    let v6 = (Family::V6, CmpOp::Lt, 128);
    let errors = v4.into_iter().chain([v6]).map(|(family, op, kind)| {
        let protocol = match family {
            Family::V4 => Protocol::ICMP,
            Family::V6 => Protocol::ICMPV6,
        };
        let line = RuleBuilder::new().family(family).protocol(protocol);
        let line = line
            .payload(PayloadBase::Transport, 0, 1, 0)
            .cmp(0, op, &[kind]);
        let line = if NftFault::ErrorAboutAnything.is_injected() {
            line
        } else {
            line.and(quoted_workloads(config, family))
        };
        line.verdict(NftVerdict::Accept)
    });
    errors.collect()
}

/// Continues only if the quoted packet is from a workload of this host to where the fast path delivers. The kernel sends the error to that
/// source; and a key of the interface with a quoted address would be one that `nft` has no notation for.
fn quoted_workloads(config: &Config, family: Family) -> RuleBuilder {
    let is_judged =
        |is_destination: &bool| !is_destination || config.packet_mark.uplinks.is_empty();
    let ends = [false, true].into_iter().filter(is_judged);
    ends.map(|is_destination| address_field(family, is_destination))
        .fold(RuleBuilder::new(), |line, (offset, len)| {
            line.payload(PayloadBase::Transport, QUOTED_AT + offset, len, 0)
                .in_set(names::local_addresses_set(family), 0)
        })
}

/// The chains that these rules lead to.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    let Some(bit) = config.packet_mark.proof else {
        return Vec::new();
    };
    let of_programs = |is_untested: bool, rule: &dyn Fn(RuleBuilder) -> NftRule| {
        if is_untested {
            return vec![rule(RuleBuilder::new())];
        }
        let uplinks = config.packet_mark.uplinks.iter();
        let uplinks = uplinks.map(|name| RuleBuilder::new().interface(MetaKey::IifName, name));
        let mut rules = own_interface_rules(config, MetaKey::IifName, rule);
        rules.extend(uplinks.map(rule));
        rules
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
        of_programs(is_untested, &untrack)
    };
    let is_untested = NftFault::ProofOfAnyInterface.is_injected();
    let mut chains = vec![
        chain(UNTRACK_CHAIN, None, untrack_rules),
        chain(FORWARD_CHAIN, None, of_programs(is_untested, &accept)),
    ];
    if judges_host_traffic(config) {
        chains.push(chain(ERROR_CHAIN, None, error_rules(config)));
    }
    chains
}

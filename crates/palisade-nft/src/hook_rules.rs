//! Chains and rules that several hooks share: which packets are of our interfaces, and which flows were
//! accepted before.
//!
//! It promises one wording of each test, so that no two hooks disagree. It never decides a verdict.

use crate::names::LIVE_MARK;
use crate::rule::RuleBuilder;
use crate::{
    BaseChain, ChainPolicy, ChainType, CmpOp, Config, CtKey, Hook, MetaKey, NftFault, NftRule,
    NftVerdict, ct_state,
};
use alloc::vec;
use alloc::vec::Vec;

/// A filter base chain that accepts by default.
pub(crate) fn filter_base_chain(hook: Hook, priority: i32) -> Option<BaseChain> {
    Some(BaseChain {
        hook,
        priority,
        policy: ChainPolicy::Accept,
        chain_type: ChainType::Filter,
    })
}

/// Rules for packets of our interfaces. The prefix alone makes an interface ours: it is closed until it has
/// points. So no verdict depends on two lookups of the same name, between which the interface may be added
/// or removed.
pub(crate) fn own_interface_rules(
    config: &Config,
    key: MetaKey,
    rule: impl Fn(RuleBuilder) -> NftRule,
) -> Vec<NftRule> {
    let prefixed = RuleBuilder::new().interface_prefix(key, CmpOp::Eq, &config.interface_prefix);
    let other = RuleBuilder::new().interface_prefix(key, CmpOp::Neq, &config.interface_prefix);
    if NftFault::UnknownInterfaceOpen.is_injected() {
        return vec![rule(RuleBuilder::new().own_interface(key))];
    }
    vec![rule(prefixed), rule(other.own_interface(key))]
}

/// Whether packets of this host's own stack are subject to policy.
pub(crate) fn judges_host_traffic(config: &Config) -> bool {
    config.judgement.judge_host_traffic != NftFault::HostTrafficJudged.is_injected()
}

/// The rule that accepts packets of flows that carry the live generation.
pub(crate) fn fast_path_rule(config: &Config) -> NftRule {
    RuleBuilder::new()
        .state(ct_state::ESTABLISHED | ct_state::NEW)
        .ct(CtKey::Mark, 0)
        .bitwise(0, &config.ct_mark_mask.to_ne_bytes(), &[0; 4])
        .in_set(LIVE_MARK, 0)
        .verdict(NftVerdict::Accept)
}

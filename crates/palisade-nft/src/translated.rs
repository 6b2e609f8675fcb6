//! Packets of this host's own stack in flows with NAT, where host traffic is subject to policy.
//!
//! The kernel translates a packet of a local process in the output hook, before our chain there, and
//! reroutes it, but the chains of that hook still see the old output interface: that of the Service address,
//! which is not an endpoint's, or another endpoint's. So such packets pass the output hook and are judged in
//! the postrouting hook, by their real interface and, before source NAT, by their own addresses. Only the
//! flow's status decides which hook judges; nothing changes it between the hooks, so each packet is judged
//! once.
//!
//! Promises: what the output hook passes for being translated is judged here. A forwarded packet in this
//! hook was judged and carries the live generation; one that cannot (see [`Config::sctp_tracked`]) is judged
//! again, with the same result.
//!
//! Never: tests the input interface. The kernel reports the tunnel device for packets of this host's own
//! tunnels, and none for packets forwarded by a bridge.

use crate::answering;
use crate::hook_rules::{
    fast_path_rule, filter_base_chain, judges_host_traffic, own_interface_rules,
};
use crate::redirect;
use crate::rule::{RuleBuilder, chain};
use crate::{Chain, Config, Hook, MetaKey, NftFault, NftRule, NftVerdict};
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::Str;

/// The rule of the output hook that leaves such packets to the postrouting hook.
pub(crate) fn defer_rule() -> NftRule {
    RuleBuilder::new().translated().verdict(NftVerdict::Accept)
}

/// The chains that judge them; none if host traffic is not subject to policy.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    if !judges_host_traffic(config) {
        return Vec::new();
    }
    let mut judged = vec![fast_path_rule(config)];
    judged.extend(redirect::own_jump(config, Hook::Output));
    judged.extend(answering::own_answer_rules(config));
    judged.extend(own_interface_rules(config, MetaKey::OifName, |line| {
        line.goto("p_flow")
    }));
    if NftFault::TranslatedNotJudged.is_injected() {
        judged.truncate(1);
    }
    let entry = vec![RuleBuilder::new().translated().goto("p_translated")];
    vec![
        chain(
            "p_postrouting",
            filter_base_chain(Hook::Postrouting, 0),
            entry,
        ),
        chain("p_translated", None, judged),
    ]
}

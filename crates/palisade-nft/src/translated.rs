//! What this host's own stack sends into flows whose addresses are translated, where the host's
//! packets are judged.
//!
//! The kernel translates a packet of a local process in the output hook, before our chain there, and
//! chooses its way anew, but tells the chains of that hook the interface from before: that of the
//! service's address, which is not an endpoint's, or another endpoint's. So such packets pass in the
//! output hook and are judged in the postrouting hook, by their real interface and, before sources are
//! translated, by their own addresses. Which of the two it is hangs on the flow's status alone, that
//! nothing changes between the hooks, so each packet is judged once.
//!
//! Promises: what passes the output hook for being translated is judged here. A forwarded packet that
//! comes by was judged and carries the live generation; one that cannot (see [`Config::sctp_tracked`])
//! is judged once more, and the same.
//!
//! Never: looks at where a packet came from. The kernel names the tunnel's device for a packet that a
//! tunnel of this host made, and nothing at all for what a bridge passes on.

use crate::rule::{RuleBuilder, chain};
use crate::skeleton::{
    fast_path_rule, filter_base_chain, judges_host_traffic, own_interface_rules,
};
use crate::{Chain, Config, Hook, MetaKey, NftFault, NftRule, NftVerdict};
use alloc::vec;
use alloc::vec::Vec;
use palisade_model::Str;

/// The rule of the output hook that leaves such packets to the postrouting hook.
pub(crate) fn defer_rule() -> NftRule {
    RuleBuilder::new().translated().verdict(NftVerdict::Accept)
}

/// The chains that judge them; none where the host's packets are not judged.
pub(crate) fn chains(config: &Config) -> Vec<(Str, Chain)> {
    if !judges_host_traffic(config) {
        return Vec::new();
    }
    let mut judged = vec![fast_path_rule(config)];
    judged.extend(own_interface_rules(config, MetaKey::OifName, |line| {
        line.goto("p_flow")
    }));
    if NftFault::TranslatedNotJudged.is_on() {
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

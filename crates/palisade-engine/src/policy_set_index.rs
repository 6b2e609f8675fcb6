//! Which policy sets may distinguish an identity, by the peers of their rules.
//!
//! A change of one rule updates the entries of its peers only. Nothing here evaluates rules.

use crate::active_rules::ResolvedRule;
use crate::identities::IdentityKey;
use crate::peer_rule_index::{PeerRuleIndex, PrefixLengths};
use crate::selector_index::SelectorNumber;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use palisade_model::Prefix;
use palisade_tables::PolicySetId;

/// The sets that may distinguish identities, by the peers of their rules.
#[derive(Debug, Default)]
pub(crate) struct PolicySetIndex {
    selectors: BTreeSet<(SelectorNumber, PolicySetId)>,
    nets: BTreeSet<(Prefix, PolicySetId)>,
    lengths: PrefixLengths,
    all_identities: BTreeSet<PolicySetId>,
}

/// Peers of the rules that changed in a set.
#[derive(Debug, Default)]
pub(crate) struct ChangedPeers {
    pub(crate) selectors: BTreeSet<SelectorNumber>,
    pub(crate) nets: BTreeSet<Prefix>,
}

impl PolicySetIndex {
    /// The sets in which an identity may have a class other than the default; may contain repeats.
    pub(crate) fn distinguishing_sets(&self, identity: &IdentityKey) -> Vec<PolicySetId> {
        let mut sets: Vec<PolicySetId> = self.all_identities.iter().copied().collect();
        for selector in &identity.selectors {
            let under = (*selector, PolicySetId(0))..=(*selector, PolicySetId(u32::MAX));
            sets.extend(self.selectors.range(under).map(|(_, set)| *set));
        }
        for net in identity
            .net
            .iter()
            .flat_map(|net| self.lengths.covering(*net))
        {
            let under = (net, PolicySetId(0))..=(net, PolicySetId(u32::MAX));
            sets.extend(self.nets.range(under).map(|(_, set)| *set));
        }
        sets
    }

    pub(crate) fn insert(&mut self, number: PolicySetId, index: &PeerRuleIndex) {
        let selectors = index.selectors.keys().map(|selector| (*selector, number));
        self.selectors.extend(selectors);
        for net in index.nets.keys() {
            self.update_net(number, *net, true);
        }
        if index.needs_all_identities() {
            self.all_identities.insert(number);
        }
    }

    pub(crate) fn remove(&mut self, number: PolicySetId, index: &PeerRuleIndex) {
        for selector in index.selectors.keys() {
            self.selectors.remove(&(*selector, number));
        }
        for net in index.nets.keys() {
            self.update_net(number, *net, false);
        }
        self.all_identities.remove(&number);
    }

    fn update_net(&mut self, number: PolicySetId, net: Prefix, present: bool) {
        let changed = if present {
            self.nets.insert((net, number))
        } else {
            self.nets.remove(&(net, number))
        };
        if changed {
            self.lengths.count(net, present);
        }
    }

    /// Updates the index for those peers of a set that changed.
    pub(crate) fn update(
        &mut self,
        number: PolicySetId,
        index: &PeerRuleIndex,
        changed_peers: &ChangedPeers,
    ) {
        for selector in &changed_peers.selectors {
            if index.selectors.contains_key(selector) {
                self.selectors.insert((*selector, number))
            } else {
                self.selectors.remove(&(*selector, number))
            };
        }
        for net in &changed_peers.nets {
            self.update_net(number, *net, index.nets.contains_key(net));
        }
        if index.needs_all_identities() {
            self.all_identities.insert(number)
        } else {
            self.all_identities.remove(&number)
        };
    }
}

impl ChangedPeers {
    /// Adds the peers of a rule. Returns false if one has neither a selector nor networks, so that
    /// any identity may match.
    pub(crate) fn add_rule_peers(&mut self, body: &ResolvedRule) -> bool {
        for peer in &body.peers {
            match (&peer.selector, &peer.nets) {
                (Some(selector), _) => drop(self.selectors.insert(*selector)),
                (None, Some(nets)) => self.nets.extend(nets),
                (None, None) => return false,
            }
        }
        true
    }
}

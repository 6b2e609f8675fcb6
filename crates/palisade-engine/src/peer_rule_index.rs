//! Index of a policy set's rules by their peers.
//!
//! Each peer of a rule is indexed under its selector, else under each of its networks, else with
//! the peers that any address may match. Only rules with a selector or network of the identity are
//! evaluated for it.

use crate::active_rules::{PeerTest, ResolvedDirectionRules};
use crate::faults::EngineFault;
use crate::identities::IdentityKey;
use crate::selector_index::SelectorNumber;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{Family, Prefix};

/// The number of a rule group of a policy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RuleGroupNumber(pub(crate) u32);

/// A rule of a policy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RulePosition {
    pub(crate) group: RuleGroupNumber,
    /// Its index in the group.
    pub(crate) index: u32,
}

/// The rules of a set by their peers.
#[derive(Debug, Default)]
pub(crate) struct PeerRuleIndex {
    pub(crate) selectors: BTreeMap<SelectorNumber, Vec<RulePosition>>,
    pub(crate) nets: BTreeMap<Prefix, Vec<RulePosition>>,
    lengths: PrefixLengths,
    any_peer: Vec<RulePosition>,
    /// Number of peers that only exclude.
    excluding_peers: usize,
    /// Number of rules that use named ports of the peer.
    named_port_rules: usize,
}

/// The number of prefixes of each family and length.
#[derive(Debug, Default)]
pub(crate) struct PrefixLengths(BTreeMap<(Family, u8), usize>);

impl PrefixLengths {
    /// Counts one prefix more or less.
    pub(crate) fn count(&mut self, prefix: Prefix, increment: bool) {
        let key = (prefix.family(), prefix.length());
        let count = self.0.entry(key).or_default();
        *count = if increment { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.0.remove(&key);
        }
    }

    /// The prefixes of the counted lengths that cover this one, the longest first.
    pub(crate) fn covering(&self, prefix: Prefix) -> impl Iterator<Item = Prefix> {
        let family = prefix.family();
        let lengths = self.0.range((family, 0)..=(family, prefix.length()));
        lengths
            .rev()
            .map(move |((_, length), _)| Prefix::new(prefix.address(), *length))
    }
}

impl PeerRuleIndex {
    /// Adds the rules of a group.
    pub(crate) fn insert(&mut self, group: RuleGroupNumber, rules: &ResolvedDirectionRules) {
        for (index, body) in (0..).zip(&rules.rules) {
            self.named_port_rules += usize::from(body.uses_peer_named_ports);
            for peer in &body.peers {
                match (&peer.selector, &peer.nets) {
                    (Some(selector), _) => {
                        let positions = self.selectors.entry(*selector).or_default();
                        positions.push(RulePosition { group, index });
                    }
                    (None, Some(nets)) => {
                        for net in nets {
                            let positions = self.nets.entry(*net).or_default();
                            if positions.is_empty() {
                                self.lengths.count(*net, true);
                            }
                            positions.push(RulePosition { group, index });
                        }
                    }
                    (None, None) => {
                        self.any_peer.push(RulePosition { group, index });
                        self.excluding_peers += usize::from(!peer.is_any());
                    }
                }
            }
        }
    }

    /// Removes the rules of a group.
    pub(crate) fn remove(&mut self, group: RuleGroupNumber, rules: &ResolvedDirectionRules) {
        for body in &rules.rules {
            self.named_port_rules -= usize::from(body.uses_peer_named_ports);
            for peer in &body.peers {
                match (&peer.selector, &peer.nets) {
                    (Some(selector), _) => {
                        if let Some(positions) = self.selectors.get_mut(selector) {
                            positions.retain(|rule| rule.group != group);
                            if positions.is_empty() {
                                self.selectors.remove(selector);
                            }
                        }
                    }
                    (None, Some(nets)) => {
                        for net in nets {
                            let Some(positions) = self.nets.get_mut(net) else {
                                continue;
                            };
                            positions.retain(|rule| rule.group != group);
                            if positions.is_empty() {
                                self.nets.remove(net);
                                self.lengths.count(*net, false);
                            }
                        }
                    }
                    (None, None) => self.excluding_peers -= usize::from(!peer.is_any()),
                }
            }
        }
        self.any_peer.retain(|rule| rule.group != group);
    }

    /// Whether rules may distinguish any identity, not only those with a selector or network of a
    /// rule.
    pub(crate) fn needs_all_identities(&self) -> bool {
        self.excluding_peers > 0 || self.named_port_rules > 0
    }

    /// Whether some rule uses named ports of the peer.
    pub(crate) fn uses_peer_named_ports(&self) -> bool {
        self.named_port_rules > 0
    }

    /// The rules that an identity may match, in order; `peers` returns the peers of a rule.
    pub(crate) fn matching_rules<'a>(
        &self,
        identity: &IdentityKey,
        peers: impl Fn(RulePosition) -> &'a [PeerTest],
    ) -> Vec<RulePosition> {
        let mut matched = Vec::new();
        for selector in &identity.selectors {
            matched.extend(self.selectors.get(selector).into_iter().flatten());
        }
        if let Some(net) = identity.net {
            for covering in self.lengths.covering(net) {
                matched.extend(self.nets.get(&covering).into_iter().flatten());
            }
        }
        matched.extend(&self.any_peer);
        matched.sort_unstable();
        matched.dedup();
        matched.retain(|position| {
            peers(*position)
                .iter()
                .any(|peer| peer_matches(peer, identity))
        });
        matched
    }
}

fn peer_matches(peer: &PeerTest, identity: &IdentityKey) -> bool {
    let within = |nets: &[Prefix]| {
        identity
            .net
            .is_some_and(|at| nets.iter().any(|net| net.covers(at)))
    };
    let selected = |number: SelectorNumber| identity.selectors.binary_search(&number).is_ok();
    peer.selector.is_none_or(selected)
        && (EngineFault::NotSelectorIgnored.is_injected()
            || !peer.not_selector.is_some_and(selected))
        && peer.nets.as_ref().is_none_or(|nets| within(nets))
        && (EngineFault::NotNetsIgnored.is_injected() || !within(&peer.not_nets))
}

//! Where the rules of a policy set are found by what they ask of the other end.
//!
//! Every peer of a rule is filed under its selector, else under each of its networks, else with
//! those that any address may match. So an identity only meets the rules that ask for something it
//! has.

use crate::bodies::{PeerTest, Side};
use crate::faults::{Fault, on};
use crate::identities::IdentityKey;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use palisade_model::{Family, Prefix};

/// A rule: the number of what its source says, and its place in that.
pub(crate) type Place = (u32, u32);

/// The rules of a set.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) selectors: BTreeMap<u32, Vec<Place>>,
    pub(crate) nets: BTreeMap<Prefix, Vec<Place>>,
    lengths: Lengths,
    loose: Vec<Place>,
    /// Peers that only exclude.
    excluding: usize,
    /// Rules that ask for a named port at the other end.
    asking: usize,
}

/// How many prefixes there are of each family and length.
#[derive(Debug, Default)]
pub(crate) struct Lengths(BTreeMap<(Family, u8), usize>);

impl Lengths {
    /// One prefix more, or one less.
    pub(crate) fn count(&mut self, prefix: Prefix, more: bool) {
        let key = (prefix.family(), prefix.length());
        let count = self.0.entry(key).or_default();
        *count = if more { *count + 1 } else { *count - 1 };
        if *count == 0 {
            self.0.remove(&key);
        }
    }

    /// The prefixes of these lengths that cover this one, the longest first.
    pub(crate) fn covering(&self, prefix: Prefix) -> impl Iterator<Item = Prefix> {
        let family = prefix.family();
        let lengths = self.0.range((family, 0)..=(family, prefix.length()));
        lengths
            .rev()
            .map(move |((_, length), _)| Prefix::new(prefix.address(), *length))
    }
}

impl Index {
    /// Files the rules of what `kind` says.
    pub(crate) fn file(&mut self, kind: u32, side: &Side) {
        for (rule, body) in (0..).zip(&side.rules) {
            self.asking += usize::from(body.asks_ports);
            for peer in &body.peers {
                match (&peer.selector, &peer.nets) {
                    (Some(selector), _) => {
                        let there = self.selectors.entry(*selector).or_default();
                        there.push((kind, rule));
                    }
                    (None, Some(nets)) => {
                        for net in nets {
                            let there = self.nets.entry(*net).or_default();
                            if there.is_empty() {
                                self.lengths.count(*net, true);
                            }
                            there.push((kind, rule));
                        }
                    }
                    (None, None) => {
                        self.loose.push((kind, rule));
                        self.excluding += usize::from(!peer.is_any());
                    }
                }
            }
        }
    }

    /// Takes the rules of what `kind` says out.
    pub(crate) fn unfile(&mut self, kind: u32, side: &Side) {
        for body in &side.rules {
            self.asking -= usize::from(body.asks_ports);
            for peer in &body.peers {
                match (&peer.selector, &peer.nets) {
                    (Some(selector), _) => {
                        if let Some(there) = self.selectors.get_mut(selector) {
                            there.retain(|(of, _)| *of != kind);
                            if there.is_empty() {
                                self.selectors.remove(selector);
                            }
                        }
                    }
                    (None, Some(nets)) => {
                        for net in nets {
                            let Some(there) = self.nets.get_mut(net) else {
                                continue;
                            };
                            there.retain(|(of, _)| *of != kind);
                            if there.is_empty() {
                                self.nets.remove(net);
                                self.lengths.count(*net, false);
                            }
                        }
                    }
                    (None, None) => self.excluding -= usize::from(!peer.is_any()),
                }
            }
        }
        self.loose.retain(|(of, _)| *of != kind);
    }

    /// Whether any identity may be told apart, not only those with a selector or network of a rule.
    pub(crate) fn is_loose(&self) -> bool {
        self.excluding > 0 || self.asking > 0
    }

    /// Whether some rule asks for a named port at the other end.
    pub(crate) fn asks_ports(&self) -> bool {
        self.asking > 0
    }

    /// The rules that an identity may match, in order; `peers` are those of a rule.
    pub(crate) fn matched<'a>(
        &self,
        who: &IdentityKey,
        peers: impl Fn(Place) -> &'a [PeerTest],
    ) -> Vec<Place> {
        let mut matched = Vec::new();
        for selector in &who.selectors {
            matched.extend(self.selectors.get(selector).into_iter().flatten());
        }
        if let Some(net) = who.net {
            for covering in self.lengths.covering(net) {
                matched.extend(self.nets.get(&covering).into_iter().flatten());
            }
        }
        matched.extend(&self.loose);
        matched.sort_unstable();
        matched.dedup();
        matched.retain(|place| peers(*place).iter().any(|peer| matches(peer, who)));
        matched
    }
}

fn matches(peer: &PeerTest, who: &IdentityKey) -> bool {
    let within = |nets: &[Prefix]| {
        who.net
            .is_some_and(|at| nets.iter().any(|net| net.covers(at)))
    };
    let selected = |number: u32| who.selectors.binary_search(&number).is_ok();
    peer.selector.is_none_or(selected)
        && (on(Fault::NotSelectorIgnored) || !peer.not_selector.is_some_and(selected))
        && peer.nets.as_ref().is_none_or(|nets| within(nets))
        && (on(Fault::NotNetsIgnored) || !within(&peer.not_nets))
}

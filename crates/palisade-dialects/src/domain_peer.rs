//! Peers by domain name: the addresses that DNS answers gave for names.
//!
//! Promises: an address inside of the cluster is not selected by a name, in no dialect: whoever controls a name could
//! otherwise open a pod or a node by it.
//!
//! Never: reads a pattern as a dialect writes it.

use crate::faults::DialectFault;
use palisade_model::{DirectionRules, DomainPattern, LabelKey, Peer, Selector, reserved};

/// What is inside of the cluster.
pub(crate) fn inside_kinds() -> Selector {
    kind_in(&[
        reserved::KIND_WORKLOAD,
        reserved::KIND_HOST,
        reserved::KIND_NODE,
        reserved::KIND_POD_NETWORK,
    ])
}

/// What is of one of these kinds.
pub(crate) fn kind_in(kinds: &[&str]) -> Selector {
    let kinds = kinds.iter().map(|kind| (*kind).into());
    Selector::is_in(LabelKey::reserved(reserved::KIND), kinds)
}

/// The addresses of the names of some patterns, outside of the cluster; none if there is no pattern.
pub(crate) fn outside_names(patterns: impl IntoIterator<Item = DomainPattern>) -> Peer {
    let key = LabelKey::reserved(reserved::DOMAIN);
    let names = patterns
        .into_iter()
        .map(|pattern| Selector::domain(key.clone(), pattern));
    let inside = (!DialectFault::NamesSelectInside.is_injected()).then(inside_kinds);
    Peer {
        selector: Some(Selector::or(names)),
        not_selector: inside,
        ..Peer::any()
    }
}

/// Whether rules have peers by name. A dialect without rules of DNS names then needs the answers that the selected
/// workloads get.
#[must_use]
pub fn has_names(rules: Option<&DirectionRules>) -> bool {
    let rules = rules.into_iter().flat_map(|rules| &rules.rules);
    rules
        .flat_map(|rule| &rule.peers)
        .filter_map(|peer| peer.selector.as_ref())
        .any(tests_names)
}

/// Whether a test is one of names.
pub(crate) fn tests_names(selector: &Selector) -> bool {
    let mut found = false;
    selector.for_each_key(&mut |key| found |= *key == LabelKey::reserved(reserved::DOMAIN));
    found
}

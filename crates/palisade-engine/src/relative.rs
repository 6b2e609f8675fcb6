//! Policies relative to where they stand: their own namespace and their own line are left open.
//!
//! Policies that a tool writes for every namespace are then one value. What is left open is put back
//! exactly as it was; a policy for which that would not be sure is kept as it is written.

use palisade_model::{
    DirectionRules, LabelKey, LabelLookup, Namespace, Scope, Selector, SourceLine, Str, Values,
    reserved,
};

/// What stands for the namespace or the file of the policy itself.
pub(crate) const HERE: &str = "\0";

/// The name of a namespace that happens to be [`HERE`].
const NOT_HERE: &str = "\0\0";

/// Whether the values of a key are names of namespaces.
fn names_namespaces(key: &LabelKey) -> bool {
    match key.scope {
        Scope::Reserved => &*key.name == reserved::NAMESPACE,
        Scope::Namespace => &*key.name == Namespace::NAME_LABEL,
        Scope::Own | Scope::ServiceAccount => false,
    }
}

/// Whether a selector means the same with `own` left open.
pub(crate) fn can_be(selector: &Selector, own: &str) -> bool {
    match selector {
        Selector::In(key, values) => {
            !names_namespaces(key)
                || !values.contains(HERE) && (values.len() == 1 || !values.contains(own))
        }
        Selector::Has(_) => true,
        Selector::Contains(key, _) | Selector::StartsWith(key, _) | Selector::EndsWith(key, _) => {
            !names_namespaces(key)
        }
        Selector::Not(inner) => can_be(inner, own),
        Selector::And(parts) | Selector::Or(parts) => parts.iter().all(|part| can_be(part, own)),
    }
}

/// Replaces the name of a namespace.
pub(crate) fn rename(selector: &mut Selector, from: &str, to: &Str) {
    match selector {
        Selector::In(key, values)
            if values.len() == 1 && values.contains(from) && names_namespaces(key) =>
        {
            *values = Values::one(to.clone());
        }
        Selector::Not(inner) => rename(inner, from, to),
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter_mut().for_each(|part| rename(part, from, to));
        }
        _ => {}
    }
}

/// Every selector of a direction's rules.
pub(crate) fn selectors(rules: &DirectionRules) -> impl Iterator<Item = &Selector> {
    rules.rules.iter().flat_map(|rule| {
        let peers = rule.peers.iter().chain(&rule.own);
        peers.flat_map(|peer| peer.selector.iter().chain(&peer.not_selector))
    })
}

/// Every selector of a direction's rules.
pub(crate) fn selectors_mut(rules: &mut DirectionRules) -> impl Iterator<Item = &mut Selector> {
    rules.rules.iter_mut().flat_map(|rule| {
        let peers = rule.peers.iter_mut().chain(&mut rule.own);
        peers.flat_map(|peer| peer.selector.iter_mut().chain(&mut peer.not_selector))
    })
}

/// Every line that a direction's rules name.
pub(crate) fn lines(rules: &DirectionRules) -> impl Iterator<Item = &SourceLine> {
    rules
        .rules
        .iter()
        .filter_map(|rule| rule.origin.line.as_ref())
}

/// Every line that a direction's rules name.
pub(crate) fn lines_mut(rules: &mut DirectionRules) -> impl Iterator<Item = &mut SourceLine> {
    let rules = rules.rules.iter_mut();
    rules.filter_map(|rule| rule.origin.line.as_mut())
}

/// Labels as a selector that is relative to a namespace sees them.
pub(crate) struct Seen<'a, L> {
    pub(crate) labels: &'a L,
    pub(crate) own: &'a str,
}

impl<L: LabelLookup> LabelLookup for Seen<'_, L> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let value = self.labels.label(key)?;
        if !names_namespaces(key) {
            return Some(value);
        }
        Some(match value {
            _ if value == self.own => HERE,
            HERE => NOT_HERE,
            _ => value,
        })
    }
}

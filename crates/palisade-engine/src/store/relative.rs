//! Policies relative to their namespace and line, so that equal ones can be interned.
//!
//! Policies that a tool writes for every namespace thus become one value. A policy without a namespace is
//! relative to the one that its subject names. Restoring the namespace
//! and the line gives back exactly the original; a policy for which that is not certain is kept as
//! it is written.

use palisade_model::{
    DirectionRules, LabelKey, LabelLookup, LabelScope, LabelValues, Namespace, Peer, Rule,
    RuleOrigin, Selector, SourceLine, Str, reserved,
};

/// Stands for the policy's own namespace or file.
pub(crate) const PLACEHOLDER: &str = "\0";

/// Stands for a namespace whose name happens to be [`PLACEHOLDER`].
const ESCAPED_PLACEHOLDER: &str = "\0\0";

/// Whether the values of a key are names of namespaces.
fn is_namespace_name_key(key: &LabelKey) -> bool {
    match key.scope {
        LabelScope::Reserved => &*key.name == reserved::NAMESPACE,
        LabelScope::Namespace => &*key.name == Namespace::NAME_LABEL,
        LabelScope::Own | LabelScope::ServiceAccount | LabelScope::Node => false,
    }
}

/// Whether a selector can be stored with `namespace` replaced by the placeholder and restored
/// exactly.
pub(crate) fn can_be_relative(selector: &Selector, namespace: &str) -> bool {
    match selector {
        Selector::In(key, values) => {
            !is_namespace_name_key(key)
                || !values.contains(PLACEHOLDER)
                    && (values.len() == 1 || !values.contains(namespace))
        }
        Selector::Has(_) => true,
        Selector::Contains(key, _)
        | Selector::StartsWith(key, _)
        | Selector::EndsWith(key, _)
        | Selector::Domain(key, _) => !is_namespace_name_key(key),
        Selector::Not(inner) => can_be_relative(inner, namespace),
        Selector::And(parts) | Selector::Or(parts) => {
            parts.iter().all(|part| can_be_relative(part, namespace))
        }
    }
}

/// The namespace outside of which a selector matches nothing, if it names exactly one.
pub(crate) fn only_namespace(selector: &Selector) -> Option<&Str> {
    match selector {
        Selector::In(key, values) if values.len() == 1 && is_namespace_name_key(key) => {
            values.iter().next()
        }
        Selector::And(parts) => parts.iter().find_map(only_namespace),
        _ => None,
    }
}

/// Replaces a namespace name wherever the selector tests it.
pub(crate) fn replace_namespace(selector: &mut Selector, from: &str, to: &Str) {
    match selector {
        Selector::In(key, values)
            if values.len() == 1 && values.contains(from) && is_namespace_name_key(key) =>
        {
            *values = LabelValues::single(to.clone());
        }
        Selector::Not(inner) => replace_namespace(inner, from, to),
        Selector::And(parts) | Selector::Or(parts) => {
            parts
                .iter_mut()
                .for_each(|part| replace_namespace(part, from, to));
        }
        _ => {}
    }
}

/// Every selector of a direction's rules.
pub(crate) fn selectors_mut(rules: &mut DirectionRules) -> impl Iterator<Item = &mut Selector> {
    rules.rules.iter_mut().flat_map(|rule| {
        let peers = rule.peers.iter_mut().chain(&mut rule.local);
        peers.flat_map(|peer| peer.selector.iter_mut().chain(&mut peer.not_selector))
    })
}

/// The source lines of a direction's rules.
pub(crate) fn lines_mut(rules: &mut DirectionRules) -> impl Iterator<Item = &mut SourceLine> {
    let rules = rules.rules.iter_mut();
    rules.filter_map(|rule| rule.origin.line.as_mut())
}

/// What a policy is relative to.
pub(crate) struct PolicyOrigin<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) line: Option<&'a SourceLine>,
}

impl PolicyOrigin<'_> {
    /// Whether rules would equal the stored ones if they were made relative. May say no where that
    /// is not certain.
    pub(crate) fn has_equal_rules(
        &self,
        given: Option<&DirectionRules>,
        stored: Option<&DirectionRules>,
    ) -> bool {
        match (given, stored) {
            (Some(given), Some(stored)) => {
                let rules = || given.rules.iter().zip(&stored.rules);
                given.default_deny == stored.default_deny
                    && given.rules.len() == stored.rules.len()
                    && rules().all(|(given, stored)| self.is_equal_rule(given, stored))
            }
            (given, stored) => given.is_none() && stored.is_none(),
        }
    }

    fn is_equal_rule(&self, given: &Rule, stored: &Rule) -> bool {
        let Rule {
            origin,
            action,
            peers,
            local: own,
            traffic,
            dns_names,
        } = given;
        let RuleOrigin {
            index,
            name,
            fingerprint,
            line,
        } = origin;
        let same_line = match (self.line, line, &stored.origin.line) {
            (Some(own), Some(given), Some(stored)) => {
                given.file == own.file
                    && given.version == own.version
                    && given.line.wrapping_sub(own.line) == stored.line
            }
            (_, given, stored) => given == stored,
        };
        let mut tests = peers
            .iter()
            .chain(own)
            .zip(stored.peers.iter().chain(&stored.local));
        same_line
            && *action == stored.action
            && *index == stored.origin.index
            && *fingerprint == stored.origin.fingerprint
            && *name == stored.origin.name
            && peers.len() == stored.peers.len()
            && own.is_some() == stored.local.is_some()
            && *traffic == stored.traffic
            && *dns_names == stored.dns_names
            && tests.all(|(given, stored)| self.is_equal_peer(given, stored))
    }

    fn is_equal_peer(&self, given: &Peer, stored: &Peer) -> bool {
        let Peer {
            selector,
            not_selector,
            nets,
            not_nets,
        } = given;
        let same = |given: &Option<Selector>, stored: &Option<Selector>| match (given, stored) {
            (Some(given), Some(stored)) => self.is_equal_selector(given, stored),
            (given, stored) => given.is_none() && stored.is_none(),
        };
        *nets == stored.nets
            && *not_nets == stored.not_nets
            && same(selector, &stored.selector)
            && same(not_selector, &stored.not_selector)
    }

    /// The same for a selector.
    pub(crate) fn is_equal_selector(&self, given: &Selector, stored: &Selector) -> bool {
        match (given, stored) {
            (Selector::In(key, values), Selector::In(other, known))
                if is_namespace_name_key(key) =>
            {
                let own = values.len() == 1 && values.contains(self.namespace);
                key == other
                    && !values.contains(PLACEHOLDER)
                    && if own {
                        known.len() == 1 && known.contains(PLACEHOLDER)
                    } else {
                        !values.contains(self.namespace) && values == known
                    }
            }
            (Selector::Not(given), Selector::Not(stored)) => self.is_equal_selector(given, stored),
            (Selector::And(given), Selector::And(stored))
            | (Selector::Or(given), Selector::Or(stored)) => {
                let mut parts = given.iter().zip(stored);
                given.len() == stored.len()
                    && parts.all(|(given, stored)| self.is_equal_selector(given, stored))
            }
            (given, stored) => can_be_relative(given, self.namespace) && given == stored,
        }
    }
}

/// Labels as a selector relative to a namespace sees them.
pub(crate) struct RelativeLabels<'a, L> {
    pub(crate) labels: &'a L,
    pub(crate) namespace: &'a str,
}

impl<L: LabelLookup> LabelLookup for RelativeLabels<'_, L> {
    fn label(&self, key: &LabelKey) -> Option<&str> {
        let value = self.labels.label(key)?;
        if !is_namespace_name_key(key) {
            return Some(value);
        }
        Some(match value {
            _ if value == self.namespace => PLACEHOLDER,
            PLACEHOLDER => ESCAPED_PLACEHOLDER,
            _ => value,
        })
    }
}

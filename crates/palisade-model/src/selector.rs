//! The boolean expression over labels to which the selectors of every dialect are lowered.
//!
//! Built through the constructors below, an expression is canonical: nested conjunctions and
//! disjunctions are flattened, sorted and deduplicated, double negation is removed, and constants are
//! folded. Equal canonical expressions are equal values, so they can be interned.

use crate::{DomainPattern, LabelKey, LabelLookup, LabelScope, LabelValues, Str, reserved};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use serde::{Deserialize, Serialize};

/// A test of an object's labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Selector {
    /// The key is present and its value is one of these (an empty set matches nothing).
    In(LabelKey, LabelValues),
    /// The key is present.
    Has(LabelKey),
    /// The key is present and its value contains this text.
    Contains(LabelKey, Str),
    /// The key is present and its value starts with this text.
    StartsWith(LabelKey, Str),
    /// The key is present and its value ends with this text.
    EndsWith(LabelKey, Str),
    /// The key is present and its value is a domain name that the pattern matches.
    Domain(LabelKey, DomainPattern),
    /// The inner test does not hold.
    Not(Box<Selector>),
    /// All parts hold; an empty list matches everything.
    And(Vec<Selector>),
    /// At least one part holds; an empty list matches nothing.
    Or(Vec<Selector>),
}

impl Selector {
    /// Matches every object.
    pub fn all() -> Self {
        Selector::And(Vec::new())
    }

    /// Matches nothing.
    pub fn none() -> Self {
        Selector::Or(Vec::new())
    }

    /// The namespaces that it names, if it cannot match in others.
    pub fn required_namespaces(&self) -> Option<&LabelValues> {
        match self {
            Selector::In(key, values)
                if key.scope == LabelScope::Reserved && *key.name == *reserved::NAMESPACE =>
            {
                Some(values)
            }
            Selector::And(parts) => parts.iter().find_map(Selector::required_namespaces),
            _ => None,
        }
    }

    /// `key == value`.
    pub fn equals(key: LabelKey, value: impl Into<Str>) -> Self {
        Selector::In(key, LabelValues::single(value.into()))
    }

    /// `key in {values}`.
    pub fn is_in(key: LabelKey, values: impl IntoIterator<Item = Str>) -> Self {
        let values: LabelValues = values.into_iter().collect();
        if values.is_empty() {
            Selector::none()
        } else {
            Selector::In(key, values)
        }
    }

    /// `key not in {values}`: also matches where the key is absent.
    pub fn not_in(key: LabelKey, values: impl IntoIterator<Item = Str>) -> Self {
        Selector::negate(Selector::is_in(key, values))
    }

    /// The names of a pattern that a label holds: `key == value` for a pattern of one name.
    pub fn domain(key: LabelKey, pattern: DomainPattern) -> Self {
        match (&pattern, pattern.only_name()) {
            (_, Some(name)) => Selector::equals(key, name),
            (DomainPattern::Any, None) => Selector::has(key),
            (_, None) => Selector::Domain(key, pattern),
        }
    }

    /// `has(key)`.
    pub fn has(key: LabelKey) -> Self {
        Selector::Has(key)
    }

    /// The negation of `inner`.
    pub fn negate(inner: Selector) -> Self {
        match inner {
            Selector::Not(inner) => *inner,
            Selector::And(parts) if parts.is_empty() => Selector::none(),
            Selector::Or(parts) if parts.is_empty() => Selector::all(),
            other => Selector::Not(Box::new(other)),
        }
    }

    /// The conjunction of `parts`.
    pub fn and(parts: impl IntoIterator<Item = Selector>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Selector::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.contains(&Selector::none()) {
            return Selector::none();
        }
        Self::normalize(flat, Selector::And)
    }

    /// The disjunction of `parts`.
    pub fn or(parts: impl IntoIterator<Item = Selector>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Selector::Or(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        if flat.contains(&Selector::all()) {
            return Selector::all();
        }
        Self::normalize(flat, Selector::Or)
    }

    fn normalize(mut flat: Vec<Selector>, combine: fn(Vec<Selector>) -> Selector) -> Self {
        flat.sort_unstable();
        flat.dedup();
        match (flat.pop(), flat.is_empty()) {
            (Some(one), true) => one,
            (last, _) => {
                flat.extend(last);
                // Thousands of policies keep theirs.
                flat.shrink_to_fit();
                combine(flat)
            }
        }
    }

    /// Whether the selector matches an object with these labels.
    pub fn matches(&self, labels: &impl LabelLookup) -> bool {
        match self {
            Selector::In(key, values) => labels.label(key).is_some_and(|v| values.contains(v)),
            Selector::Has(key) => labels.label(key).is_some(),
            Selector::Contains(key, text) => labels.label(key).is_some_and(|v| v.contains(&**text)),
            Selector::StartsWith(key, text) => {
                labels.label(key).is_some_and(|v| v.starts_with(&**text))
            }
            Selector::EndsWith(key, text) => {
                labels.label(key).is_some_and(|v| v.ends_with(&**text))
            }
            Selector::Domain(key, pattern) => labels.label(key).is_some_and(|v| pattern.matches(v)),
            Selector::Not(inner) => !inner.matches(labels),
            Selector::And(parts) => parts.iter().all(|p| p.matches(labels)),
            Selector::Or(parts) => parts.iter().any(|p| p.matches(labels)),
        }
    }

    /// Calls `each` with every key that the expression tests; a key can occur several times.
    pub fn for_each_key<'a>(&'a self, each: &mut impl FnMut(&'a LabelKey)) {
        match self {
            Selector::In(key, _)
            | Selector::Has(key)
            | Selector::Contains(key, _)
            | Selector::StartsWith(key, _)
            | Selector::EndsWith(key, _)
            | Selector::Domain(key, _) => each(key),
            Selector::Not(inner) => inner.for_each_key(each),
            Selector::And(parts) | Selector::Or(parts) => {
                for part in parts {
                    part.for_each_key(each);
                }
            }
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |f: &mut fmt::Formatter<'_>, parts: &[Selector], sep: &str| {
            for (i, part) in parts.iter().enumerate() {
                if i > 0 {
                    f.write_str(sep)?;
                }
                match part {
                    Selector::And(p) | Selector::Or(p) if p.len() > 1 => write!(f, "({part})")?,
                    _ => write!(f, "{part}")?,
                }
            }
            Ok(())
        };
        match self {
            Selector::In(key, values) if values.len() == 1 => {
                write!(f, "{key} == {:?}", values.first().map_or("", |v| v))
            }
            Selector::In(key, values) => {
                write!(f, "{key} in {{")?;
                for (i, value) in values.iter().enumerate() {
                    write!(f, "{}{value:?}", if i > 0 { ", " } else { "" })?;
                }
                f.write_str("}")
            }
            Selector::Has(key) => write!(f, "has({key})"),
            Selector::Contains(key, text) => write!(f, "{key} contains {text:?}"),
            Selector::StartsWith(key, text) => write!(f, "{key} starts with {text:?}"),
            Selector::EndsWith(key, text) => write!(f, "{key} ends with {text:?}"),
            Selector::Domain(key, pattern) => write!(f, "{key} like \"{pattern}\""),
            Selector::Not(inner) => match &**inner {
                Selector::In(key, values) if values.len() == 1 => {
                    write!(f, "{key} != {:?}", values.first().map_or("", |v| v))
                }
                Selector::Has(_) => write!(f, "!{inner}"),
                _ => write!(f, "!({inner})"),
            },
            Selector::And(parts) if parts.is_empty() => f.write_str("all()"),
            Selector::Or(parts) if parts.is_empty() => f.write_str("!all()"),
            Selector::And(parts) => joined(f, parts, " && "),
            Selector::Or(parts) => joined(f, parts, " || "),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Labels;
    use alloc::string::ToString;
    use alloc::vec;

    struct ObjectLabels(Labels);
    impl LabelLookup for ObjectLabels {
        fn label(&self, key: &LabelKey) -> Option<&str> {
            self.0.get(&key.name).map(|v| &**v)
        }
    }

    fn has(k: &str) -> Selector {
        Selector::has(LabelKey::own(k))
    }
    fn eq(k: &str, v: &str) -> Selector {
        Selector::equals(LabelKey::own(k), v)
    }

    #[test]
    fn canonical_forms_are_equal_values() {
        assert_eq!(
            Selector::and([has("b"), Selector::and([has("a"), has("b")])]),
            Selector::and([has("a"), has("b")])
        );
        assert_eq!(Selector::and([has("a"), Selector::all()]), has("a"));
        assert_eq!(
            Selector::and([has("a"), Selector::none()]),
            Selector::none()
        );
        assert_eq!(Selector::or([has("a"), Selector::all()]), Selector::all());
        assert_eq!(Selector::negate(Selector::negate(has("a"))), has("a"));
        assert_eq!(
            Selector::is_in(LabelKey::own("a"), vec![]),
            Selector::none()
        );
    }

    #[test]
    fn negative_tests_hold_for_absent_keys() {
        let labels = ObjectLabels(Labels::from([("app".into(), "web".into())]));
        assert!(Selector::negate(eq("tier", "db")).matches(&labels));
        assert!(Selector::not_in(LabelKey::own("tier"), ["db".into()]).matches(&labels));
        assert!(!Selector::negate(eq("app", "web")).matches(&labels));
        assert!(Selector::Contains(LabelKey::own("app"), "e".into()).matches(&labels));
        assert!(!Selector::Contains(LabelKey::own("x"), "".into()).matches(&labels));
    }

    #[test]
    fn text_form() {
        let s = Selector::and([
            eq("a", "1"),
            Selector::or([has("b"), Selector::negate(has("c"))]),
        ]);
        assert_eq!(s.to_string(), "a == \"1\" && (has(b) || !has(c))");
    }
}

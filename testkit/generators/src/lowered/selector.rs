//! Selectors of every operator over every scope.

use super::NAMESPACES;
use super::object::NAMES;
use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{DomainPattern, LabelKey, LabelScope, Selector, Str, reserved};

/// Keys with the values they take, by scope.
pub(super) const OWN: [(&str, &[&str]); 3] = [
    ("app", &["web", "webby", "db"]),
    ("tier", &["front", "back"]),
    ("role", &["", "web"]),
];
pub(super) const NAMESPACE: [(&str, &[&str]); 2] = [("team", &["a", "ab"]), ("env", &["prod"])];
pub(super) const ACCOUNT: [(&str, &[&str]); 1] = [("trust", &["high", "low"])];
pub(super) const ACCOUNTS: [&str; 2] = ["robot", "human"];

/// A selector up to three operators deep.
pub(super) fn selector(dice: &mut Dice, features: &mut Features) -> Selector {
    nested(dice, features, 2)
}

fn nested(dice: &mut Dice, features: &mut Features, depth: u32) -> Selector {
    if depth == 0 {
        return test(dice, features);
    }
    match dice.below(100) {
        0..50 => test(dice, features),
        50..56 => {
            features.insert("selector: all");
            Selector::all()
        }
        56..70 => {
            features.insert("selector: not");
            Selector::negate(nested(dice, features, depth - 1))
        }
        70..85 => {
            features.insert("selector: and");
            let count = dice.between(2, 3);
            Selector::and(
                (0..count)
                    .map(|_| nested(dice, features, depth - 1))
                    .collect::<Vec<_>>(),
            )
        }
        _ => {
            features.insert("selector: or");
            let count = dice.between(2, 3);
            Selector::or(
                (0..count)
                    .map(|_| nested(dice, features, depth - 1))
                    .collect::<Vec<_>>(),
            )
        }
    }
}

fn test(dice: &mut Dice, features: &mut Features) -> Selector {
    if dice.chance(12) {
        return domain(dice, features);
    }
    let (key, values) = key(dice, features);
    let value = *dice.pick(&values);
    match dice.below(100) {
        0..38 => {
            features.insert("selector: equals");
            Selector::equals(key, value)
        }
        38..50 => {
            features.insert("selector: in");
            let some = dice.some(&values, 2);
            Selector::is_in(key, some.into_iter().map(Str::from))
        }
        50..60 => {
            features.insert("selector: not in");
            let some = dice.some(&values, 2);
            Selector::not_in(key, some.into_iter().map(Str::from))
        }
        60..76 => {
            features.insert("selector: has");
            Selector::has(key)
        }
        76..84 => {
            features.insert("selector: contains");
            Selector::Contains(key, part(dice, value))
        }
        84..92 => {
            features.insert("selector: starts with");
            Selector::StartsWith(key, part(dice, value))
        }
        _ => {
            features.insert("selector: ends with");
            Selector::EndsWith(key, part(dice, value))
        }
    }
}

const GLOBS: [&str; 5] = ["*.example.com", "api.*.*", "a*.example.o*", "*", "*.*"];
const TOPS: [&str; 3] = ["example.com", "com", "*.com"];

/// The addresses of a name, or of the names of a pattern.
fn domain(dice: &mut Dice, features: &mut Features) -> Selector {
    let pattern = match dice.below(4) {
        0 => {
            features.insert("selector: name");
            DomainPattern::glob(NAMES[dice.below(NAMES.len())])
        }
        1 => {
            features.insert("selector: pattern of names");
            DomainPattern::glob(GLOBS[dice.below(GLOBS.len())])
        }
        2 => {
            features.insert("selector: names below");
            DomainPattern::below(TOPS[dice.below(TOPS.len())])
        }
        _ => {
            features.insert("selector: any name");
            Ok(DomainPattern::Any)
        }
    };
    let key = LabelKey::reserved(reserved::DOMAIN);
    pattern.map_or_else(
        |_| Selector::none(),
        |pattern| Selector::domain(key, pattern),
    )
}

/// A pattern of the names that may be asked for.
pub(super) fn domain_pattern(dice: &mut Dice) -> DomainPattern {
    let pattern = match dice.below(4) {
        0 | 1 => DomainPattern::glob(NAMES[dice.below(NAMES.len())]),
        2 => DomainPattern::glob(GLOBS[dice.below(GLOBS.len())]),
        _ => DomainPattern::below(TOPS[dice.below(TOPS.len())]),
    };
    pattern.unwrap_or(DomainPattern::Any)
}

fn part(dice: &mut Dice, value: &str) -> Str {
    let from = dice.below(value.len().min(2));
    let to = dice.between(from, value.len());
    value[from..to].into()
}

fn key(dice: &mut Dice, features: &mut Features) -> (LabelKey, Vec<&'static str>) {
    let (scope, from): (LabelScope, &[(&'static str, &[&'static str])]) = match dice.below(100) {
        0..60 => (LabelScope::Own, &OWN),
        60..75 => (LabelScope::Namespace, &NAMESPACE),
        75..83 => (LabelScope::ServiceAccount, &ACCOUNT),
        _ => return reserved_key(dice, features),
    };
    let (name, values) = *dice.pick(from);
    match scope {
        LabelScope::Namespace => {
            features.insert("label of the namespace");
            if dice.chance(20) {
                let name = LabelKey::namespace("kubernetes.io/metadata.name");
                return (name, NAMESPACES.to_vec());
            }
            (LabelKey::namespace(name), values.to_vec())
        }
        LabelScope::ServiceAccount => {
            features.insert("label of the service account");
            (LabelKey::service_account(name), values.to_vec())
        }
        _ => (LabelKey::own(name), values.to_vec()),
    }
}

fn reserved_key(dice: &mut Dice, features: &mut Features) -> (LabelKey, Vec<&'static str>) {
    let (name, feature, values): (&str, &'static str, Vec<&'static str>) = match dice.below(4) {
        0 => (
            reserved::KIND,
            "reserved: kind",
            vec![
                reserved::KIND_WORKLOAD,
                reserved::KIND_HOST,
                reserved::KIND_NODE,
                reserved::KIND_NETWORK_SET,
            ],
        ),
        1 => (
            reserved::NAMESPACE,
            "reserved: namespace",
            NAMESPACES.to_vec(),
        ),
        2 => (
            reserved::NAME,
            "reserved: name",
            vec!["e-0", "e-1", "e-2", "e-3"],
        ),
        _ => (
            reserved::SERVICE_ACCOUNT,
            "reserved: service account",
            ACCOUNTS.to_vec(),
        ),
    };
    features.insert(feature);
    (LabelKey::reserved(name), values)
}

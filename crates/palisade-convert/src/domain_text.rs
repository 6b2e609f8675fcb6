//! Domain names as ClusterNetworkPolicy and Calico write them: a name, or one with `*.` in front.
//!
//! Promises: a text means exactly the names of its pattern; a pattern without such a text is refused.

use crate::inexpressible::InexpressibleReason;
use crate::target::TargetDialect;
use palisade_model::{DomainPattern, LabelKey, Selector, reserved};

/// The patterns of a test of names; `None` if it tests anything else.
pub(crate) fn patterns(selector: &Selector) -> Option<Vec<DomainPattern>> {
    let own = LabelKey::reserved(reserved::DOMAIN);
    match selector {
        Selector::Or(parts) if !parts.is_empty() => {
            let parts = parts.iter().map(patterns);
            Some(parts.collect::<Option<Vec<_>>>()?.concat())
        }
        Selector::In(key, names) if *key == own => {
            let names = names.iter().map(|name| DomainPattern::glob(name).ok());
            names.collect()
        }
        Selector::Has(key) if *key == own => Some(vec![DomainPattern::Any]),
        Selector::Domain(key, pattern) if *key == own => Some(vec![pattern.clone()]),
        _ => None,
    }
}

/// The text of a pattern.
pub(crate) fn text(
    pattern: &DomainPattern,
    target: TargetDialect,
) -> Result<String, InexpressibleReason> {
    let (prefix, name) = match pattern {
        DomainPattern::Glob(name) => ("", name),
        DomainPattern::Below(name) => ("*.", name),
        DomainPattern::Any => ("", &"*".into()),
    };
    let is_sayable = match target {
        TargetDialect::Calico => !name.contains('*'),
        // The labels that the published CRD allows.
        TargetDialect::ClusterNetworkPolicy => name.contains('.') && name.split('.').all(is_label),
        TargetDialect::Kubernetes | TargetDialect::Cilium => false,
    };
    if is_sayable {
        Ok(format!("{prefix}{name}"))
    } else {
        Err(InexpressibleReason::NamePattern {
            target,
            pattern: pattern.to_string(),
        })
    }
}

fn is_label(label: &str) -> bool {
    !label.contains('*')
        && !label.starts_with('-')
        && (label == "_" || label.ends_with(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_means_the_same_has_a_text() {
        let glob = |text: &str| DomainPattern::glob(text).ok();
        let below = |text: &str| DomainPattern::below(text).ok();
        for (pattern, cluster, calico) in [
            (glob("a.b"), Some("a.b"), Some("a.b")),
            (glob("a"), None, Some("a")),
            (below("a.b"), Some("*.a.b"), Some("*.a.b")),
            (below("a"), None, Some("*.a")),
            (glob("*.a.b"), None, None),
            (glob("a*.b"), None, None),
            (below("*.a.b"), None, None),
            (glob("a-.b"), None, Some("a-.b")),
            (Some(DomainPattern::Any), None, None),
        ] {
            let pattern = pattern.unwrap();
            for (target, expected) in [
                (TargetDialect::ClusterNetworkPolicy, cluster),
                (TargetDialect::Calico, calico),
                (TargetDialect::Cilium, None),
            ] {
                let found = text(&pattern, target).ok();
                assert_eq!(found.as_deref(), expected, "{pattern} {target}");
            }
        }
    }
}

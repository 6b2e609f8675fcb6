//! The domain names of a rule's destination.
//!
//! Promises: a text without `*` is that name; `*.` in front is one label or several. Source: Calico Enterprise, "DNS
//! policy". A `*` at another place, several of them, and texts that are no names are not understood.

use crate::faults::DialectFault;
use palisade_model::{DomainName, DomainPattern};

/// The pattern that a text is; `None` if it is not understood.
pub(super) fn parse_pattern(text: &str) -> Option<DomainPattern> {
    match text.strip_prefix("*.") {
        Some(rest) => {
            let parent: DomainName = rest.parse().ok()?;
            if DialectFault::DomainWildcardIsOneLabel.is_injected() {
                return DomainPattern::glob(text).ok();
            }
            DomainPattern::below(parent.as_str()).ok()
        }
        None => {
            let name: DomainName = text.parse().ok()?;
            DomainPattern::glob(name.as_str()).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::parse_pattern;

    #[test]
    fn names_and_wildcards_in_front() {
        for (text, pattern) in [
            ("Microsoft.com.", Some("microsoft.com")),
            ("localhost", Some("localhost")),
            ("*.google.com", Some("**.google.com")),
            ("*.com", Some("**.com")),
            ("*", None),
            ("*.", None),
            ("", None),
            ("www.*.com", None),
            ("www.google.*", None),
            ("*.*.google.com", None),
            ("**.google.com", None),
            ("www.g*.com", None),
            ("*google.com", None),
            ("a..b", None),
            ("a b", None),
        ] {
            let found = parse_pattern(text).map(|pattern| pattern.to_string());
            assert_eq!(found.as_deref(), pattern, "{text:?}");
        }
        let pattern = parse_pattern("*.google.com").unwrap();
        for (name, matched) in [
            ("www.google.com", true),
            ("www.ipv6.google.com", true),
            ("google.com", false),
        ] {
            assert_eq!(pattern.matches(name), matched, "{name}");
        }
    }
}

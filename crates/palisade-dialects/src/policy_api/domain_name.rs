//! Domain names of peers.
//!
//! Promises: `*.` in front is one label or several, and never the name behind it alone; no case, and no dot at the end.

use crate::faults::DialectFault;
use palisade_model::{DomainNameError, DomainPattern};

/// The patterns that a valid text is.
pub(super) fn parse_patterns(text: &str) -> Result<Vec<DomainPattern>, DomainNameError> {
    let Some(rest) = text.strip_prefix("*.") else {
        return Ok(vec![DomainPattern::glob(text)?]);
    };
    if DialectFault::WildcardIsOneLabel.is_injected() {
        return Ok(vec![DomainPattern::glob(text)?]);
    }
    let mut patterns = vec![DomainPattern::below(rest)?];
    if DialectFault::WildcardMatchesBareName.is_injected() {
        patterns.push(DomainPattern::glob(rest)?);
    }
    Ok(patterns)
}

/// Why a text is not a domain name, or a domain name after `*.`; `None` if it is.
///
/// The labels are those that the published CRD allows: letters, digits, `-` and `_`, with a letter or digit
/// first and last; at least two; a dot at the end is allowed.
pub(super) fn rejection(text: &str) -> Option<&'static str> {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.contains('*') {
        return Some("`*` stands for whole labels, and only in front: `*.example.com`");
    }
    if !name.split('.').all(is_label) {
        return Some(
            "labels have letters, digits, '-' and '_', with a letter or digit first and last",
        );
    }
    (!name.contains('.')).then_some("at least two labels are required")
}

fn is_label(label: &str) -> bool {
    let bytes = label.as_bytes();
    let is_inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    // The pattern of the CRD also allows what ASCII has between `Z` and `a`; of that, only `_` is in use.
    let is_first = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    match bytes {
        [only] => is_first(only),
        [first, inner @ .., last] => {
            is_first(first) && inner.iter().all(is_inner) && last.is_ascii_alphanumeric()
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_patterns, rejection};

    #[test]
    fn a_wildcard_is_one_label_or_several() {
        for (text, matched, unmatched) in [
            ("Example.COM.", &["example.com"][..], &["a.example.com"][..]),
            (
                "*.Example.com",
                &["a.example.com", "b.a.example.com"],
                &["example.com", "aexample.com", "com"],
            ),
        ] {
            let patterns = parse_patterns(text).unwrap();
            let is_match = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
            assert!(matched.iter().all(|name| is_match(name)), "{text}");
            assert!(!unmatched.iter().any(|name| is_match(name)), "{text}");
        }
        let long = ["a".repeat(64).as_str(), ".example.com"].concat();
        assert_eq!(rejection(&long), None);
        assert!(parse_patterns(&long).is_err());
    }

    #[test]
    fn names_as_the_pattern_of_the_crd() {
        for name in [
            "kubernetes.io",
            "*.kubernetes.io",
            "a.b.c.d",
            "A-1.Example.COM",
            "example.com.",
            "1.2",
            "a_b.example.com",
            "_dmarc.example.com",
        ] {
            assert_eq!(rejection(name), None, "{name}");
        }
        for (name, part) in [
            ("", "labels have"),
            ("localhost", "at least two"),
            ("*.io", "at least two"),
            ("*", "stands for whole labels"),
            ("*a.example.com", "stands for whole labels"),
            ("a.*.example.com", "stands for whole labels"),
            ("*.*.example.com", "stands for whole labels"),
            ("a..example.com", "labels have"),
            (".example.com", "labels have"),
            ("-a.example.com", "labels have"),
            ("a-.example.com", "labels have"),
            ("a b.example.com", "labels have"),
            ("example.com..", "labels have"),
            ("bücher.example", "labels have"),
        ] {
            let reason = rejection(name).unwrap_or_default();
            assert!(reason.contains(part), "{name}: {reason}");
        }
    }
}

//! Names and patterns of names, of `toFQDNs` and of DNS rules.
//!
//! Promises: `*` stands for characters of one label, none included; `*` alone is every name; `**.` in front is one
//! label or several, and elsewhere `**` is `*`; no case, and no dot at the end. Source: Cilium, "DNS based".
//!
//! Never: widens what it cannot say; a text that no name can match gives no pattern, and a warning.

use crate::faults::DialectFault;
use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};
use palisade_model::{DomainNameError, DomainPattern};

const KNOWN: &[&str] = &["matchName", "matchPattern"];
/// The maximum length of a name and of a pattern. Source: the published CRD.
const MAX_LENGTH: usize = 255;

/// Reads an item with `matchName` or `matchPattern`; `None` if it matches no name.
pub(super) fn read(field: &Field<'_>, report: &mut ObjectReport) -> Option<DomainPattern> {
    if !report.is_object(field) {
        return None;
    }
    report.check_fields(field, KNOWN, &[]);
    let name = report.text(field, "matchName");
    let pattern = report.text(field, "matchPattern");
    if name.is_none() && pattern.is_none() && !has_any(field) {
        report.error(
            field,
            "one of matchName and matchPattern is required; none is there",
        );
    }
    if let (Some(_), Some((_, at))) = (&name, &pattern) {
        report.error(at, "matchPattern must not be given beside matchName");
    }
    let mut read = None;
    for (written, is_pattern) in [(name, false), (pattern, true)] {
        let Some((text, at)) = written else {
            continue;
        };
        if let Some(reason) = rejection(text, is_pattern) {
            let what = if is_pattern {
                "pattern of names"
            } else {
                "name"
            };
            report.error(&at, format!("{} is not a {what}: {reason}", quote(text)));
            continue;
        }
        match parse_pattern(text) {
            Ok(pattern) => read = Some(pattern),
            Err(reason) => report.warn(&at, format!("no name can match it: {reason}")),
        }
    }
    read
}

/// The pattern that a valid text is. A name is a pattern without `*`.
fn parse_pattern(text: &str) -> Result<DomainPattern, DomainNameError> {
    if DialectFault::CaseOfNamesKept.is_injected() && text.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(DomainNameError::Character);
    }
    if text == "*" {
        return Ok(DomainPattern::Any);
    }
    match text.strip_prefix("**.").filter(|rest| !rest.is_empty()) {
        Some(rest) if DialectFault::SubdomainsAreOneLabel.is_injected() => {
            DomainPattern::glob(&format!("*.{}", single_stars(rest)))
        }
        Some(rest) => DomainPattern::below(&single_stars(rest)),
        None => {
            let text = single_stars(text);
            match text.strip_prefix("*.").filter(|rest| !rest.is_empty()) {
                Some(rest) if DialectFault::StarCrossesDots.is_injected() => {
                    DomainPattern::below(rest)
                }
                _ => DomainPattern::glob(&text),
            }
        }
    }
}

/// A text with one `*` for several in a row, which mean the same.
fn single_stars(text: &str) -> String {
    let mut single = String::with_capacity(text.len());
    for c in text.chars() {
        if c != '*' || !single.ends_with('*') {
            single.push(c);
        }
    }
    single
}

fn has_any(field: &Field<'_>) -> bool {
    let is_there = |key: &&str| field.get(key).ok().flatten().is_some();
    KNOWN.iter().any(is_there)
}

/// Why a text is no name, or no pattern.
fn rejection(text: &str, is_pattern: bool) -> Option<&'static str> {
    let is_allowed = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_') || is_pattern && c == '*'
    };
    if text.is_empty() {
        Some("it is empty")
    } else if text.len() > MAX_LENGTH {
        Some("it is longer than 255 characters")
    } else if text.chars().all(is_allowed) {
        has_empty_part(text).then_some("a part between two dots is empty")
    } else if is_pattern {
        Some("letters, digits, '-', '.', '_' and '*' are allowed")
    } else {
        Some("letters, digits, '-', '.' and '_' are allowed")
    }
}

/// Whether a part is empty, except after a dot at the end.
fn has_empty_part(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    text.split('.').any(str::is_empty)
}

/// Why a text is no name of servers, maybe with `*.` or `**.` before it.
pub(super) fn server_name_rejection(text: &str) -> Option<&'static str> {
    let name = text.strip_prefix("**.").or_else(|| text.strip_prefix("*."));
    match rejection(name.unwrap_or(text), false) {
        None if text.len() > MAX_LENGTH => Some("it is longer than 255 characters"),
        reason => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::{parse_pattern, rejection, server_name_rejection};
    use palisade_model::DomainPattern;

    fn shown(text: &str) -> Option<String> {
        parse_pattern(text).ok().map(|pattern| pattern.to_string())
    }

    #[test]
    fn patterns_mean_what_cilium_says() {
        for (text, matched, unmatched) in [
            (
                "Example.COM.",
                &["example.com"][..],
                &["a.example.com", "com"][..],
            ),
            (
                "*.cilium.io",
                &["sub.cilium.io"],
                &["cilium.io", "a.b.cilium.io"],
            ),
            (
                "*cilium.io",
                &["cilium.io", "subcilium.io"],
                &["sub.cilium.io"],
            ),
            (
                "sub*.cilium.io",
                &["sub.cilium.io", "sub-1.cilium.io"],
                &["sub.a.cilium.io"],
            ),
            ("sub.*.io", &["sub.a.io"], &["sub.io", "sub.a.b.io"]),
            ("*", &["a", "a.b.c"], &[]),
            ("*.", &["a"], &["a.b"]),
            ("**", &["a"], &["a.b"]),
            ("**.", &["a"], &["a.b"]),
            (
                "**.Cilium.io",
                &["a.cilium.io", "a.b.cilium.io"],
                &["cilium.io", "xcilium.io"],
            ),
            (
                "a**.cilium.io",
                &["a.cilium.io", "ab.cilium.io"],
                &["a.b.cilium.io"],
            ),
            ("a.**.io", &["a.b.io"], &["a.b.c.io", "a.io"]),
            ("***.io", &["a.io"], &["a.b.io", "io"]),
            ("**.*.io", &["a.b.io", "a.b.c.io"], &["a.io"]),
        ] {
            let pattern = parse_pattern(text).unwrap();
            for name in matched {
                assert!(pattern.matches(name), "{text} {name}");
            }
            for name in unmatched {
                assert!(!pattern.matches(name), "{text} {name}");
            }
        }
        assert_eq!(parse_pattern("*"), Ok(DomainPattern::Any));
        assert_eq!(shown("a**b.**.c").as_deref(), Some("a*b.*.c"));
        assert_eq!(shown(&["a".repeat(64).as_str(), ".b"].concat()), None);
    }

    #[test]
    fn names_of_servers() {
        for (text, is_name) in [
            ("example.com", true),
            ("*.example.com", true),
            ("**.example.com", true),
            ("example.com.", true),
            ("*", false),
            ("*.", false),
            ("a.*.com", false),
            ("a..com", false),
        ] {
            assert_eq!(server_name_rejection(text).is_none(), is_name, "{text}");
        }
    }

    #[test]
    fn names_and_patterns() {
        for (text, name, pattern) in [
            ("cilium.io", true, true),
            ("A_b-1.example.com.", true, true),
            ("*.cilium.io", false, true),
            ("**.cilium.io", false, true),
            ("*", false, true),
            ("", false, false),
            ("a b", false, false),
            ("a/b", false, false),
            ("a..b", false, false),
            (".a", false, false),
            ("*..b", false, false),
            ("bücher.example", false, false),
        ] {
            assert_eq!(rejection(text, false).is_none(), name, "{text}");
            assert_eq!(rejection(text, true).is_none(), pattern, "{text}");
        }
    }
}

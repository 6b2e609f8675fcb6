//! Names of `toFQDNs` and of DNS rules: validated only.

use crate::report::ObjectReport;
use palisade_manifest::{Field, quote};

const KNOWN: &[&str] = &["matchName", "matchPattern"];
/// The maximum length of a name and of a pattern. Source: the published CRD.
const MAX_LENGTH: usize = 255;

/// Adds errors for an item with `matchName` or `matchPattern`.
pub(super) fn check(field: &Field<'_>, report: &mut ObjectReport) {
    if !report.is_object(field) {
        return;
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
    for (written, is_pattern) in [(name, false), (pattern, true)] {
        if let Some((text, at)) = written
            && let Some(reason) = rejection(text, is_pattern)
        {
            let what = if is_pattern {
                "pattern of names"
            } else {
                "name"
            };
            report.error(&at, format!("{} is not a {what}: {reason}", quote(text)));
        }
    }
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
    use super::{rejection, server_name_rejection};

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

//! Validation of names, label keys, label values and port names.
//!
//! Each check returns the errors of a text, none if it is valid. The rules are those of the API server, so
//! that a text that passes here is accepted there.

use palisade_manifest::quote_up_to;
use std::fmt;

const LABEL_LENGTH: usize = 63;
/// The maximum length of names and of the prefix of a label key, in bytes.
const SUBDOMAIN_LENGTH: usize = 253;
const PORT_NAME_LENGTH: usize = 15;

/// Errors of a name that must be a DNS label, such as the name of a namespace.
pub(crate) fn dns_label_errors(text: &str) -> Vec<String> {
    let shown = QuotedName(text);
    let mut reasons = length_errors(text, LABEL_LENGTH);
    if !is_dns_label(text) {
        reasons.push(if is_dns_subdomain(text) {
            format!("{shown} must not contain dots")
        } else {
            format!(
                "{shown} is not a DNS label: lower case letters, digits and '-', with a letter or \
                 digit first and last"
            )
        });
    }
    reasons
}

/// Errors of a name that must be a DNS subdomain, such as that of most objects.
pub(crate) fn dns_subdomain_errors(text: &str) -> Vec<String> {
    let shown = QuotedName(text);
    let mut reasons = length_errors(text, SUBDOMAIN_LENGTH);
    if !is_dns_subdomain(text) {
        reasons.push(format!(
            "{shown} is not a DNS subdomain: lower case letters, digits, '-' and '.', with a letter \
             or digit first and last in every part"
        ));
    }
    reasons
}

/// Errors of a label key: a name, or a DNS subdomain, a slash and a name.
pub(crate) fn label_key_errors(text: &str) -> Vec<String> {
    let shown = QuotedName(text);
    let (prefix, name) = match text.split_once('/') {
        None => (None, text),
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "{shown} is not a label key: it has more than one slash"
            )];
        }
        Some((prefix, name)) => (Some(prefix), name),
    };
    let mut reasons = Vec::new();
    match prefix {
        Some("") => reasons.push(format!(
            "{shown} is not a label key: there is nothing before the slash"
        )),
        Some(prefix) => reasons.extend(
            dns_subdomain_errors(prefix)
                .into_iter()
                .map(|reason| format!("the label key's prefix {reason}")),
        ),
        None => {}
    }
    if name.is_empty() {
        reasons.push(format!("{shown} is not a label key: its name is empty"));
        return reasons;
    }
    reasons.extend(length_errors(name, LABEL_LENGTH));
    if !is_label_text(name) {
        reasons.push(format!(
            "{shown} is not a label key: letters, digits, '-', '_' and '.', with a letter or digit \
             first and last"
        ));
    }
    reasons
}

/// Errors of a label value.
pub(crate) fn label_value_errors(text: &str) -> Vec<String> {
    let shown = QuotedName(text);
    let mut reasons = length_errors(text, LABEL_LENGTH);
    if !text.is_empty() && !is_label_text(text) {
        reasons.push(format!(
            "{shown} is not a label value: letters, digits, '-', '_' and '.', with a letter or \
             digit first and last, or nothing"
        ));
    }
    reasons
}

/// Errors of a port name: an IANA service name in lower case.
pub(crate) fn port_name_errors(text: &str) -> Vec<String> {
    let shown = QuotedName(text);
    if text.is_empty() {
        return vec!["a port name must not be empty".to_owned()];
    }
    let mut reasons = length_errors(text, PORT_NAME_LENGTH);
    if text.bytes().all(|b| b.is_ascii_digit()) {
        reasons.push(format!(
            "{shown} has only digits: a port name needs a letter, and a port number must not be quoted"
        ));
        return reasons;
    }
    let of_names = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !text.bytes().all(of_names) {
        reasons.push(format!(
            "{shown} is not a port name: only lower case letters, digits and '-'"
        ));
    } else if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        reasons.push(format!(
            "{shown} is not a port name: it needs at least one letter"
        ));
    }
    if text.contains("--") {
        reasons.push(format!("{shown} is not a port name: two hyphens in a row"));
    }
    if text.starts_with('-') || text.ends_with('-') {
        reasons.push(format!(
            "{shown} is not a port name: a hyphen first or last"
        ));
    }
    reasons
}

/// Errors of the name of a port in rules of Calico. Source: Calico, `numorstring.Port`.
pub(crate) fn calico_port_name_errors(text: &str) -> Vec<String> {
    const LENGTH: usize = 128;
    let mut reasons = length_errors(text, LENGTH);
    let is_part = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if text.is_empty() || !text.bytes().all(is_part) {
        reasons.push(format!(
            "{} is not a port: a number, first:last, or a name of letters, digits, '-', '_' and '.'",
            QuotedName(text)
        ));
    }
    reasons
}

/// A quoted text, cut after the maximum length of a name.
#[derive(Clone, Copy)]
struct QuotedName<'a>(&'a str);

impl fmt::Display for QuotedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&quote_up_to(self.0, SUBDOMAIN_LENGTH))
    }
}

fn length_errors(text: &str, most: usize) -> Vec<String> {
    if text.len() <= most {
        return Vec::new();
    }
    vec![format!("{} bytes are too long: at most {most}", text.len())]
}

fn is_dns_label(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_dns_subdomain(text: &str) -> bool {
    text.split('.').all(is_dns_label)
}

fn is_label_text(text: &str) -> bool {
    let end = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    end(text.bytes().next())
        && end(text.bytes().last())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&str) -> Vec<String>;

    #[test]
    fn what_passes_and_what_does_not() {
        let long = "a".repeat(64);
        let longer = "a".repeat(254);
        let cases: [(Check, &[&str], &[&str]); 5] = [
            (
                dns_label_errors,
                &["a", "a-1", "0"],
                &["", "A", "-a", "a-", "a.b", "a_b", &long],
            ),
            (
                dns_subdomain_errors,
                &["a", "a.b-c.0", &long],
                &["", "a..b", ".a", "a.", "A", &longer],
            ),
            (
                label_key_errors,
                &["a", "A_b.c-D", "x.io/A", "0"],
                &["", "/a", "a/", "a/b/c", "X/a", "-a", "a b", &long],
            ),
            (
                label_value_errors,
                &["", "a", "A_b.c-D"],
                &["-a", "a b", "é", &long],
            ),
            (
                port_name_errors,
                &["http", "a1-b", "1a"],
                &[
                    "",
                    "80",
                    "-",
                    "1-2",
                    "a--b",
                    "-a",
                    "a-",
                    "Http",
                    "sixteen-letters-",
                ],
            ),
        ];
        for (check, sound, unsound) in cases {
            for text in sound {
                assert_eq!(check(text), Vec::<String>::new(), "{text}");
            }
            for text in unsound {
                assert_ne!(check(text), Vec::<String>::new(), "{text}");
            }
        }
    }
}

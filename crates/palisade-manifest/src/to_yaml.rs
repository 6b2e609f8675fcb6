//! Writes JSON values as YAML documents.
//!
//! Promises: a YAML reader gets exactly the value, whichever version of YAML it reads: a text that could be read as
//! anything else is quoted. Never: keeps comments or anchors, which a value does not have.

use serde_json::Value;
use std::fmt::Write as _;

/// A document of block YAML, with a line feed at its end.
#[must_use]
pub fn to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(map, 0, false, &mut out),
        Value::Array(items) if !items.is_empty() => write_list(items, 0, &mut out),
        other => {
            write_scalar(other, &mut out);
            out.push('\n');
        }
    }
    out
}

fn indent(depth: usize, out: &mut String) {
    out.extend(std::iter::repeat_n("  ", depth));
}

/// The fields of a map; the first stands behind a dash where `is_item`.
fn write_map(map: &serde_json::Map<String, Value>, depth: usize, is_item: bool, out: &mut String) {
    for (place, (key, value)) in map.iter().enumerate() {
        if place > 0 || !is_item {
            indent(depth, out);
        }
        write_text(key, out);
        out.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                out.push('\n');
                write_map(inner, depth + 1, false, out);
            }
            Value::Array(items) if !items.is_empty() => {
                out.push('\n');
                write_list(items, depth, out);
            }
            scalar => {
                out.push(' ');
                write_scalar(scalar, out);
                out.push('\n');
            }
        }
    }
}

fn write_list(items: &[Value], depth: usize, out: &mut String) {
    for item in items {
        indent(depth, out);
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_map(map, depth + 1, true, out),
            // No manifest has lists in lists: JSON is YAML as well.
            other => {
                write_scalar(other, out);
                out.push('\n');
            }
        }
    }
}

fn write_scalar(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => write_text(text, out),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn write_text(text: &str, out: &mut String) {
    if is_plain(text) {
        out.push_str(text);
    } else {
        // A string of JSON is one of YAML. What is not ASCII is escaped, so that nothing on the way changes it.
        for c in Value::String(text.to_owned()).to_string().chars() {
            let _ = match (c.is_ascii(), u32::from(c)) {
                (true, _) => write!(out, "{c}"),
                (false, code) if code > 0xffff => write!(out, "\\U{code:08x}"),
                (false, code) => write!(out, "\\u{code:04x}"),
            };
        }
    }
}

/// Whether a text without quotes is read as itself by every reader.
fn is_plain(text: &str) -> bool {
    const WORDS: [&str; 11] = [
        "y", "n", "yes", "no", "true", "false", "on", "off", "null", "nan", "inf",
    ];
    let is_safe = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let begins_safe = text.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_word = WORDS.contains(&&*text.to_ascii_lowercase());
    begins_safe && !is_word && text.chars().all(is_safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_document() {
        let value = json!({
            "apiVersion": "v1",
            "metadata": {"name": "a", "labels": {"k8s:app": "1", "x": "yes", "e": ""}},
            "spec": {"podSelector": {}, "ingress": [
                {"from": [{"podSelector": {"matchLabels": {"app": "web"}}}], "ports": [{"port": 80}]},
                {}
            ], "egress": [], "order": 1000.5}
        });
        assert_eq!(
            to_yaml(&value),
            "apiVersion: v1\nmetadata:\n  name: a\n  labels:\n    \"k8s:app\": \"1\"\n    x: \"yes\"\n    e: \"\"\n\
             spec:\n  podSelector: {}\n  ingress:\n  - from:\n    - podSelector:\n        matchLabels:\n          app: web\n\
             \x20   ports:\n    - port: 80\n  - {}\n  egress: []\n  order: 1000.5\n"
        );
    }

    #[test]
    fn only_words_are_plain() {
        for text in ["web", "io.cilium/x", "a-b", "Ingress"] {
            assert!(is_plain(text), "{text}");
        }
        for text in [
            "", "1", "0x1", "-a", "no", "True", "a b", "a: b", "a#b", "~", ".inf", "fd00::/8", "é",
        ] {
            assert!(!is_plain(text), "{text}");
        }
    }
}

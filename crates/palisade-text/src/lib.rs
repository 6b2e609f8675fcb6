//! Text for output: escaping of untrusted input ([`printable`]), and errors with their causes ([`error_chain`]).
//!
//! For all output of the programs as text or JSON (results, problems, the log, metrics) that may contain text
//! chosen by others: a name, a value, a file name.
//!
//! Promises: the output contains no character that controls a terminal, or that hides or reorders the text
//! around it (see [`is_unprintable`]); such a character is replaced by an escape, everything else is
//! unchanged.
//!
//! Never: truncates a text, quotes it, or produces escapes that can be distinguished from the same characters
//! in the input.

#![no_std]

extern crate alloc;

mod error_chain;

pub use error_chain::error_chain;

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write;

/// Whether a character must be escaped: a control character (U+0000 to U+001F, U+007F to U+009F), a line or
/// paragraph separator, or a character that sets the direction of text or marks annotations.
#[must_use]
pub const fn is_unprintable(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{fff9}'..='\u{fffb}')
}

/// A text with unprintable characters escaped, line breaks included: `
/// `, `\t`, `\u{1b}`.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escape_where(text, is_unprintable, |out, c| {
        out.extend(c.escape_default())
    })
}

/// The same for text of several lines: line feeds are kept.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let hidden = |c| c != '\n' && is_unprintable(c);
    escape_where(text, hidden, |out, c| out.extend(c.escape_default()))
}

/// A JSON text with unprintable characters in its strings escaped; line feeds are kept. Its meaning is
/// unchanged, because such characters can only occur in strings, where `\u001b` is equivalent.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let hidden = |c| c != '\n' && is_unprintable(c);
    escape_where(json, hidden, |out, c| {
        // All of them are below U+10000. Writing to a String cannot fail.
        let _ = write!(out, "\\u{:04x}", u32::from(c));
    })
}

/// A value of a label in the text format of Prometheus, without its quotes: safe to print, and escaped.
#[must_use]
pub fn escape_metric_label(value: &str) -> String {
    printable_lines(value)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn escape_where(
    text: &str,
    must_escape: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    // Nearly all text has only such bytes, which is quick to check.
    let keeps_line_feeds = !must_escape('\n');
    let plain = |byte: u8| matches!(byte, b' '..=b'~') || keeps_line_feeds && byte == b'\n';
    if text.bytes().all(plain) || !text.contains(&must_escape) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if must_escape(c) {
            escape(&mut out, c)
        } else {
            out.push(c)
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_hidden_is_left() {
        let every: String = ('\0'..=char::MAX).collect();
        for shown in [printable(&every), printable_lines(&every)] {
            let left = shown.chars().find(|c| is_unprintable(*c) && *c != '\n');
            assert_eq!(left, None);
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'));
        }
        assert!(!printable(&every).contains('\n'));
        assert!(printable_lines(&every).contains('\n'));
    }

    #[test]
    fn escapes() {
        assert_eq!(
            printable("a\u{1b}[31m\n\u{9b}\u{202e}é😀"),
            "a\\u{1b}[31m\\n\\u{9b}\\u{202e}é😀"
        );
        assert_eq!(printable_lines("a\r\nb\t\n"), "a\\r\nb\\t\n");
        assert!(matches!(printable("shop/web é"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_keeps_its_meaning() {
        assert_eq!(
            printable_json("{\n  \"a\": \"\u{7f}\u{85}\u{2028}\"\n}"),
            "{\n  \"a\": \"\\u007f\\u0085\\u2028\"\n}"
        );
    }
}

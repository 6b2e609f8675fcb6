//! Text from input, made fit to be printed.
//!
//! For: everything that leaves the programs as text or JSON (answers, problems, the log, metrics),
//! and may hold a word that somebody else chose: a name, a value, the name of a file.
//!
//! Promises: what comes out carries no character that a terminal acts upon or that hides or reorders
//! what is beside it (see [`is_unprintable`]); such a character is shown as an escape, everything else is
//! as it was.
//!
//! Never: cuts a text, quotes it, or makes escapes that can be told from the same letters in the
//! input.

#![no_std]

extern crate alloc;

use alloc::borrow::Cow;
use alloc::string::String;
use core::fmt::Write;

/// Whether a character is never printed as it is: a control character (U+0000 to U+001F, U+007F to
/// U+009F), a line or paragraph separator, or a character that sets the direction of text or marks
/// annotations.
#[must_use]
pub const fn is_unprintable(c: char) -> bool {
    matches!(c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{fff9}'..='\u{fffb}')
}

/// A text without hidden characters, line breaks included: `\n`, `\t`, `\u{1b}` stand for them.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escape_where(text, is_unprintable, |out, c| {
        out.extend(c.escape_default())
    })
}

/// The same for a text of several lines: line feeds stay.
#[must_use]
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    let hidden = |c| c != '\n' && is_unprintable(c);
    escape_where(text, hidden, |out, c| out.extend(c.escape_default()))
}

/// A JSON text without hidden characters in its strings; line feeds stay. Its meaning is the same,
/// because whatever is hidden can only stand in a string, where `\u001b` stands for it.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    let hidden = |c| c != '\n' && is_unprintable(c);
    escape_where(json, hidden, |out, c| {
        // All of them are below U+10000. Writing to a String cannot fail.
        let _ = write!(out, "\\u{:04x}", u32::from(c));
    })
}

fn escape_where(
    text: &str,
    must_escape: impl Fn(char) -> bool,
    escape: impl Fn(&mut String, char),
) -> Cow<'_, str> {
    // Nearly every text is of such bytes alone, which is found fast.
    let keeps_line_feeds = !must_escape('\n');
    let plain = |byte: u8| matches!(byte, b' '..=b'~') || keeps_line_feeds && byte == b'\n';
    if text.bytes().all(plain) || !text.contains(&must_escape) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match must_escape(c) {
            true => escape(&mut out, c),
            false => out.push(c),
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

//! What a value is called in a message, and how much of it a message carries.
//!
//! Whatever a file holds, a message about it stays short: a text is quoted to a bound, and a name
//! longer than any that the API server allows is cut where it is first taken.

use crate::node::{ManifestNode, ManifestValue};

/// How many characters of a text a message quotes.
const MAX_QUOTED_CHARS: usize = 60;
/// The longest name that is kept whole, in bytes. The API server allows none that is longer.
pub(crate) const MAX_NAME_BYTES: usize = 253;
/// How many characters of a longer name are kept.
const KEPT_NAME_CHARS: usize = 64;
/// How many bytes of a reason, or of a field's path, a message carries.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// The value in words, with what the file says where that differs.
pub(crate) fn describe(node: &ManifestNode) -> String {
    let description = match &node.value {
        ManifestValue::Null => "null".to_owned(),
        ManifestValue::Bool(value) => format!("the boolean {value}"),
        ManifestValue::Int(value) => format!("the number {value}"),
        ManifestValue::Float(value) => format!("the number {value}"),
        ManifestValue::String(text) => format!("the text {}", quote(text)),
        ManifestValue::List(items) if items.is_empty() => "an empty list".to_owned(),
        ManifestValue::List(_) => "a list".to_owned(),
        ManifestValue::Map(map) if map.is_empty() => "an empty object".to_owned(),
        ManifestValue::Map(_) => "an object".to_owned(),
    };
    match &node.source_text {
        Some(source) if !source.is_empty() && !description.ends_with(&format!(" {source}")) => {
            format!("{description} (written `{}`)", shorten(source))
        }
        _ => description,
    }
}

/// A text in quotes, control characters made visible, cut after 60 characters.
#[must_use]
pub fn quote(text: &str) -> String {
    quote_up_to(text, MAX_QUOTED_CHARS)
}

/// As [`quote`], cut after `most` characters.
#[must_use]
pub fn quote_up_to(text: &str, max_chars: usize) -> String {
    format!("\"{}\"", shorten_to(text, max_chars))
}

/// A name as objects are known by it: whole up to the 253 bytes that the API server allows. Of a
/// longer one its beginning, its length and a number made of all of it, so that two that differ
/// stay two.
#[must_use]
pub fn bounded_name(text: &str) -> String {
    if text.len() <= MAX_NAME_BYTES {
        return text.to_owned();
    }
    let kept: String = text.chars().take(KEPT_NAME_CHARS).collect();
    // Source: FNV-1a of 64 bits.
    let number = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
            (number ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    format!("{kept}…({} bytes, {number:016x})", text.len())
}

/// A text cut in the middle to what a message carries.
pub(crate) fn cut_middle(text: String) -> String {
    if text.len() <= MAX_MESSAGE_BYTES {
        return text;
    }
    let half = MAX_MESSAGE_BYTES / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    format!("{}…{}", &text[..head], &text[tail..])
}

/// A text without quotes, control characters made visible, cut after 60 characters.
#[must_use]
pub fn shorten(text: &str) -> String {
    shorten_to(text, MAX_QUOTED_CHARS)
}

pub(crate) fn shorten_to(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    for (count, character) in text.chars().enumerate() {
        match character {
            _ if count == max_chars => {
                shown.push('…');
                break;
            }
            // Nothing that is shown stands in single quotes.
            '\'' => shown.push(character),
            _ => shown.extend(character.escape_debug()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let whole = "a".repeat(MAX_NAME_BYTES);
        assert_eq!(bounded_name(&whole), whole);
        let longer = ["a", "b"].map(|end| bounded_name(&format!("{whole}{end}")));
        assert!(longer.iter().all(|name| name.len() <= MAX_NAME_BYTES));
        assert_ne!(longer[0], longer[1]);
        assert!(longer[0].contains("…(254 bytes, "), "{}", longer[0]);
    }

    #[test]
    fn texts_are_cut_at_characters() {
        assert_eq!(quote_up_to("é'\n\"x", 4), "\"é'\\n\\\"…\"");
        assert_eq!(quote_up_to("abcd", 4), "\"abcd\"");
        let text = "é".repeat(MAX_MESSAGE_BYTES);
        let cut = cut_middle(text);
        assert!(
            cut.len() <= MAX_MESSAGE_BYTES + 4 && cut.contains("é…é"),
            "{cut}"
        );
        assert_eq!(cut_middle("short".to_owned()), "short");
    }
}

//! Texts of the input in messages, and limits on their length.
//!
//! Messages stay short whatever a file contains: a quoted text is cut at a limit, and a name longer than the
//! API server allows is cut when it is first read.

/// The maximum number of characters quoted from a text.
const MAX_QUOTED_CHARS: usize = 60;
/// The maximum length of a name in bytes, as in the API server; a longer name is cut.
pub(crate) const MAX_NAME_BYTES: usize = 253;
/// The number of characters kept of a longer name.
const KEPT_NAME_CHARS: usize = 64;
/// The maximum length of a reason or a field path in bytes.
pub(crate) const MAX_MESSAGE_BYTES: usize = 1024;

/// A text in quotes, control characters escaped, cut after 60 characters.
#[must_use]
pub fn quote(text: &str) -> String {
    quote_up_to(text, MAX_QUOTED_CHARS)
}

/// Like [`quote`], cut after `max_chars` characters.
#[must_use]
pub fn quote_up_to(text: &str, max_chars: usize) -> String {
    format!("\"{}\"", shorten_to(text, max_chars))
}

/// A name as used to identify objects: unchanged up to the 253 bytes that the API server allows. A longer one
/// becomes its beginning, its length and a hash of the whole, so that different names remain different.
#[must_use]
pub fn bounded_name(text: &str) -> String {
    if text.len() <= MAX_NAME_BYTES {
        return text.to_owned();
    }
    let prefix: String = text.chars().take(KEPT_NAME_CHARS).collect();
    // Source: FNV-1a of 64 bits.
    let number = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
            (number ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    format!("{prefix}…({} bytes, {number:016x})", text.len())
}

/// `Kind namespace/name`, as far as known.
pub(crate) fn reference(kind: &str, namespace: Option<&str>, name: Option<&str>) -> String {
    let kind = bounded_name(kind);
    match (namespace.map(bounded_name), name.map(bounded_name)) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => kind,
    }
}

/// A text cut in the middle to the maximum length of a message part.
pub(crate) fn cut_middle(text: String) -> String {
    if text.len() <= MAX_MESSAGE_BYTES {
        return text;
    }
    let half = MAX_MESSAGE_BYTES / 2;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    format!("{}…{}", &text[..head], &text[tail..])
}

/// A text without quotes, control characters escaped, cut after 60 characters.
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
            // Shown texts are never in single quotes.
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

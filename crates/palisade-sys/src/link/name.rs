//! Link names as text.
//!
//! The kernel accepts any bytes except `/`, `:` and white space in a link's name. As text, bytes that are not
//! UTF-8 and control characters are written `\xNN`, and a backslash is doubled. So every name has one text,
//! each text converts back to its name, and none disturbs a terminal or a log.

/// Converts a name to text.
#[must_use]
pub fn escape_name(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            *text += &format!("\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                c if c.is_control() => escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => text.push(c),
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

/// Converts text to a name. A backslash that starts no valid escape stands for itself.
#[must_use]
pub fn unescape_name(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    loop {
        rest = match rest {
            [] => return bytes,
            [b'\\', b'\\', rest @ ..] => {
                bytes.push(b'\\');
                rest
            }
            [b'\\', b'x', high, low, after @ ..] => match (hex_digit(*high), hex_digit(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high << 4 | low);
                    after
                }
                _ => {
                    bytes.push(b'\\');
                    &rest[1..]
                }
            },
            [byte, rest @ ..] => {
                bytes.push(*byte);
                rest
            }
        };
    }
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| value.try_into().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_one_text_that_leads_back_to_it() {
        for (name, text) in [
            (&b"eth0.7"[..], "eth0.7"),
            (b"\xff\xfe", r"\xff\xfe"),
            (b"a\x1b[2J", r"a\x1b[2J"),
            (br"\xff", r"\\xff"),
            (br"a\", r"a\\"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"\xc2\x85", r"\xc2\x85"),
        ] {
            assert_eq!(escape_name(name), text);
        }
        let mut seen = std::collections::BTreeSet::new();
        // All pairs of first bytes, and everything that may follow an escape.
        for a in 1..=255_u8 {
            for b in 1..=255_u8 {
                for name in [vec![a, b], vec![b'\\', a, b], vec![b'\\', b'x', a, b]] {
                    let text = escape_name(&name);
                    assert_eq!(unescape_name(&text), name, "{text}");
                    assert!(!text.chars().any(char::is_control), "{text:?}");
                    seen.insert((text, name));
                }
            }
        }
        let texts: std::collections::BTreeSet<&String> =
            seen.iter().map(|(text, _)| text).collect();
        assert_eq!(texts.len(), seen.len());
        assert_eq!(unescape_name(r"a\b\xg0"), br"a\b\xg0");
    }
}

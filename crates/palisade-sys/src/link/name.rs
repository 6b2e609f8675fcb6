//! Names of links as text.
//!
//! The kernel takes any bytes but `/`, `:` and white space as a link's name. As text, what is no
//! UTF-8 and what is a control character is written `\xNN`, and a backslash is written twice. So every
//! name has one text, every text of a name leads back to it, and none disturbs a terminal or a log.

/// The text of a name.
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

/// The name of a text. A backslash that escapes nothing is one.
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
        // What a name may begin with, in all pairs, and what may follow an escape.
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

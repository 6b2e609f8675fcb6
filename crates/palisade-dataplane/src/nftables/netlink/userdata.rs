//! Comments in user data, in `nft`'s format: type, length, value.
//!
//! Promises: `nft list` shows the comments written here. Never: reads anything else from user data.

use palisade_model::Str;

/// Type of a comment in the user data of tables, rules and elements.
const COMMENT: u8 = 0;
/// Type of the byte order of a set's or map's key.
const KEY_BYTE_ORDER: u8 = 0;
/// Type of the byte order of a map's data.
const DATA_BYTE_ORDER: u8 = 1;

/// The longest comment that `nft` accepts, in bytes.
pub(super) const MAX_COMMENT: usize = 128;

/// A comment as user data.
pub(super) fn comment(text: &str) -> Vec<u8> {
    let mut out = vec![COMMENT, text.len() as u8 + 1];
    out.extend_from_slice(text.as_bytes());
    out.push(0);
    out
}

/// The comment in user data, if there is one.
pub(super) fn read_comment(mut data: &[u8]) -> Option<Str> {
    while let [kind, len, rest @ ..] = data {
        let (value, after) = rest.split_at_checked(usize::from(*len))?;
        if *kind == COMMENT {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return std::str::from_utf8(text).ok().map(Str::from);
        }
        data = after;
    }
    None
}

/// Tells `nft` how to print keys and data: whether they are in host byte order.
pub(super) fn byte_orders(key_in_host_order: bool, data_in_host_order: Option<bool>) -> Vec<u8> {
    let order = |host: bool| if host { 1u32 } else { 2 }.to_ne_bytes();
    let mut out = vec![KEY_BYTE_ORDER, 4];
    out.extend_from_slice(&order(key_in_host_order));
    if let Some(host) = data_in_host_order {
        out.extend_from_slice(&[DATA_BYTE_ORDER, 4]);
        out.extend_from_slice(&order(host));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_round_trip() {
        for text in ["", "a", &"x".repeat(MAX_COMMENT)] {
            assert_eq!(read_comment(&comment(text)).as_deref(), Some(text));
        }
        // A comment after another entry, and a truncated one.
        let mut data = vec![7, 2, 1, 2];
        data.extend(comment("here"));
        assert_eq!(read_comment(&data).as_deref(), Some("here"));
        assert_eq!(read_comment(&data[..6]), None);
        assert_eq!(read_comment(&[]), None);
    }
}

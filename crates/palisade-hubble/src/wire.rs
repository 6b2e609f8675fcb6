//! The wire format of Protocol Buffers, as far as it is read without the types of a message.
//!
//! Promises: any bytes are read without a panic; what is malformed ends the reading.
//!
//! Never: copies a value.

/// A field as it is encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireField<'a> {
    /// Its number.
    pub(crate) number: u64,
    /// Its value, if that has a length of its own: a text, a message, bytes.
    pub(crate) value: Option<&'a [u8]>,
    /// All of it: key and value.
    pub(crate) whole: &'a [u8],
}

/// The fields of an encoded message, in order.
pub(crate) fn wire_fields(mut bytes: &[u8]) -> impl Iterator<Item = WireField<'_>> {
    std::iter::from_fn(move || {
        let (field, rest) = split_field(bytes)?;
        bytes = rest;
        Some(field)
    })
}

fn split_field(bytes: &[u8]) -> Option<(WireField<'_>, &[u8])> {
    let (key, mut rest) = split_varint(bytes)?;
    let mut value = None;
    match key & 7 {
        0 => rest = split_varint(rest)?.1,
        1 => rest = rest.get(8..)?,
        2 => {
            let (length, after) = split_varint(rest)?;
            let (text, after) = after.split_at_checked(usize::try_from(length).ok()?)?;
            value = Some(text);
            rest = after;
        }
        5 => rest = rest.get(4..)?,
        _ => return None,
    }
    let whole = &bytes[..bytes.len() - rest.len()];
    let number = key >> 3;
    Some((
        WireField {
            number,
            value,
            whole,
        },
        rest,
    ))
}

fn split_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((number, &bytes[index + 1..]));
        }
    }
    None
}

/// Appends a number, as lengths and keys are encoded.
pub(crate) fn push_varint(into: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        into.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}

/// Appends a field whose value has a length: a text or a message.
pub(crate) fn push_value(into: &mut Vec<u8>, number: u64, value: &[u8]) {
    push_varint(into, number << 3 | 2);
    push_varint(into, value.len() as u64);
    into.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_written() {
        let mut bytes = Vec::new();
        push_value(&mut bytes, 150_000, b"text");
        push_varint(&mut bytes, 3 << 3);
        push_varint(&mut bytes, u64::MAX);
        let fields: Vec<_> = wire_fields(&bytes).collect();
        assert_eq!(
            (fields[0].number, fields[0].value),
            (150_000, Some(&b"text"[..]))
        );
        assert_eq!((fields[1].number, fields[1].value), (3, None));
        assert_eq!(fields[0].whole.len() + fields[1].whole.len(), bytes.len());
    }

    #[test]
    fn malformed_bytes_end_the_reading() {
        for bytes in [
            &[0x0a, 0x05, 1][..],
            &[0xff; 11],
            &[0x0b],
            &[0x09, 1],
            &[0x0d],
        ] {
            assert_eq!(wire_fields(bytes).count(), 0, "{bytes:?}");
        }
    }
}

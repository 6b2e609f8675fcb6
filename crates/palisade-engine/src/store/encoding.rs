//! Byte encoding of an owner's own attributes.
//!
//! Numbers take as few bytes as they need; text is preceded by its length. Attributes are read in
//! the order of writing. The bytes never leave the engine.

use alloc::vec::Vec;
use core::net::IpAddr;

/// Writes a number, seven bits in each byte, the lowest first.
pub(crate) fn write_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Writes a text with its length.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &str) {
    write_number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Writes a list of addresses with its length.
pub(crate) fn write_addresses(out: &mut Vec<u8>, addresses: &[IpAddr]) {
    write_number(out, addresses.len() as u64);
    for address in addresses {
        match address {
            IpAddr::V4(address) => {
                out.push(4);
                out.extend_from_slice(&address.octets());
            }
            IpAddr::V6(address) => {
                out.push(6);
                out.extend_from_slice(&address.octets());
            }
        }
    }
}

/// Reads an encoding from its beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByteReader<'a>(pub(crate) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        let mut number = 0;
        let mut shift = 0;
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                return number;
            }
        }
    }

    /// The number of an interned value.
    pub(crate) fn reference(&mut self) -> u32 {
        u32::try_from(self.number()).unwrap_or(u32::MAX)
    }

    fn bytes(&mut self, length: usize) -> &'a [u8] {
        match self.0.split_at_checked(length) {
            Some((bytes, rest)) => {
                self.0 = rest;
                bytes
            }
            None => &[],
        }
    }

    pub(crate) fn text_bytes(&mut self) -> &'a [u8] {
        let length = usize::try_from(self.number()).unwrap_or(0);
        self.bytes(length)
    }

    pub(crate) fn text(&mut self) -> &'a str {
        core::str::from_utf8(self.text_bytes()).unwrap_or_default()
    }

    /// Skips this many texts.
    pub(crate) fn skip_texts(&mut self, count: usize) {
        for _ in 0..count {
            self.text_bytes();
        }
    }

    pub(crate) fn addresses(&mut self) -> EncodedAddresses<'a> {
        let mut all = EncodedAddresses {
            count: self.number(),
            reader: *self,
        };
        let read = all;
        for _ in all.by_ref() {}
        self.0 = all.reader.0;
        read
    }
}

/// Iterator over the addresses of an owner, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EncodedAddresses<'a> {
    count: u64,
    reader: ByteReader<'a>,
}

impl Iterator for EncodedAddresses<'_> {
    type Item = IpAddr;

    fn next(&mut self) -> Option<IpAddr> {
        self.count = self.count.checked_sub(1)?;
        match self.reader.byte() {
            4 => Some(IpAddr::from(
                <[u8; 4]>::try_from(self.reader.bytes(4)).ok()?,
            )),
            _ => Some(IpAddr::from(
                <[u8; 16]>::try_from(self.reader.bytes(16)).ok()?,
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_length_are_read_as_written() {
        let around = |power: u32| [(1 << power) - 1, 1 << power, (1 << power) + 1];
        let mut numbers: Vec<u64> = (0..64).flat_map(around).collect();
        numbers.push(u64::MAX);
        let mut bytes = Vec::new();
        for number in &numbers {
            write_number(&mut bytes, *number);
        }
        let mut reader = ByteReader(&bytes);
        for number in numbers {
            assert_eq!(reader.number(), number);
        }
        assert!(reader.0.is_empty());
        // Bytes that end in a number, or have no end of it, end the reading.
        assert_eq!(ByteReader(&[0x80]).number(), 0);
        let mut endless = ByteReader(&[0xff; 20]);
        assert_eq!((endless.number(), endless.0.len()), (u64::MAX, 10));
    }

    #[test]
    fn texts_and_addresses_are_read_as_written() {
        let long = "x".repeat(300);
        let addresses: [IpAddr; 2] = [
            IpAddr::from([10, 0, 0, 1]),
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
        ];
        let mut bytes = Vec::new();
        write_text(&mut bytes, &long);
        write_addresses(&mut bytes, &addresses);
        write_text(&mut bytes, "end");
        let mut reader = ByteReader(&bytes);
        assert_eq!(reader.text(), long);
        assert!(reader.addresses().eq(addresses));
        assert_eq!(reader.text(), "end");
    }
}

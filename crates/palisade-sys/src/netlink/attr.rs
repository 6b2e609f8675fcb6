//! Netlink attributes: a writer with nesting, and a reader that checks all bounds.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use thiserror::Error;

use super::align;

const NLA_F_NESTED: u16 = 1 << 15;
const NLA_TYPE_MASK: u16 = 0x3fff;
const NLA_HEADER: usize = 4;
/// The longest payload that a 16-bit attribute length can express.
const NLA_MAX: usize = u16::MAX as usize - NLA_HEADER;

/// A message whose lengths are inconsistent, or that cannot be encoded.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WireError {
    /// Fewer bytes than the structure needs.
    #[error("{what} is truncated: {need} bytes needed, {have} present")]
    Truncated {
        /// The object being decoded.
        what: &'static str,
        /// Bytes needed.
        need: usize,
        /// Bytes present.
        have: usize,
    },
    /// A required attribute is missing.
    #[error("attribute {attr} of {what} is missing")]
    Missing {
        /// The object being decoded.
        what: &'static str,
        /// Number of the attribute.
        attr: u16,
    },
    /// Text that is not UTF-8.
    #[error("attribute {attr} is not UTF-8 text")]
    NotText {
        /// Number of the attribute.
        attr: u16,
    },
    /// A value with an unknown meaning.
    #[error("{what} has the unknown value {value}")]
    Unknown {
        /// The object being decoded.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// An attribute longer than its 16-bit length can express.
    #[error("attribute {attr} is {len} bytes long; at most {NLA_MAX} fit")]
    AttrTooLong {
        /// Number of the attribute.
        attr: u16,
        /// Bytes of the payload.
        len: usize,
    },
}

/// Appends attributes to a message.
///
/// An attribute that is too long puts the writer into an error state: [`AttrWriter::finish`] reports the
/// first one, so a message with a truncated attribute is never sent.
#[derive(Debug)]
pub struct AttrWriter<'a> {
    out: &'a mut Vec<u8>,
    overflow: Option<WireError>,
}

impl<'a> AttrWriter<'a> {
    /// Starts at the end of `out`, which must be aligned to four bytes.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self {
            out,
            overflow: None,
        }
    }

    /// Finishes the message.
    ///
    /// # Errors
    /// [`WireError::AttrTooLong`] for the first attribute that did not fit.
    pub fn finish(self) -> Result<(), WireError> {
        self.overflow.map_or(Ok(()), Err)
    }

    /// Bytes in the message so far, including the headers of open nests; for chunking.
    #[must_use]
    pub fn position(&self) -> usize {
        self.out.len()
    }

    /// An attribute of raw bytes.
    pub fn bytes(&mut self, attr: u16, value: &[u8]) -> &mut Self {
        let start = self.open(attr);
        self.out.extend_from_slice(value);
        self.close(start, attr);
        self
    }

    /// Attributes that are encoded already.
    pub fn append_encoded(&mut self, attributes: &[u8]) -> &mut Self {
        let start = self.out.len();
        self.out.extend_from_slice(attributes);
        self.out.resize(start + align(attributes.len()), 0);
        self
    }

    /// A flag: an attribute without a value.
    pub fn flag(&mut self, attr: u16) -> &mut Self {
        self.bytes(attr, &[])
    }

    /// One byte.
    pub fn u8(&mut self, attr: u16, value: u8) -> &mut Self {
        self.bytes(attr, &[value])
    }

    /// 32 bits in host byte order (rtnetlink).
    pub fn u32(&mut self, attr: u16, value: u32) -> &mut Self {
        self.bytes(attr, &value.to_ne_bytes())
    }

    /// 16 bits in network byte order (nfnetlink).
    pub fn be16(&mut self, attr: u16, value: u16) -> &mut Self {
        self.bytes(attr, &value.to_be_bytes())
    }

    /// 32 bits in network byte order (nfnetlink).
    pub fn be32(&mut self, attr: u16, value: u32) -> &mut Self {
        self.bytes(attr, &value.to_be_bytes())
    }

    /// 64 bits in network byte order (nfnetlink).
    pub fn be64(&mut self, attr: u16, value: u64) -> &mut Self {
        self.bytes(attr, &value.to_be_bytes())
    }

    /// Text with the terminating zero byte that the kernel expects.
    pub fn text(&mut self, attr: u16, value: &str) -> &mut Self {
        let start = self.open(attr);
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
        self.close(start, attr);
        self
    }

    /// An address of either family in network byte order.
    pub fn ip(&mut self, attr: u16, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(v4) => self.bytes(attr, &v4.octets()),
            IpAddr::V6(v6) => self.bytes(attr, &v6.octets()),
        }
    }

    /// A nested attribute; `body` writes its content.
    pub fn nest(&mut self, attr: u16, body: impl FnOnce(&mut AttrWriter<'_>)) -> &mut Self {
        let start = self.open(attr | NLA_F_NESTED);
        body(self);
        self.close(start, attr);
        self
    }

    /// A nested attribute whose content starts with a fixed structure (`VETH_INFO_PEER`).
    pub(crate) fn nest_with_header(
        &mut self,
        attr: u16,
        head: &[u8],
        body: impl FnOnce(&mut AttrWriter<'_>),
    ) -> &mut Self {
        let start = self.open(attr | NLA_F_NESTED);
        self.out.extend_from_slice(head);
        body(self);
        self.close(start, attr);
        self
    }

    fn open(&mut self, attr: u16) -> usize {
        let start = self.out.len();
        self.out.extend_from_slice(&[0; 2]);
        self.out.extend_from_slice(&attr.to_ne_bytes());
        start
    }

    fn close(&mut self, start: usize, attr: u16) {
        let len = self.out.len() - start;
        match u16::try_from(len) {
            Ok(short) => self.out[start..start + 2].copy_from_slice(&short.to_ne_bytes()),
            Err(_) => {
                self.overflow.get_or_insert(WireError::AttrTooLong {
                    attr: attr & NLA_TYPE_MASK,
                    len: len - NLA_HEADER,
                });
            }
        }
        self.out.resize(start + align(len), 0);
    }
}

/// A decoded attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Attribute number, without the flag bits.
    pub kind: u16,
    /// Payload.
    pub payload: &'a [u8],
}

impl<'a> Attr<'a> {
    fn array<const N: usize>(&self) -> Result<[u8; N], WireError> {
        self.payload
            .get(..N)
            .and_then(|head| head.try_into().ok())
            .ok_or(WireError::Truncated {
                what: "attribute",
                need: N,
                have: self.payload.len(),
            })
    }

    /// The first byte.
    ///
    /// # Errors
    /// If the payload is empty.
    pub fn u8(&self) -> Result<u8, WireError> {
        self.array::<1>().map(|[byte]| byte)
    }

    /// 16 bits in network byte order.
    ///
    /// # Errors
    /// If the payload is shorter.
    pub fn be16(&self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    /// 32 bits in network byte order.
    ///
    /// # Errors
    /// If the payload is shorter.
    pub fn be32(&self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    /// 64 bits in network byte order.
    ///
    /// # Errors
    /// If the payload is shorter.
    pub fn be64(&self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }

    /// 32 bits in host byte order.
    ///
    /// # Errors
    /// If the payload is shorter.
    pub fn u32(&self) -> Result<u32, WireError> {
        self.array().map(u32::from_ne_bytes)
    }

    /// Text up to its terminating zero byte.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self) -> Result<&'a str, WireError> {
        std::str::from_utf8(self.until_nul()).map_err(|_| WireError::NotText { attr: self.kind })
    }

    /// The bytes up to the first zero byte: a name chosen by other programs need not be UTF-8.
    #[must_use]
    pub fn until_nul(&self) -> &'a [u8] {
        let end = self.payload.iter().position(|&b| b == 0);
        &self.payload[..end.unwrap_or(self.payload.len())]
    }

    /// An address; its length gives the family.
    ///
    /// # Errors
    /// If it is neither 4 nor 16 bytes long.
    pub fn ip(&self) -> Result<IpAddr, WireError> {
        match self.payload.len() {
            4 => self.array::<4>().map(|b| Ipv4Addr::from(b).into()),
            16 => self.array::<16>().map(|b| Ipv6Addr::from(b).into()),
            have => Err(WireError::Truncated {
                what: "address",
                need: 4,
                have,
            }),
        }
    }

    /// The nested attributes.
    #[must_use]
    pub fn nested(&self) -> Attrs<'a> {
        Attrs::new(self.payload)
    }
}

/// Iterates over attributes; an item is an error if its length is invalid.
#[derive(Clone, Debug)]
pub struct Attrs<'a> {
    data: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// Iterates over the attributes in `data`.
    #[must_use]
    pub fn new(data: &'a [u8]) -> Self {
        Self { data }
    }

    /// Iterates over the attributes after a header of `skip` bytes.
    ///
    /// # Errors
    /// If there are fewer bytes.
    pub fn after_header(
        data: &'a [u8],
        skip: usize,
        what: &'static str,
    ) -> Result<Self, WireError> {
        data.get(skip..).map(Self::new).ok_or(WireError::Truncated {
            what,
            need: skip,
            have: data.len(),
        })
    }

    /// The first attribute with that number, if any.
    ///
    /// # Errors
    /// If the length of an earlier attribute is invalid.
    pub fn find(&self, kind: u16) -> Result<Option<Attr<'a>>, WireError> {
        for attr in self.clone() {
            let attr = attr?;
            if attr.kind == kind {
                return Ok(Some(attr));
            }
        }
        Ok(None)
    }

    /// The first attribute with that number.
    ///
    /// # Errors
    /// [`WireError::Missing`] with `what`, or an invalid length.
    pub fn require(&self, kind: u16, what: &'static str) -> Result<Attr<'a>, WireError> {
        self.find(kind)?
            .ok_or(WireError::Missing { what, attr: kind })
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.data.is_empty() {
            return None;
        }
        let data = std::mem::take(&mut self.data);
        let [l0, l1, k0, k1, ..] = *data else {
            return Some(Err(WireError::Truncated {
                what: "attribute",
                need: NLA_HEADER,
                have: data.len(),
            }));
        };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(payload) = data.get(NLA_HEADER..len) else {
            return Some(Err(WireError::Truncated {
                what: "attribute",
                need: len.max(NLA_HEADER),
                have: data.len(),
            }));
        };
        self.data = data.get(align(len)..).unwrap_or(&[]);
        Some(Ok(Attr {
            kind: u16::from_ne_bytes([k0, k1]) & NLA_TYPE_MASK,
            payload,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut out = Vec::new();
        let mut w = AttrWriter::new(&mut out);
        w.text(1, "pal")
            .be32(2, 0x0102_0304)
            .nest(3, |w| {
                w.u8(1, 9).be16(2, 443).nest(4, |w| {
                    w.flag(1);
                });
            })
            .be64(5, 1 << 40)
            .ip(6, "fe80::1".parse().unwrap());
        w.finish().unwrap();
        assert_eq!(out.len() % 4, 0);

        let attrs = Attrs::new(&out);
        assert_eq!(attrs.require(1, "t").unwrap().text().unwrap(), "pal");
        assert_eq!(attrs.require(2, "t").unwrap().be32().unwrap(), 0x0102_0304);
        let nest = attrs.require(3, "t").unwrap().nested();
        assert_eq!(nest.require(1, "t").unwrap().u8().unwrap(), 9);
        assert_eq!(nest.require(2, "t").unwrap().be16().unwrap(), 443);
        let inner = nest.require(4, "t").unwrap().nested();
        assert!(inner.require(1, "t").unwrap().payload.is_empty());
        assert_eq!(attrs.require(5, "t").unwrap().be64().unwrap(), 1 << 40);
        assert_eq!(
            attrs.require(6, "t").unwrap().ip().unwrap(),
            "fe80::1".parse::<IpAddr>().unwrap()
        );
        assert_eq!(
            attrs.require(7, "table"),
            Err(WireError::Missing {
                what: "table",
                attr: 7
            })
        );
    }

    #[test]
    fn the_bytes_are_the_kernels() {
        let mut out = Vec::new();
        let mut w = AttrWriter::new(&mut out);
        w.nest(2, |w| {
            w.be16(1, 0x1234);
        });
        w.finish().unwrap();
        assert_eq!(out, [12, 0, 2, 0x80, 6, 0, 1, 0, 0x12, 0x34, 0, 0]);
    }

    #[test]
    fn too_long_is_reported_once_and_by_number() {
        let mut out = Vec::new();
        let mut w = AttrWriter::new(&mut out);
        w.nest(3, |w| {
            for _ in 0..5 {
                w.bytes(1, &[0; 20_000]);
            }
        });
        assert_eq!(
            w.finish(),
            Err(WireError::AttrTooLong {
                attr: 3,
                len: 5 * 20_004
            })
        );
    }

    #[test]
    fn bad_lengths_end_the_reading() {
        for bytes in [
            &[3u8, 0, 1, 0][..],
            &[9, 0, 1, 0, 1, 2, 3, 4],
            &[4, 0, 1],
            &[0, 0, 0, 0],
        ] {
            let read: Vec<_> = Attrs::new(bytes).collect();
            assert_eq!(read.len(), 1);
            assert!(read[0].is_err());
        }
    }
}

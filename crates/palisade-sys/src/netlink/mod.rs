//! The netlink message format and socket, the base of all netlink interfaces of this crate.
//!
//! Promises: attribute lengths that do not fit are an error, never truncated; data from the kernel is decoded
//! with all bounds checked; replies are matched to requests by sequence number; an interrupted dump is
//! repeated from the start.
//!
//! Never: interprets a message; that is the task of the interface above it.

mod attr;
mod socket;

pub use attr::{Attr, AttrWriter, Attrs, WireError};
pub use socket::{KernelError, NetlinkFamily, NetlinkSocket, OpenError};
pub(crate) use socket::{decode_error, poll_timeout};

/// Bytes of `struct nlmsghdr`.
pub const HEADER_LEN: usize = 16;

/// Rounds up to netlink's alignment of four bytes.
#[must_use]
pub const fn align(len: usize) -> usize {
    (len + 3) & !3
}

/// Appends one message to `out`: the header, then what `body` writes.
pub fn write_message(
    out: &mut Vec<u8>,
    kind: u16,
    flags: u16,
    seq: u32,
    body: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(&flags.to_ne_bytes());
    out.extend_from_slice(&seq.to_ne_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    // A message beyond 4 GiB cannot be sent; the kernel rejects an inconsistent length.
    let len = u32::try_from(out.len() - start).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_ne_bytes());
    out.resize(start + align(out.len() - start), 0);
}

/// A message received from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetlinkMessage {
    /// Message type.
    pub kind: u16,
    /// `NLM_F_…` flags.
    pub flags: u16,
    /// Sequence number of the request that it replies to; 0 in notifications.
    pub seq: u32,
    /// Port id of the socket whose request caused it; 0 is the kernel.
    pub portid: u32,
    /// Everything after the header.
    pub payload: Vec<u8>,
}

/// Splits a received datagram into messages.
///
/// # Errors
/// Per item, if a length is invalid; no item follows an error.
pub fn split_messages(mut data: &[u8]) -> impl Iterator<Item = Result<NetlinkMessage, WireError>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let message = split_first_message(data);
        data = message.as_ref().map_or(&[], |(_, rest)| *rest);
        Some(message.map(|(message, _)| message))
    })
}

fn split_first_message(data: &[u8]) -> Result<(NetlinkMessage, &[u8]), WireError> {
    let truncated = || WireError::Truncated {
        what: "message",
        need: HEADER_LEN,
        have: data.len(),
    };
    let header = data.get(..HEADER_LEN).ok_or_else(truncated)?;
    let u32_at = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let u16_at = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let len = u32_at(0) as usize;
    let payload = data.get(HEADER_LEN..len).ok_or(WireError::Truncated {
        what: "message",
        need: len.max(HEADER_LEN),
        have: data.len(),
    })?;
    let rest = data.get(align(len)..).unwrap_or(&[]);
    Ok((
        NetlinkMessage {
            kind: u16_at(4),
            flags: u16_at(6),
            seq: u32_at(8),
            portid: u32_at(12),
            payload: payload.to_vec(),
        },
        rest,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back_as_written() {
        let mut out = Vec::new();
        write_message(&mut out, 5, 1, 7, |b| b.extend_from_slice(b"abc"));
        write_message(&mut out, 6, 2, 8, |_| {});
        let read: Vec<_> = split_messages(&out).collect::<Result<_, _>>().unwrap();
        assert_eq!(
            read,
            [
                NetlinkMessage {
                    kind: 5,
                    flags: 1,
                    seq: 7,
                    portid: 0,
                    payload: b"abc".to_vec()
                },
                NetlinkMessage {
                    kind: 6,
                    flags: 2,
                    seq: 8,
                    portid: 0,
                    payload: Vec::new()
                },
            ]
        );
    }

    #[test]
    fn lengths_that_lie_are_errors() {
        for len in [0u32, 15, 17, u32::MAX] {
            let mut out = Vec::new();
            write_message(&mut out, 5, 1, 7, |_| {});
            out[..4].copy_from_slice(&len.to_ne_bytes());
            let read: Vec<_> = split_messages(&out).collect();
            assert_eq!(read.len(), 1, "{len}");
            assert!(read[0].is_err(), "{len}");
        }
        assert!(split_messages(&[1, 2, 3]).next().unwrap().is_err());
    }
}

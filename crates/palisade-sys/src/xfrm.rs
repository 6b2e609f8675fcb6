//! The IPsec policies of a network namespace: how many there are.
//!
//! Never: reads or changes one.

use thiserror::Error;

use crate::Errno;
use crate::netlink::{KernelError, NetlinkFamily, NetlinkSocket, OpenError};
use crate::netns::NetNs;

/// Asks for the sizes of the policy database (`XFRM_MSG_GETSPDINFO`).
const GET_POLICY_INFO: u16 = 0x25;
/// The attribute with the counts (`XFRMA_SPD_INFO`).
const POLICY_COUNTS: u16 = 1;
/// The header of an attribute, and the flags before the attributes.
const HEADER: usize = 4;

/// The policies cannot be counted.
#[derive(Debug, Error)]
pub enum XfrmError {
    /// The socket in the namespace could not be opened.
    #[error(transparent)]
    Open(OpenError),
    /// The kernel refuses.
    #[error("counting IPsec policies in network namespace {netns}: {error}")]
    Refused {
        /// The namespace.
        netns: String,
        /// The kernel's answer.
        error: KernelError,
    },
}

/// How many policies the namespace has for packets that are sent or forwarded, without those of sockets. A kernel
/// without IPsec has none.
///
/// # Errors
/// If the kernel refuses.
pub fn count_policies(netns: &NetNs) -> Result<u32, XfrmError> {
    let mut socket = match NetlinkSocket::open(netns, NetlinkFamily::Xfrm, &[]) {
        Ok(socket) => socket,
        Err(OpenError::Socket {
            errno: Errno::EPROTONOSUPPORT | Errno::EAFNOSUPPORT,
            ..
        }) => return Ok(0),
        Err(error) => return Err(XfrmError::Open(error)),
    };
    let answer = socket.get(GET_POLICY_INFO, |body| body.extend([0; HEADER]));
    let answer = answer.map_err(|error| XfrmError::Refused {
        netns: netns.label().to_owned(),
        error,
    })?;
    let payload = answer.map(|message| message.payload).unwrap_or_default();
    Ok(read_counts(&payload))
}

/// The policies of sent and of forwarded packets: the second and the third of the counts (`struct xfrmu_spdinfo`).
fn read_counts(payload: &[u8]) -> u32 {
    let mut attributes = payload.get(HEADER..).unwrap_or_default();
    while let Some(header) = attributes.get(..HEADER) {
        let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let length = usize::from(number(0)).max(HEADER);
        let value = attributes.get(HEADER..length).unwrap_or_default();
        if number(2) == POLICY_COUNTS {
            let word = |at: usize| {
                let bytes = value
                    .get(at..at + 4)
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u32::from_ne_bytes)
            };
            return word(4).saturating_add(word(8));
        }
        let next = crate::netlink::align(length).min(attributes.len());
        attributes = &attributes[next..];
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_of_sent_and_forwarded_packets_are_counted() {
        let words: [u32; 6] = [7, 2, 3, 9, 9, 9];
        let mut payload = vec![0; 4];
        for (kind, value) in [
            (5_u16, vec![1, 2, 3]),
            (POLICY_COUNTS, words.map(u32::to_ne_bytes).concat()),
        ] {
            payload.extend((4 + value.len() as u16).to_ne_bytes());
            payload.extend(kind.to_ne_bytes());
            payload.extend(&value);
            payload.resize(crate::netlink::align(payload.len()), 0);
        }
        assert_eq!(read_counts(&payload), 5);
        assert_eq!(read_counts(&payload[..12]), 0);
        assert_eq!(read_counts(&[]), 0);
    }
}

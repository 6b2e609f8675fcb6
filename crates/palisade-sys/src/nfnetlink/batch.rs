//! Batches and single requests: encoded messages, not yet sent.

use super::{NFGEN_LEN, NFNL_SUBSYS_NFTABLES};
use crate::netlink::{AttrWriter, HEADER_LEN, WireError, write_message};

const NFNL_MSG_BATCH_BEGIN: u16 = 0x10;
const NFNL_MSG_BATCH_END: u16 = 0x11;
const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const NLM_F_ACK: u16 = libc::NLM_F_ACK as u16;
const FLAGS_OFFSET: usize = 6;

fn nfgenmsg(family: u8, res_id: u16) -> [u8; NFGEN_LEN] {
    let [high, low] = res_id.to_be_bytes();
    [family, 0, high, low]
}

/// Messages that take effect together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfBatch {
    subsystem: u8,
    bytes: Vec<u8>,
    last_offset: usize,
    count: u32,
}

impl NfBatch {
    /// An empty batch for nf_tables.
    #[must_use]
    pub fn nf_tables() -> Self {
        let subsystem = NFNL_SUBSYS_NFTABLES;
        let mut bytes = Vec::new();
        write_message(&mut bytes, NFNL_MSG_BATCH_BEGIN, NLM_F_REQUEST, 0, |out| {
            out.extend_from_slice(&nfgenmsg(0, subsystem.into()));
        });
        Self {
            subsystem,
            last_offset: bytes.len(),
            bytes,
            count: 0,
        }
    }

    /// Adds a message and returns its position.
    ///
    /// # Errors
    /// If an attribute does not fit; then the batch is unchanged.
    pub fn push(
        &mut self,
        kind: u8,
        flags: u16,
        family: u8,
        body: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<usize, WireError> {
        let start = self.bytes.len();
        let kind = u16::from(self.subsystem) << 8 | u16::from(kind);
        let mut written = Ok(());
        write_message(
            &mut self.bytes,
            kind,
            NLM_F_REQUEST | flags,
            self.count + 1,
            |out| {
                out.extend_from_slice(&nfgenmsg(family, 0));
                let mut writer = AttrWriter::new(out);
                body(&mut writer);
                written = writer.finish();
            },
        );
        if let Err(error) = written {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.last_offset = start;
        self.count += 1;
        Ok(self.count as usize - 1)
    }

    /// Number of messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// True if there are no messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Encoded size in bytes without the end of the batch.
    #[must_use]
    pub fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// Sequence number of the end of the batch; its messages are numbered from 1.
    pub(super) fn end_seq(&self) -> u32 {
        self.count + 1
    }

    /// The encoded batch as sent. The kernel acknowledges success only on request: the end requests it, and
    /// since kernels before 6.10 do not acknowledge the end, the last message does too.
    pub(super) fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::with_capacity(self.bytes.len() + HEADER_LEN + NFGEN_LEN);
        wire.extend_from_slice(&self.bytes);
        if self.count > 0 {
            let at = self.last_offset + FLAGS_OFFSET;
            let flags = u16::from_ne_bytes([wire[at], wire[at + 1]]) | NLM_F_ACK;
            wire[at..at + 2].copy_from_slice(&flags.to_ne_bytes());
        }
        write_message(
            &mut wire,
            NFNL_MSG_BATCH_END,
            NLM_F_REQUEST | NLM_F_ACK,
            self.end_seq(),
            |out| out.extend_from_slice(&nfgenmsg(0, self.subsystem.into())),
        );
        wire
    }
}

/// One message outside a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NfRequest {
    /// What is requested, for messages: "listing nf_tables chains".
    pub description: String,
    /// `NFNL_SUBSYS_…`.
    pub subsystem: u8,
    /// Message type within the subsystem.
    pub kind: u8,
    /// `NFPROTO_…`.
    pub family: u8,
    /// Resource id: the group for nflog, 0 otherwise.
    pub resource: u16,
    /// Its attributes.
    pub attributes: Vec<u8>,
}

impl NfRequest {
    /// The same request for another resource id.
    #[must_use]
    pub fn with_resource(self, resource: u16) -> Self {
        Self { resource, ..self }
    }

    /// A request with the attributes that `body` writes.
    ///
    /// # Errors
    /// If an attribute does not fit.
    pub fn new(
        description: impl Into<String>,
        subsystem: u8,
        kind: u8,
        family: u8,
        body: impl FnOnce(&mut AttrWriter<'_>),
    ) -> Result<Self, WireError> {
        let mut attributes = Vec::new();
        let mut writer = AttrWriter::new(&mut attributes);
        body(&mut writer);
        writer.finish()?;
        Ok(Self {
            description: description.into(),
            subsystem,
            kind,
            family,
            resource: 0,
            attributes,
        })
    }

    pub(crate) fn message_type(&self) -> u16 {
        u16::from(self.subsystem) << 8 | u16::from(self.kind)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&nfgenmsg(self.family, self.resource));
        out.extend_from_slice(&self.attributes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::split_messages;

    fn sample() -> NfBatch {
        let mut batch = NfBatch::nf_tables();
        for (index, name) in ["a", "b"].into_iter().enumerate() {
            let at = batch.push(index as u8, 0x400, 1, |w| {
                w.text(1, name);
            });
            assert_eq!(at, Ok(index));
        }
        batch
    }

    #[test]
    fn messages_are_numbered_and_framed() {
        let batch = sample();
        let wire = batch.to_wire();
        let read: Vec<_> = split_messages(&wire)
            .map(|m| m.unwrap())
            .map(|m| (m.kind, m.flags, m.seq, m.payload.to_vec()))
            .collect();
        assert_eq!(
            read,
            [
                (0x10, 1, 0, vec![0, 0, 0, 10]),
                (0xa00, 0x401, 1, vec![1, 0, 0, 0, 6, 0, 1, 0, b'a', 0, 0, 0]),
                (0xa01, 0x405, 2, vec![1, 0, 0, 0, 6, 0, 1, 0, b'b', 0, 0, 0]),
                (0x11, 5, 3, vec![0, 0, 0, 10]),
            ]
        );
    }

    #[test]
    fn what_does_not_fit_leaves_the_batch_as_it_was() {
        let mut batch = sample();
        let before = batch.clone();
        let refused = batch.push(2, 0, 1, |w| {
            w.bytes(1, &[0; 70_000]);
        });
        assert!(matches!(refused, Err(WireError::AttrTooLong { .. })));
        assert_eq!(batch, before);
        assert!(NfBatch::nf_tables().is_empty());
    }
}

//! nfnetlink over a netlink socket.

use super::nf_tables::{NFT_MSG_GETGEN, NFTA_GEN_ID};
use super::{
    BatchError, NFNL_SUBSYS_NFTABLES, NfBatch, NfMessage, NfRequest, NfRequestError, Nfnetlink,
};
use crate::Errno;
use crate::netlink::{
    KernelError, NetlinkFamily, NetlinkMessage, NetlinkSocket, OpenError, WireError, decode_error,
};
use crate::netns::NetNs;

/// Space for the kernel's replies to a batch; each rejected message takes about 200 bytes.
const RECEIVE_BUFFER_BYTES: usize = 8 * 1024 * 1024;

/// The kernel's nfnetlink in one namespace.
#[derive(Debug)]
pub struct KernelNfnetlink {
    socket: NetlinkSocket,
}

impl KernelNfnetlink {
    /// Opens a socket in `netns`.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket cannot be created.
    pub fn open(netns: &NetNs) -> Result<Self, OpenError> {
        let socket = NetlinkSocket::open(netns, NetlinkFamily::Netfilter, &[])?;
        socket.grow_receive_buffer(RECEIVE_BUFFER_BYTES);
        Ok(Self { socket })
    }

    /// Name or path of the socket's namespace.
    #[must_use]
    pub fn netns(&self) -> &str {
        self.socket.netns()
    }

    /// Requests all objects, and collects what `each` makes of them; the objects themselves are not kept.
    pub(crate) fn dump_each<T>(
        &mut self,
        query: &NfRequest,
        mut each: impl FnMut(NfMessage) -> Result<Option<T>, WireError>,
    ) -> Result<Vec<T>, NfRequestError> {
        let found = self.socket.dump(
            query.message_type(),
            |out| query.write(out),
            |message| each(NfMessage::read(message.kind, &message.payload)?),
        );
        found.map_err(|error| self.request_error(&query.description, error))
    }

    /// Requests changes of one kind, one after the other, in one message to the kernel; the errors of those that it
    /// refused. A refusal keeps none of those after it from being made.
    pub(crate) fn change_each(
        &mut self,
        requests: &[NfRequest],
        flags: u16,
    ) -> Result<Vec<KernelError>, NfRequestError> {
        let Some(first) = requests.first() else {
            return Ok(Vec::new());
        };
        let bodies = requests.iter().map(|request| {
            let mut body = Vec::with_capacity(160);
            request.write(&mut body);
            body
        });
        let failures = self.socket.change_each(first.message_type(), flags, bodies);
        failures.map_err(|error| self.request_error(&first.description, error))
    }

    fn request_error(&self, what: &str, error: KernelError) -> NfRequestError {
        NfRequestError {
            what: what.to_owned(),
            netns: self.socket.netns().to_owned(),
            error,
        }
    }

    /// All pending replies; the kernel replies to a batch before the send returns. True if some were lost.
    fn drain_replies(&mut self) -> Result<(Vec<NetlinkMessage>, bool), KernelError> {
        let mut answers = Vec::new();
        let mut lost = false;
        loop {
            match self.socket.try_receive() {
                Ok(Some(answer)) => answers.push(answer),
                Ok(None) => return Ok((answers, lost)),
                Err(error) if error.errno == Errno::ENOBUFS => lost = true,
                Err(error) => return Err(error),
            }
        }
    }
}

/// The result of `batch` according to the replies.
fn batch_result(
    batch: &NfBatch,
    netns: &str,
    answers: &[NetlinkMessage],
    lost: bool,
) -> Result<(), BatchError> {
    let mut refused = Vec::new();
    let mut confirmed = false;
    for answer in answers {
        match decode_error(answer) {
            Some(error) => refused.push((answer.seq, error)),
            None => confirmed |= (batch.len() as u32..=batch.end_seq()).contains(&answer.seq),
        }
    }
    // The lowest position is the root cause; the kernel continues after an error.
    let is_message = |seq: u32| (1..=batch.len() as u32).contains(&seq);
    let also = refused.len().saturating_sub(1);
    let first = refused
        .into_iter()
        .min_by_key(|(seq, _)| (!is_message(*seq), *seq));
    match first {
        Some((seq, error)) => Err(BatchError::Refused {
            index: is_message(seq).then(|| seq as usize - 1),
            of: batch.len(),
            also,
            error,
            netns: netns.to_owned(),
        }),
        None if confirmed && !lost => Ok(()),
        None => Err(BatchError::Unconfirmed {
            netns: netns.to_owned(),
        }),
    }
}

impl Nfnetlink for KernelNfnetlink {
    fn commit(&mut self, batch: &NfBatch) -> Result<(), BatchError> {
        if batch.is_empty() {
            return Ok(());
        }
        let wire = batch.to_wire();
        let netns = self.socket.netns().to_owned();
        let sent = self
            .drain_replies()
            .map(drop)
            .and_then(|()| self.socket.send(&wire));
        if let Err(error) = sent {
            return Err(BatchError::NotSent {
                bytes: wire.len(),
                error,
                netns,
            });
        }
        match self.drain_replies() {
            Ok((answers, lost)) => batch_result(batch, &netns, &answers, lost),
            Err(_) => Err(BatchError::Unconfirmed { netns }),
        }
    }

    fn dump(&mut self, query: &NfRequest) -> Result<Vec<NfMessage>, NfRequestError> {
        self.dump_each(query, |object| Ok(Some(object)))
    }

    fn get(&mut self, query: &NfRequest) -> Result<Option<NfMessage>, NfRequestError> {
        let found = self
            .socket
            .get(query.message_type(), |out| query.write(out));
        match found {
            Ok(None) => Ok(None),
            Err(error) if error.errno == Errno::ENOENT => Ok(None),
            Ok(Some(message)) => NfMessage::read(message.kind, &message.payload)
                .map(Some)
                .map_err(|error| self.request_error(&query.description, error.into())),
            Err(error) => Err(self.request_error(&query.description, error)),
        }
    }

    fn change(&mut self, query: &NfRequest, flags: u16) -> Result<(), NfRequestError> {
        self.socket
            .change(query.message_type(), flags, |out| query.write(out))
            .map_err(|error| self.request_error(&query.description, error))
    }

    fn generation(&mut self) -> Result<u32, NfRequestError> {
        let what = "reading the nf_tables generation";
        let query = NfRequest {
            description: what.to_owned(),
            subsystem: NFNL_SUBSYS_NFTABLES,
            kind: NFT_MSG_GETGEN,
            family: 0,
            resource: 0,
            attributes: Vec::new(),
        };
        let object = self
            .get(&query)?
            .ok_or_else(|| self.request_error(what, Errno::ENOENT.into()))?;
        object
            .attrs()
            .require(NFTA_GEN_ID, "generation")
            .and_then(|attr| attr.be32())
            .map_err(|error| self.request_error(what, error.into()))
    }

    fn portid(&self) -> u32 {
        self.socket.portid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(seq: u32, code: i32) -> NetlinkMessage {
        NetlinkMessage {
            kind: libc::NLMSG_ERROR as u16,
            flags: 0,
            seq,
            portid: 0,
            payload: code.to_ne_bytes().to_vec(),
        }
    }

    fn batch() -> NfBatch {
        let mut batch = NfBatch::nf_tables();
        for _ in 0..3 {
            batch.push(0, 0, 1, |_| {}).unwrap();
        }
        batch
    }

    fn refused(index: Option<usize>, also: usize, errno: Errno) -> Result<(), BatchError> {
        Err(BatchError::Refused {
            index,
            of: 3,
            also,
            error: errno.into(),
            netns: "x".to_owned(),
        })
    }

    #[test]
    fn answers_are_led_back_to_messages() {
        let unconfirmed = Err(BatchError::Unconfirmed {
            netns: "x".to_owned(),
        });
        type Case<'a> = (&'a [(u32, i32)], bool, Result<(), BatchError>);
        let table: &[Case<'_>] = &[
            (&[(4, 0)], false, Ok(())),
            (&[(3, 0)], false, Ok(())),
            (&[(3, 0), (4, 0)], false, Ok(())),
            (&[], false, unconfirmed.clone()),
            (&[(3, 0)], true, unconfirmed),
            (
                &[(2, -libc::ENOENT)],
                false,
                refused(Some(1), 0, Errno::ENOENT),
            ),
            (
                &[(3, -libc::EEXIST), (2, -libc::ENOENT)],
                true,
                refused(Some(1), 1, Errno::ENOENT),
            ),
            (&[(0, -libc::EPERM)], false, refused(None, 0, Errno::EPERM)),
            // All messages acknowledged, then the commit failed.
            (
                &[(3, 0), (0, -libc::ENOMEM)],
                false,
                refused(None, 0, Errno::ENOMEM),
            ),
        ];
        for (answers, lost, expected) in table {
            let answers: Vec<_> = answers.iter().map(|&(s, c)| answer(s, c)).collect();
            assert_eq!(&batch_result(&batch(), "x", &answers, *lost), expected);
        }
    }
}

//! A netlink socket bound to one namespace: acknowledged requests, dumps, and multicast messages.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, SndBuf, SndBufForce};
use nix::sys::socket::{MsgFlags, NetlinkAddr, bind, getsockname, recvfrom, send, setsockopt};
use thiserror::Error;

use super::{Attrs, HEADER_LEN, NetlinkMessage, align, split_messages, write_message};
use crate::netns::{NetNs, NetNsError, run_in};

const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const NLM_F_ACK: u16 = libc::NLM_F_ACK as u16;
const NLM_F_DUMP: u16 = libc::NLM_F_DUMP as u16;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_CAPPED: u16 = 0x100;
const NLM_F_ACK_TLVS: u16 = 0x200;
const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;
const NLMSG_NOOP: u16 = libc::NLMSG_NOOP as u16;
const NLMSGERR_ATTR_MSG: u16 = 1;
const NLMSGERR_ATTR_OFFS: u16 = 2;

/// The kernel fills at most this much in one read of a dump.
const READ_BUFFER_BYTES: usize = 256 * 1024;
/// The kernel replies during the request's system call; a longer silence is an error.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit on the attempts for an interrupted dump.
const MAX_DUMP_ATTEMPTS: u32 = 32;

/// Which kernel subsystem a socket talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetlinkFamily {
    /// `NETLINK_ROUTE`: links, addresses, routes, neighbours.
    Route,
    /// `NETLINK_NETFILTER`: nf_tables, conntrack, nflog.
    Netfilter,
    /// `NETLINK_XFRM`: IPsec.
    Xfrm,
}

/// A netlink socket could not be opened in a namespace.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The namespace could not be entered.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
    /// The socket could not be created or bound.
    #[error("opening a {protocol:?} netlink socket in network namespace {netns}: {errno}")]
    Socket {
        /// Its netlink family.
        protocol: NetlinkFamily,
        /// The namespace.
        netns: String,
        /// The failure.
        errno: Errno,
    },
}

/// An error reply of the kernel.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{errno}{}{}", if text.is_empty() { "" } else { ": " }, text)]
pub struct KernelError {
    /// The error number.
    pub errno: Errno,
    /// The text of the extended acknowledgement, often empty.
    pub text: String,
    /// Offset in the message of the attribute that caused the error.
    pub offset: Option<u32>,
}

impl From<Errno> for KernelError {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            text: String::new(),
            offset: None,
        }
    }
}

impl From<super::WireError> for KernelError {
    fn from(error: super::WireError) -> Self {
        Self {
            errno: Errno::EBADMSG,
            text: error.to_string(),
            offset: None,
        }
    }
}

/// A netlink socket; it stays in the namespace in which it was opened.
#[derive(Debug)]
pub struct NetlinkSocket {
    fd: OwnedFd,
    netns: String,
    portid: u32,
    seq: u32,
    send_limit: usize,
    buffer: Vec<u8>,
    received: VecDeque<NetlinkMessage>,
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl NetlinkSocket {
    /// Opens a socket inside `netns` as a member of the multicast `groups`.
    ///
    /// # Errors
    /// If the namespace cannot be entered or the socket cannot be created.
    pub fn open(netns: &NetNs, protocol: NetlinkFamily, groups: &[u32]) -> Result<Self, OpenError> {
        let opened = run_in(netns, || open_in_current_netns(protocol, groups))?;
        let (fd, portid) = opened.map_err(|errno| OpenError::Socket {
            protocol,
            netns: netns.label().to_owned(),
            errno,
        })?;
        Ok(Self {
            fd,
            netns: netns.label().to_owned(),
            portid,
            seq: 0,
            send_limit: 0,
            buffer: vec![0; READ_BUFFER_BYTES],
            received: VecDeque::new(),
        })
    }

    /// The port id that the kernel gave this socket; notifications carry it.
    #[must_use]
    pub fn portid(&self) -> u32 {
        self.portid
    }

    /// Name or path of the socket's namespace.
    #[must_use]
    pub fn netns(&self) -> &str {
        &self.netns
    }

    /// Requests one change and waits for the acknowledgement.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn change(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), KernelError> {
        self.request(kind, flags, body).map(|_| ())
    }

    /// Requests one object; `None` if the kernel acknowledged without a reply.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn get(
        &mut self,
        kind: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<NetlinkMessage>, KernelError> {
        self.request(kind, 0, body)
    }

    /// Requests changes of one kind in one datagram, which the kernel makes one after the other; the errors of those that
    /// it refused.
    ///
    /// # Errors
    /// If the datagram cannot be sent, or an answer is lost (`ENOBUFS`).
    pub(crate) fn change_each(
        &mut self,
        kind: u16,
        flags: u16,
        bodies: impl ExactSizeIterator<Item = Vec<u8>>,
    ) -> Result<Vec<KernelError>, KernelError> {
        let count = bodies.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut requests = Vec::with_capacity(count * 192);
        if self.seq.checked_add(count as u32).is_none() {
            self.seq = 0;
        }
        let (first, last) = (self.seq + 1, self.seq + count as u32);
        for (at, body) in bodies.enumerate() {
            let seq = self.next_seq();
            // Only refusals are answered, and the last one in any case.
            let ack = if at + 1 == count { NLM_F_ACK } else { 0 };
            let flags = NLM_F_REQUEST | ack | flags;
            write_message(&mut requests, kind, flags, seq, |out| out.extend(&body));
        }
        self.send(&requests)?;
        let mut failures = Vec::new();
        loop {
            let Some(message) = self.next_message(Some(REPLY_TIMEOUT))? else {
                return Err(Self::no_reply());
            };
            if message.kind != NLMSG_ERROR || !(first..=last).contains(&message.seq) {
                continue;
            }
            failures.extend(decode_error(&message));
            if message.seq == last {
                return Ok(failures);
            }
        }
    }

    fn no_reply() -> KernelError {
        KernelError {
            errno: Errno::ETIMEDOUT,
            text: "the kernel did not reply".to_owned(),
            offset: None,
        }
    }

    fn request(
        &mut self,
        kind: u16,
        flags: u16,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Option<NetlinkMessage>, KernelError> {
        let seq = self.next_seq();
        let mut request = Vec::with_capacity(256);
        write_message(
            &mut request,
            kind,
            NLM_F_REQUEST | NLM_F_ACK | flags,
            seq,
            body,
        );
        self.send(&request)?;
        let mut answer = None;
        loop {
            let message = self.receive_reply(seq)?;
            match message.kind {
                NLMSG_ERROR => return decode_error(&message).map_or(Ok(answer), Err),
                NLMSG_DONE => return Ok(answer),
                _ => answer = Some(message),
            }
        }
    }

    /// Requests all objects and passes each to `each`. A dump during which kernel state changed is repeated
    /// from the start; `restart` is called before, and the caller must discard the objects passed so far.
    ///
    /// # Errors
    /// The kernel's error, or `EINTR` if kernel state changed during every attempt.
    pub fn dump<T>(
        &mut self,
        kind: u16,
        body: impl Fn(&mut Vec<u8>),
        mut each: impl FnMut(&NetlinkMessage) -> Result<Option<T>, super::WireError>,
    ) -> Result<Vec<T>, KernelError> {
        for _ in 0..MAX_DUMP_ATTEMPTS {
            let mut found = Vec::new();
            match self.dump_once(kind, &body, |message| {
                found.extend(each(message)?);
                Ok(())
            }) {
                Ok(true) => return Ok(found),
                Ok(false) => {}
                Err(error) if error.errno == Errno::EINTR => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EINTR.into())
    }

    /// True if the dump was consistent.
    fn dump_once(
        &mut self,
        kind: u16,
        body: &impl Fn(&mut Vec<u8>),
        mut each: impl FnMut(&NetlinkMessage) -> Result<(), super::WireError>,
    ) -> Result<bool, KernelError> {
        let seq = self.next_seq();
        let mut request = Vec::with_capacity(256);
        write_message(&mut request, kind, NLM_F_REQUEST | NLM_F_DUMP, seq, body);
        self.send(&request)?;
        let mut consistent = true;
        let mut unreadable = None;
        loop {
            let message = self.receive_reply(seq)?;
            consistent &= message.flags & NLM_F_DUMP_INTR == 0;
            match message.kind {
                NLMSG_ERROR => match decode_error(&message) {
                    Some(error) => return Err(error),
                    None => break,
                },
                NLMSG_DONE => match decode_done_error(&message) {
                    Some(error) => return Err(error),
                    None => break,
                },
                // The rest of the dump must still be read, or it would be taken for the reply to the next
                // request.
                _ => unreadable = unreadable.or(each(&message).err()),
            }
        }
        match unreadable {
            Some(error) if consistent => Err(error.into()),
            _ => Ok(consistent),
        }
    }

    /// Sends raw bytes and enlarges the send buffer if needed.
    ///
    /// # Errors
    /// `EMSGSIZE` if the system's buffer limit is lower and the process may not exceed it.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<(), KernelError> {
        self.grow_send_buffer(bytes.len());
        loop {
            match send(self.fd.as_raw_fd(), bytes, MsgFlags::empty()) {
                Ok(sent) if sent == bytes.len() => return Ok(()),
                Ok(_) => return Err(Errno::EMSGSIZE.into()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// The kernel rejects a message larger than the send buffer less some overhead.
    fn grow_send_buffer(&mut self, len: usize) {
        let need = len + 64 * 1024;
        if need <= self.send_limit {
            return;
        }
        // Without the privilege the system's limit applies; the send then fails with EMSGSIZE.
        if setsockopt(&self.fd, SndBufForce, &need).is_ok()
            || setsockopt(&self.fd, SndBuf, &need).is_ok()
        {
            self.send_limit = need;
        }
    }

    /// Lets the kernel queue up to `bytes` of replies or notifications.
    pub(crate) fn grow_receive_buffer(&self, bytes: usize) {
        // With a smaller buffer, a loss only occurs earlier; it is reported.
        let _ = setsockopt(&self.fd, RcvBufForce, &bytes)
            .or_else(|_| setsockopt(&self.fd, RcvBuf, &bytes));
    }

    /// How many messages the kernel could not queue for this socket since it was opened, modulo 2^32.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub(crate) fn dropped_messages(&self) -> Result<u32, Errno> {
        /// The place of the count, and the number of values. Source: `linux/sock_diag.h`, `SK_MEMINFO_DROPS`.
        const DROPS: usize = 8;
        const VALUES: usize = 9;
        let mut values = [0_u32; VALUES];
        let mut length = size_of_val(&values) as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes to `values`, which is that large, and the length it wrote.
        let result = unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                (&raw mut values).cast(),
                &raw mut length,
            )
        };
        Errno::result(result)?;
        Ok(values[DROPS])
    }

    /// Makes the kernel drop notifications caused through the socket with port id `port`.
    pub(crate) fn ignore_port(&self, port: u32) -> Result<(), OpenError> {
        attach_port_filter(&self.fd, port).map_err(|errno| OpenError::Socket {
            protocol: NetlinkFamily::Netfilter,
            netns: self.netns.clone(),
            errno,
        })
    }

    fn next_seq(&mut self) -> u32 {
        // 0 is the sequence number of notifications.
        self.seq = self.seq.checked_add(1).unwrap_or(1);
        self.seq
    }

    fn receive_reply(&mut self, seq: u32) -> Result<NetlinkMessage, KernelError> {
        loop {
            while let Some(message) = self.received.pop_front() {
                if message.seq == seq && message.kind != NLMSG_NOOP {
                    return Ok(message);
                }
            }
            if !self.wait_readable(Some(REPLY_TIMEOUT))? {
                return Err(Self::no_reply());
            }
            self.receive_datagram()?;
        }
    }

    /// The next message, if one is pending.
    ///
    /// # Errors
    /// `ENOBUFS` if the kernel had to drop messages.
    pub(crate) fn try_receive(&mut self) -> Result<Option<NetlinkMessage>, KernelError> {
        if self.received.is_empty() {
            self.receive_datagram()?;
        }
        Ok(self.received.pop_front())
    }

    /// The next message; `None` if there was none within `timeout` (`None` waits without limit).
    ///
    /// # Errors
    /// `ENOBUFS` if the kernel had to drop messages.
    pub(crate) fn next_message(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<Option<NetlinkMessage>, KernelError> {
        loop {
            let message = self.try_receive()?;
            if message.is_some() || !self.wait_readable(timeout)? {
                return Ok(message);
            }
        }
    }

    /// Waits until the socket is readable; `None` waits without limit.
    fn wait_readable(&self, timeout: Option<Duration>) -> Result<bool, Errno> {
        if !self.received.is_empty() {
            return Ok(true);
        }
        wait_readable(self.fd.as_fd(), timeout)
    }

    fn receive_datagram(&mut self) -> Result<(), KernelError> {
        let (len, from) = match recvfrom::<NetlinkAddr>(self.fd.as_raw_fd(), &mut self.buffer) {
            Ok(received) => received,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        };
        // Other processes may send to this socket's port; only messages of the kernel are accepted.
        if from.is_some_and(|from| from.pid() != 0) {
            return Ok(());
        }
        for message in split_messages(&self.buffer[..len]) {
            self.received.push_back(message?);
        }
        Ok(())
    }
}

/// Waits until `fd` is readable; `None` waits without limit. A signal restarts the wait.
fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool, Errno> {
    loop {
        match poll(
            &mut [PollFd::new(fd, PollFlags::POLLIN)],
            poll_timeout(timeout),
        ) {
            Ok(ready) => return Ok(ready > 0),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Rounded up, so that a wait never ends early.
pub(crate) fn poll_timeout(timeout: Option<Duration>) -> PollTimeout {
    timeout.map_or(PollTimeout::NONE, |timeout| {
        let millis = timeout.as_micros().div_ceil(1000);
        PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
    })
}

/// The error in an `NLMSG_ERROR` message; `None` if it is an acknowledgement.
pub(crate) fn decode_error(message: &NetlinkMessage) -> Option<KernelError> {
    let code = first_i32(&message.payload)?;
    if code == 0 {
        return None;
    }
    let more = extended_ack(message);
    let find = |attr| {
        more.as_ref()
            .and_then(|more| more.find(attr).ok().flatten())
    };
    Some(KernelError {
        errno: Errno::from_raw(code.saturating_neg()),
        text: find(NLMSGERR_ATTR_MSG)
            .and_then(|attr| attr.text().ok())
            .unwrap_or_default()
            .to_owned(),
        offset: find(NLMSGERR_ATTR_OFFS).and_then(|attr| attr.u32().ok()),
    })
}

fn decode_done_error(message: &NetlinkMessage) -> Option<KernelError> {
    let code = first_i32(&message.payload)?;
    (code < 0).then(|| Errno::from_raw(code.saturating_neg()).into())
}

fn first_i32(payload: &[u8]) -> Option<i32> {
    payload
        .first_chunk::<4>()
        .map(|bytes| i32::from_ne_bytes(*bytes))
}

fn extended_ack(message: &NetlinkMessage) -> Option<Attrs<'_>> {
    if message.flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let original = message.payload.get(4..)?;
    let skip = if message.flags & NLM_F_CAPPED == 0 {
        let len = u32::from_ne_bytes(*original.first_chunk::<4>()?) as usize;
        align(len)
    } else {
        HEADER_LEN
    };
    original.get(skip..).map(Attrs::new)
}

fn open_in_current_netns(protocol: NetlinkFamily, groups: &[u32]) -> Result<(OwnedFd, u32), Errno> {
    let number = match protocol {
        NetlinkFamily::Route => libc::NETLINK_ROUTE,
        NetlinkFamily::Netfilter => libc::NETLINK_NETFILTER,
        NetlinkFamily::Xfrm => libc::NETLINK_XFRM,
    };
    let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed, and a descriptor that the kernel returns is nobody else's.
    let fd = unsafe {
        let number = Errno::result(libc::socket(libc::AF_NETLINK, flags, number))?;
        OwnedFd::from_raw_fd(number)
    };
    bind(fd.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    set_netlink_option(&fd, libc::NETLINK_EXT_ACK, 1)?;
    set_netlink_option(&fd, libc::NETLINK_CAP_ACK, 1)?;
    for &group in groups {
        let group = i32::try_from(group).map_err(|_| Errno::EINVAL)?;
        set_netlink_option(&fd, libc::NETLINK_ADD_MEMBERSHIP, group)?;
    }
    let address: NetlinkAddr = getsockname(fd.as_raw_fd())?;
    Ok((fd, address.pid()))
}

fn set_netlink_option(fd: &OwnedFd, option: i32, value: i32) -> Result<(), Errno> {
    // SAFETY: the kernel reads exactly the four bytes of `value`, which outlives the call; the descriptor is
    // open during the borrow.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop)
}

/// Attaches a filter on the port id in the first message's header; all messages of one datagram have the
/// same.
fn attach_port_filter(fd: &OwnedFd, port: u32) -> Result<(), Errno> {
    const PORTID_OFFSET: u32 = 12;
    let statement = |code: u32, jt, jf, k| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = [
        statement(
            libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
            0,
            0,
            PORTID_OFFSET,
        ),
        // BPF_LD reads the field, which is in host byte order, as big endian.
        statement(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            1,
            port.to_be(),
        ),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
    ];
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the kernel copies `filter` and the four statements it points to
    // during the call; both outlive it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const filter).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_message(code: i32, flags: u16, rest: &[u8]) -> NetlinkMessage {
        let mut payload = code.to_ne_bytes().to_vec();
        payload.extend_from_slice(rest);
        NetlinkMessage {
            kind: NLMSG_ERROR,
            flags,
            seq: 1,
            portid: 0,
            payload,
        }
    }

    #[test]
    fn errors_carry_the_kernels_words() {
        let mut rest = Vec::new();
        write_message(&mut rest, 1, 0, 1, |_| {});
        super::super::AttrWriter::new(&mut rest)
            .text(NLMSGERR_ATTR_MSG, "no such thing")
            .u32(NLMSGERR_ATTR_OFFS, 36);
        let message = error_message(-libc::ENOENT, NLM_F_CAPPED | NLM_F_ACK_TLVS, &rest);
        assert_eq!(
            decode_error(&message),
            Some(KernelError {
                errno: Errno::ENOENT,
                text: "no such thing".to_owned(),
                offset: Some(36),
            })
        );
        assert_eq!(decode_error(&error_message(0, 0, &rest)), None);
        // Extended acknowledgement missing or truncated: the error number alone.
        let cut = error_message(-libc::ENOENT, NLM_F_CAPPED | NLM_F_ACK_TLVS, &rest[..18]);
        assert_eq!(decode_error(&cut), Some(Errno::ENOENT.into()));
    }

    #[test]
    fn requests_work_without_privilege() {
        let here = NetNs::current().unwrap();
        let mut socket = NetlinkSocket::open(&here, NetlinkFamily::Route, &[]).unwrap();
        assert_ne!(socket.portid(), 0);
        let links = socket
            .dump(
                libc::RTM_GETLINK,
                |out| out.extend_from_slice(&[0; 16]),
                |message| Ok(Some(message.kind)),
            )
            .unwrap();
        assert!(links.contains(&libc::RTM_NEWLINK));
    }
}

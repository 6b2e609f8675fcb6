//! Open descriptors that go from one process to another, by a unix socket.
//!
//! Promises: all that were sent arrive, or none; those that arrive are closed when a program is run. Source: unix(7),
//! `SCM_RIGHTS`.
//!
//! Never: asks what a descriptor is of.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// The most descriptors that are sent at once.
const MOST_DESCRIPTORS: usize = 16;
/// The byte that they come with: without one nothing would be sent.
const COMPANION: u8 = 1;

/// Sends descriptors to the process at the other end; this one keeps its own.
///
/// # Errors
/// If there are too many, or the other end is closed.
pub fn send_descriptors(stream: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    if descriptors.len() > MOST_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let numbers: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&numbers)];
    let companion = [COMPANION];
    let slices = [IoSlice::new(&companion)];
    let fd = stream.as_fd().as_raw_fd();
    sendmsg::<()>(fd, &slices, &control, MsgFlags::MSG_NOSIGNAL, None)?;
    Ok(())
}

/// Waits for the descriptors of [`send_descriptors`].
///
/// # Errors
/// If the other end is closed, or sends something else.
pub fn receive_descriptors(stream: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut companion = [0];
    let mut slices = [IoSliceMut::new(&mut companion)];
    let mut control = nix::cmsg_space!([std::os::fd::RawFd; MOST_DESCRIPTORS]);
    let fd = stream.as_fd().as_raw_fd();
    let flags = MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(fd, &mut slices, Some(&mut control), flags)?;
    let mut descriptors = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(numbers) = control {
            for number in numbers {
                // SAFETY: the kernel opened the descriptor for this message, and nothing else knows it.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
            }
        }
    }
    let length = message.bytes;
    match (length, companion[0]) {
        (0, _) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, COMPANION) => Ok(descriptors),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn what_is_sent_is_open_at_the_other_end() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut inside, outside) = UnixStream::pair().unwrap();
        send_descriptors(&near, &[outside.as_fd(), near.as_fd()]).unwrap();
        drop(outside);
        let received = receive_descriptors(&far).unwrap();
        let [first, _]: [OwnedFd; 2] = received.try_into().unwrap();
        UnixStream::from(first).write_all(b"x").unwrap();
        let mut bytes = Vec::new();
        inside.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes, b"x", "and closed with the last copy");
    }

    #[test]
    fn what_is_no_hand_over_is_an_error() {
        let (near, far) = UnixStream::pair().unwrap();
        let many = [near.as_fd(); MOST_DESCRIPTORS + 1];
        let error = send_descriptors(&near, &many).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        (&near).write_all(b"x").unwrap();
        let error = receive_descriptors(&far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        drop(near);
        let error = receive_descriptors(&far).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

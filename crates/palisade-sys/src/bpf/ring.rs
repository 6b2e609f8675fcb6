//! Ring buffers: records that programs write, read by one process in their order.
//!
//! Promises: a record is returned once, whole, after its program has submitted it; a wait ends with the first record
//! that is submitted.
//!
//! Never: writes a record, or anything but how far it has read. Two readers of one ring take records from each other.

use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::mman::{self, ProtFlags, mmap, munmap};

use super::map::BpfMap;
use super::{BpfError, refused};
use crate::netlink::poll_timeout;

/// Bits of a record's length: it is being written, and its program has given it up.
const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
/// The bytes before the data of a record; records begin at multiples of it.
const HEADER: usize = 8;

/// Memory that is shared with the kernel.
#[derive(Debug)]
struct Mapping {
    memory: NonNull<c_void>,
    length: NonZeroUsize,
}

// SAFETY: it is memory of its own, which is only read and written atomically.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, length: usize, access: ProtFlags, offset: usize) -> Result<Self, Errno> {
        let length = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let offset = offset.try_into().map_err(|_| Errno::EINVAL)?;
        let flags = mman::MapFlags::MAP_SHARED;
        // SAFETY: a new mapping at an address of the kernel's choice; the map lives as long as the mapping.
        let memory = unsafe { mmap(None, length, access, flags, fd.as_fd(), offset) };
        Ok(Mapping {
            memory: memory?,
            length,
        })
    }

    /// The place of a value at an offset, if it is within the mapping and aligned.
    fn place<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>())?;
        let is_within = end <= self.length.get() && offset.is_multiple_of(align_of::<T>());
        // SAFETY: the offset is within the mapping, which begins at a page.
        is_within.then(|| unsafe { self.memory.byte_add(offset).cast() })
    }

    fn position(&self, offset: usize) -> Option<&AtomicUsize> {
        // SAFETY: the place is within the mapping, which lives as long as this; others write it atomically.
        Some(unsafe { self.place(offset)?.as_ref() })
    }

    fn half_word(&self, offset: usize) -> Option<&AtomicU32> {
        // SAFETY: as above.
        Some(unsafe { self.place(offset)?.as_ref() })
    }

    fn word(&self, offset: usize) -> Option<&AtomicU64> {
        // SAFETY: as above.
        Some(unsafe { self.place(offset)?.as_ref() })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping, of which nobody has a reference any more.
        let _ = unsafe { munmap(self.memory, self.length.get()) };
    }
}

/// A ring buffer, read by this process.
#[derive(Debug)]
pub struct RingBuffer {
    fd: OwnedFd,
    name: String,
    /// How far it was read, which the kernel looks at.
    consumer: Mapping,
    /// How far it was written, and from the second page on the records, twice, so that each is in one piece.
    producer: Mapping,
    page: usize,
    size: usize,
}

impl RingBuffer {
    /// The ring of this map. It begins where the last reader has ended, at first with the first record.
    ///
    /// # Errors
    /// If the map is no ring buffer, or there is no memory.
    pub fn new(map: &BpfMap) -> Result<Self, BpfError> {
        let (name, size) = (map.name(), map.shape().max_entries as usize);
        let failed = refused("mapping BPF ring buffer", name);
        // SAFETY: it reads no memory of this process.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| failed(Errno::EINVAL))?;
        let fd = map.descriptor();
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let consumer = Mapping::new(fd, page, both, 0).map_err(&failed)?;
        let producer = Mapping::new(fd, page + 2 * size, ProtFlags::PROT_READ, page);
        Ok(RingBuffer {
            fd: fd.try_clone().map_err(|_| failed(Errno::EMFILE))?,
            name: name.to_owned(),
            consumer,
            producer: producer.map_err(&failed)?,
            page,
            size,
        })
    }

    /// How far the ring is read and written.
    fn positions(&self) -> (usize, usize) {
        let [read, written] = [&self.consumer, &self.producer].map(|mapping| {
            let position = mapping.position(0);
            position.map_or(0, |position| position.load(Ordering::Acquire))
        });
        (read, written)
    }

    fn set_read(&self, position: usize) {
        if let Some(place) = self.consumer.position(0) {
            place.store(position, Ordering::Release);
        }
    }

    /// Passes over all records that are there.
    pub fn skip_all(&mut self) {
        let (_, written) = self.positions();
        self.set_read(written);
    }

    /// The next record, its length rounded up to eight bytes; `None` if none was submitted, or the next one is still
    /// written.
    pub fn take_record(&mut self) -> Option<Vec<u8>> {
        loop {
            let (read, written) = self.positions();
            if read == written {
                return None;
            }
            let start = self.page + (read & (self.size - 1));
            let header = self.producer.half_word(start)?.load(Ordering::Acquire);
            if header & BUSY != 0 {
                return None;
            }
            let length = (header & !DISCARDED) as usize;
            let length = length.next_multiple_of(HEADER);
            let mut record = Vec::new();
            if header & DISCARDED == 0 {
                // The kernel writes no longer ones, and its programs no header.
                record.reserve_exact(length.min(self.size));
                for at in (0..length).step_by(size_of::<u64>()) {
                    let word = self.producer.word(start + HEADER + at)?;
                    record.extend(word.load(Ordering::Relaxed).to_ne_bytes());
                }
            }
            self.set_read(read.wrapping_add(HEADER + length));
            if header & DISCARDED == 0 {
                return Some(record);
            }
        }
    }

    /// Waits for a record, no longer than this; whether there may be one.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn wait(&self, timeout: Duration) -> Result<bool, BpfError> {
        let mut fds = [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, poll_timeout(Some(timeout))) {
            Ok(ready) => Ok(ready > 0),
            Err(Errno::EINTR) => Ok(true),
            Err(error) => Err(refused(
                "waiting for records of BPF ring buffer",
                &self.name,
            )(error)),
        }
    }
}

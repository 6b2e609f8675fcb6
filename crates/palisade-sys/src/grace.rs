//! RCU grace periods: waiting until no packet is being processed with old state.
//!
//! Every packet path evaluates its rules inside an RCU read-side critical section. After
//! [`GracePeriod::wait`] returns, every section that was active at the call has ended: a packet that began
//! its lookups before a change has a verdict.
//!
//! The kernel has no system call for exactly this. Two operations contain `synchronize_rcu()`:
//!
//! - `membarrier(MEMBARRIER_CMD_GLOBAL)`. It fails on a kernel with `nohz_full`, because it also promises a
//!   barrier to user code, which such a CPU does not provide. With one CPU online it returns at once,
//!   although a preempted reader may still be active.
//! - replacing the inner map of a BPF map of maps, which returns when no program can still use the old one
//!   (`maybe_wait_bpf_programs()` in the kernel, since Linux 5.0). Programs run in RCU read-side critical
//!   sections, as packet processing does.
//!
//! The first is used where it is valid, the second otherwise.
//!
//! A wait takes about ten milliseconds. Where nothing is changed after it, it can run beside its caller
//! ([`GracePeriod::begin`]); the next change waits for its end.
//!
//! Promises: never returns early. Never: waits for packets that arrive after the call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

use nix::errno::Errno;
use thiserror::Error;

const MEMBARRIER_CMD_QUERY: libc::c_int = 0;
const MEMBARRIER_CMD_GLOBAL: libc::c_int = 1;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_ARRAY_OF_MAPS: u32 = 12;

/// A grace period is not available or failed.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum GraceError {
    /// Neither method is available.
    #[error(
        "the kernel offers no grace period: membarrier(GLOBAL) failed with {membarrier} (it is refused \
         with nohz_full, and not usable with one CPU), creating a BPF map of maps failed with {maps} (it \
         needs CONFIG_BPF_SYSCALL, CAP_SYS_ADMIN or CAP_BPF, and a sandbox that allows bpf(2))"
    )]
    Unsupported {
        /// Error of membarrier.
        membarrier: Errno,
        /// Error of the BPF map.
        maps: Errno,
    },
    /// The wait failed.
    #[error("waiting for a grace period: {0}")]
    Failed(Errno),
}

/// Waits for RCU grace periods.
pub trait GracePeriod {
    /// Returns once all packet processing that was active at the call has ended.
    ///
    /// # Errors
    /// [`GraceError::Failed`]; the caller must then assume that old state is still in use.
    fn wait(&mut self) -> Result<(), GraceError>;

    /// Begins a wait that [`GracePeriod::finish`] ends, for a caller that has nothing to change at present. Waits that
    /// were begun before go on. An implementation may wait here instead.
    ///
    /// # Errors
    /// As for [`GracePeriod::wait`].
    fn begin(&mut self) -> Result<(), GraceError> {
        self.wait()
    }

    /// Returns once all waits that were begun have ended; at once if there is none.
    ///
    /// # Errors
    /// As for [`GracePeriod::wait`].
    fn finish(&mut self) -> Result<(), GraceError> {
        Ok(())
    }
}

/// The system calls that the choice of method depends on.
trait GraceSyscalls {
    /// A BPF map of maps.
    type Maps;

    fn membarrier(&self, command: libc::c_int) -> Result<libc::c_int, Errno>;
    fn online_cpus(&self) -> usize;
    fn create_maps(&self) -> Result<Self::Maps, Errno>;
    fn replace_inner(&self, maps: &Self::Maps) -> Result<(), Errno>;
}

/// Uses the method that is valid at the time of each wait.
#[derive(Debug)]
struct GraceWaiter<C: GraceSyscalls> {
    calls: C,
    /// Why membarrier cannot be used, if so.
    membarrier_error: Option<Errno>,
    /// Created at first use.
    maps: Option<C::Maps>,
}

impl<C: GraceSyscalls> GraceWaiter<C> {
    fn new(calls: C) -> Result<Self, GraceError> {
        let offered = calls.membarrier(MEMBARRIER_CMD_QUERY);
        let refused = match offered {
            // An offered command can still be refused, for example by a sandbox.
            Ok(offered) if offered & MEMBARRIER_CMD_GLOBAL != 0 => {
                calls.membarrier(MEMBARRIER_CMD_GLOBAL).err()
            }
            Ok(_) => Some(Errno::EINVAL),
            Err(errno) => Some(errno),
        };
        let mut waiter = GraceWaiter {
            calls,
            membarrier_error: refused,
            maps: None,
        };
        if !waiter.membarrier_usable() {
            waiter.maps()?;
        }
        Ok(waiter)
    }

    fn membarrier_usable(&self) -> bool {
        // CPUs can go online and offline at any time.
        self.membarrier_error.is_none() && self.calls.online_cpus() > 1
    }

    fn maps(&mut self) -> Result<&C::Maps, GraceError> {
        let unsupported = |maps| GraceError::Unsupported {
            membarrier: self.membarrier_error.unwrap_or(Errno::UnknownErrno),
            maps,
        };
        match &mut self.maps {
            Some(maps) => Ok(maps),
            maps @ None => Ok(maps.insert(self.calls.create_maps().map_err(unsupported)?)),
        }
    }
}

impl<C: GraceSyscalls> GracePeriod for GraceWaiter<C> {
    fn wait(&mut self) -> Result<(), GraceError> {
        if self.membarrier_usable() {
            let done = self.calls.membarrier(MEMBARRIER_CMD_GLOBAL);
            return done.map(drop).map_err(GraceError::Failed);
        }
        self.maps()?;
        match &self.maps {
            Some(maps) => self.calls.replace_inner(maps).map_err(GraceError::Failed),
            None => Err(GraceError::Failed(Errno::EBADF)),
        }
    }
}

/// The kernel's grace periods.
#[derive(Debug)]
pub struct KernelGracePeriod {
    waiter: Arc<Mutex<GraceWaiter<KernelSyscalls>>>,
    /// Started at the first wait beside the caller.
    thread: Option<WaitThread>,
    /// How many waits were begun whose results were not received.
    begun: usize,
}

/// A thread that waits when it is told to; ends with this.
#[derive(Debug)]
struct WaitThread {
    begin: Sender<()>,
    ended: Receiver<Result<(), GraceError>>,
}

impl WaitThread {
    fn start(waiter: &Arc<Mutex<GraceWaiter<KernelSyscalls>>>) -> io::Result<Self> {
        let (begin, begun) = channel();
        let (end, ended) = channel();
        let waiter = Arc::clone(waiter);
        let wait = move || {
            while begun.recv().is_ok() {
                // One wait serves all that were begun before it.
                let more = begun.try_iter().count();
                let result = lock(&waiter).wait();
                if (0..=more).any(|_| end.send(result).is_err()) {
                    break;
                }
            }
        };
        let thread = Builder::new().name("grace-period".to_owned());
        thread.spawn(wait)?;
        Ok(WaitThread { begin, ended })
    }
}

impl KernelGracePeriod {
    /// Determines which method the kernel offers.
    ///
    /// # Errors
    /// [`GraceError::Unsupported`].
    pub fn new() -> Result<Self, GraceError> {
        Ok(KernelGracePeriod {
            waiter: Arc::new(Mutex::new(GraceWaiter::new(KernelSyscalls)?)),
            thread: None,
            begun: 0,
        })
    }

    /// The method in use, for display.
    #[must_use]
    pub fn method(&self) -> &'static str {
        if lock(&self.waiter).membarrier_usable() {
            "membarrier"
        } else {
            "BPF map of maps"
        }
    }
}

fn lock<T>(waiter: &Mutex<T>) -> MutexGuard<'_, T> {
    waiter.lock().unwrap_or_else(PoisonError::into_inner)
}

impl GracePeriod for KernelGracePeriod {
    fn wait(&mut self) -> Result<(), GraceError> {
        self.finish()?;
        lock(&self.waiter).wait()
    }

    fn begin(&mut self) -> Result<(), GraceError> {
        if self.thread.is_none() {
            self.thread = WaitThread::start(&self.waiter).ok();
        }
        if let Some(thread) = &self.thread {
            // What has ended is not kept until somebody needs it: that may be never.
            let ended: Vec<_> = thread.ended.try_iter().collect();
            self.begun -= ended.len();
            if ended.iter().all(Result::is_ok) && thread.begin.send(()).is_ok() {
                self.begun += 1;
                return Ok(());
            }
        }
        // It is waited for here, and for all that was begun before.
        self.thread = None;
        self.begun = 0;
        lock(&self.waiter).wait()
    }

    fn finish(&mut self) -> Result<(), GraceError> {
        let begun = std::mem::take(&mut self.begun);
        let Some(thread) = &self.thread else {
            return Ok(());
        };
        let mut ended = Ok(());
        for _ in 0..begun {
            let result = thread.ended.recv();
            ended = ended.and(result.unwrap_or(Err(GraceError::Failed(Errno::ECANCELED))));
        }
        ended
    }
}

/// The system calls of the running kernel.
#[derive(Clone, Copy, Debug)]
struct KernelSyscalls;

/// A BPF map of maps and its inner map.
#[derive(Debug)]
struct BpfMapOfMaps {
    outer: OwnedFd,
    inner: OwnedFd,
}

/// The part of `union bpf_attr` that creates a map.
#[repr(C)]
struct BpfMapCreateAttr {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
    inner_map_fd: u32,
}

/// The part of `union bpf_attr` that updates an element.
#[repr(C)]
struct BpfMapUpdateAttr {
    map_fd: u64,
    key: u64,
    value: u64,
    flags: u64,
}

impl GraceSyscalls for KernelSyscalls {
    type Maps = BpfMapOfMaps;

    fn membarrier(&self, command: libc::c_int) -> Result<libc::c_int, Errno> {
        // SAFETY: both commands used take no pointer and change no memory.
        let result = unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) };
        Errno::result(result).map(|bits| bits as libc::c_int)
    }

    fn online_cpus(&self) -> usize {
        // SAFETY: takes a number, touches no memory of ours.
        let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
        usize::try_from(online).unwrap_or_default()
    }

    fn create_maps(&self) -> Result<BpfMapOfMaps, Errno> {
        let make = |map_type, inner_map_fd| {
            let attr = BpfMapCreateAttr {
                map_type,
                key_size: 4,
                value_size: 4,
                max_entries: 1,
                map_flags: 0,
                inner_map_fd,
            };
            let fd = bpf(BPF_MAP_CREATE, &attr)?;
            // SAFETY: the kernel has just created this descriptor for this process alone.
            Ok::<OwnedFd, Errno>(unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let inner = make(BPF_MAP_TYPE_ARRAY, 0)?;
        let outer = make(BPF_MAP_TYPE_ARRAY_OF_MAPS, raw_fd(&inner))?;
        Ok(BpfMapOfMaps { outer, inner })
    }

    fn replace_inner(&self, maps: &BpfMapOfMaps) -> Result<(), Errno> {
        let (key, value) = (0_u32, raw_fd(&maps.inner));
        let attr = BpfMapUpdateAttr {
            map_fd: raw_fd(&maps.outer).into(),
            key: std::ptr::from_ref(&key).addr() as u64,
            value: std::ptr::from_ref(&value).addr() as u64,
            flags: 0,
        };
        bpf(BPF_MAP_UPDATE_ELEM, &attr).map(drop)
    }
}

fn raw_fd(fd: &OwnedFd) -> u32 {
    fd.as_raw_fd().cast_unsigned()
}

fn bpf<T>(command: libc::c_int, attr: &T) -> Result<libc::c_int, Errno> {
    // SAFETY: `attr` has the layout of the command, and the kernel gets its size; it only reads it, and the
    // key and value that it points to live in the caller.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(attr),
            size_of::<T>(),
        )
    };
    Errno::result(result).map(|fd| fd as libc::c_int)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    /// A kernel with a chosen set of features; records the calls.
    struct Fake {
        offers: bool,
        refuses: Option<Errno>,
        cpus: Cell<usize>,
        maps: Result<(), Errno>,
        asked: RefCell<Vec<&'static str>>,
    }

    impl GraceSyscalls for &Fake {
        type Maps = ();

        fn membarrier(&self, command: libc::c_int) -> Result<libc::c_int, Errno> {
            if command == MEMBARRIER_CMD_QUERY {
                return Ok(if self.offers { 0x1ff } else { 0x1fe });
            }
            self.asked.borrow_mut().push("barrier");
            self.refuses.map_or(Ok(0), Err)
        }

        fn online_cpus(&self) -> usize {
            self.cpus.get()
        }

        fn create_maps(&self) -> Result<(), Errno> {
            self.asked.borrow_mut().push("make");
            self.maps
        }

        fn replace_inner(&self, (): &()) -> Result<(), Errno> {
            self.asked.borrow_mut().push("replace");
            Ok(())
        }
    }

    fn fake(offers: bool, refuses: Option<Errno>, cpus: usize, maps: Result<(), Errno>) -> Fake {
        Fake {
            offers,
            refuses,
            cpus: Cell::new(cpus),
            maps,
            asked: RefCell::default(),
        }
    }

    #[test]
    fn the_way_that_holds_is_taken() {
        for (kernel, asked) in [
            (fake(true, None, 2, Ok(())), "barrier barrier"),
            // nohz_full.
            (fake(false, Some(Errno::EINVAL), 2, Ok(())), "make replace"),
            // Sandbox that refuses membarrier.
            (
                fake(true, Some(Errno::EPERM), 2, Ok(())),
                "barrier make replace",
            ),
            (fake(true, None, 1, Ok(())), "barrier make replace"),
            (fake(true, None, 2, Err(Errno::ENOSYS)), "barrier barrier"),
        ] {
            GraceWaiter::new(&kernel).unwrap().wait().unwrap();
            assert_eq!(kernel.asked.take().join(" "), asked);
        }
        for kernel in [
            fake(false, None, 2, Err(Errno::EPERM)),
            fake(true, None, 1, Err(Errno::EPERM)),
        ] {
            let error = GraceWaiter::new(&kernel).err().unwrap().to_string();
            assert!(
                error.contains("nohz_full") && error.contains("EPERM"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_cpu_that_goes_changes_the_way() {
        let kernel = fake(true, None, 2, Ok(()));
        let mut waiter = GraceWaiter::new(&kernel).unwrap();
        kernel.cpus.set(1);
        waiter.wait().unwrap();
        kernel.cpus.set(2);
        waiter.wait().unwrap();
        assert_eq!(
            kernel.asked.take(),
            ["barrier", "make", "replace", "barrier"]
        );
    }

    #[test]
    fn this_kernel_has_it() {
        let mut grace = KernelGracePeriod::new().unwrap();
        grace.wait().unwrap();
        for _ in 0..3 {
            grace.begin().unwrap();
        }
        assert_eq!(grace.begun, 3);
        grace.finish().unwrap();
        assert_eq!(grace.begun, 0);
        grace.finish().unwrap();
    }

    #[test]
    fn what_has_ended_is_not_kept() {
        const WAITS: usize = 20;
        /// A busy machine may run the thread late.
        const MOST_WAITS: usize = 5_000;
        let mut grace = KernelGracePeriod::new().unwrap();
        let mut waits = 0;
        while waits < WAITS || grace.begun >= waits / 2 {
            assert!(waits < MOST_WAITS, "{} are kept", grace.begun);
            grace.begin().unwrap();
            waits += 1;
            // Meanwhile the thread waits as well.
            lock(&grace.waiter).wait().unwrap();
        }
        grace.finish().unwrap();
    }
}

//! Opens a namespace by a path that another process chose.
//!
//! Promises: the path is opened with `O_PATH`, which has no effect on a FIFO or a device; the file is
//! reopened only if it is on nsfs and is a network namespace; a [`NetNsOpener`] returns within its timeout,
//! however long the file system takes.
//!
//! Never: enters a namespace, or checks permissions of the requester.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::statfs::{FsType, fstatfs};

use super::{NetNs, NetNsError, errno_error, io_error};

/// Limit on threads blocked by file systems that do not respond.
const MAX_STUCK_OPENS: usize = 32;

const NSFS_MAGIC: FsType = FsType(0x6e73_6673);
const NS_GET_USERNS: libc::c_ulong = 0xb701;
const NS_GET_NSTYPE: libc::c_ulong = 0xb703;
const NS_GET_OWNER_UID: libc::c_ulong = 0xb704;

/// Opens the network namespace at a path, and rejects every other type of file.
pub(super) fn open_namespace(path: &Path, label: &str) -> Result<File, NetNsError> {
    let wrong_type = || NetNsError::WrongType {
        path: path.display().to_string(),
    };
    let handle = File::options()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_CLOEXEC)
        .open(path)
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => NetNsError::Missing {
                name: label.to_owned(),
            },
            _ => io_error("opening", label)(source),
        })?;
    let found = fstatfs(&handle).map_err(errno_error("inspecting", label))?;
    if found.filesystem_type() != NSFS_MAGIC {
        return Err(wrong_type());
    }
    // Through the checked descriptor: the path is not resolved again.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(format!("/proc/thread-self/fd/{}", handle.as_raw_fd()))
        .map_err(io_error("opening", label))?;
    match namespace_type(&file) {
        Ok(libc::CLONE_NEWNET) => Ok(file),
        _ => Err(wrong_type()),
    }
}

fn namespace_type(file: &File) -> Result<i32, Errno> {
    // SAFETY: NS_GET_NSTYPE takes no argument and only returns a number; the descriptor is open during the
    // borrow.
    let kind = unsafe { libc::ioctl(file.as_raw_fd(), NS_GET_NSTYPE as _) };
    Errno::result(kind)
}

/// The uid that created the owning user namespace: that user has every capability in the network namespace.
pub(super) fn owner_uid(netns: &File) -> Result<u32, Errno> {
    // SAFETY: NS_GET_USERNS takes no argument and returns a new descriptor, which has no other owner.
    let users = unsafe {
        let users = Errno::result(libc::ioctl(netns.as_raw_fd(), NS_GET_USERNS as _))?;
        <File as std::os::fd::FromRawFd>::from_raw_fd(users)
    };
    let mut uid: libc::uid_t = 0;
    // SAFETY: NS_GET_OWNER_UID writes one uid_t through the pointer, which is valid for it.
    Errno::result(unsafe { libc::ioctl(users.as_raw_fd(), NS_GET_OWNER_UID as _, &raw mut uid) })?;
    Ok(uid)
}

/// Opens namespaces on separate threads, so that a mount that does not respond blocks one thread and not the
/// caller. Clones share their state.
#[derive(Clone, Debug, Default)]
pub struct NetNsOpener {
    pending: Arc<Mutex<PendingOpens>>,
}

#[derive(Debug, Default)]
struct PendingOpens {
    last_id: u64,
    /// Calls in progress: the path, and whether the caller has timed out.
    calls: BTreeMap<u64, (String, bool)>,
}

impl NetNsOpener {
    /// Opens by path or name as [`NetNs::open`] does, within `timeout`. While a call for a path is stuck,
    /// further calls for it fail at once.
    ///
    /// # Errors
    /// [`NetNsError::TimedOut`] if it takes longer, or any error of [`NetNs::open`].
    pub fn open(&self, name_or_path: &str, timeout: Duration) -> Result<NetNs, NetNsError> {
        self.open_with(name_or_path, timeout, NetNs::open)
    }

    fn open_with(
        &self,
        name: &str,
        bound: Duration,
        open: impl FnOnce(&str) -> Result<NetNs, NetNsError> + Send + 'static,
    ) -> Result<NetNs, NetNsError> {
        let no_answer = || NetNsError::TimedOut {
            name: name.to_owned(),
        };
        let call = self.register(name).ok_or_else(no_answer)?;
        let (answer, answered) = sync_channel(1);
        let (this, path) = (self.clone(), name.to_owned());
        let started = std::thread::Builder::new()
            .name("netns-open".to_owned())
            .spawn(move || {
                let opened = open(&path);
                this.lock().calls.remove(&call);
                // A caller that timed out needs no result.
                let _ = answer.send(opened);
            });
        if let Err(error) = started {
            self.lock().calls.remove(&call);
            return Err(io_error("starting a thread for", name)(error));
        }
        match answered.recv_timeout(bound) {
            Ok(opened) => opened,
            Err(RecvTimeoutError::Disconnected) => Err(NetNsError::Panicked {
                name: name.to_owned(),
            }),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((_, late)) = self.lock().calls.get_mut(&call) {
                    *late = true;
                }
                Err(no_answer())
            }
        }
    }

    /// The number of a new call; `None` if its path or too many others are stuck.
    fn register(&self, name: &str) -> Option<u64> {
        let mut pending = self.lock();
        let mut waiting = pending.calls.values().filter(|(_, late)| *late);
        if waiting.clone().count() >= MAX_STUCK_OPENS || waiting.any(|(path, _)| path == name) {
            return None;
        }
        pending.last_id += 1;
        let call = pending.last_id;
        pending.calls.insert(call, (name.to_owned(), false));
        Some(call)
    }

    fn lock(&self) -> MutexGuard<'_, PendingOpens> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const SOON: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn only_network_namespaces_are_opened_and_nothing_else_is_touched() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("/proc/self/ns/net", &link).unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [
            fifo.as_path(),
            &socket,
            dir.path(),
            Path::new("/dev/null"),
            Path::new("/dev/tty"),
            Path::new("/proc/self/status"),
            Path::new("/proc/self/ns/uts"),
            Path::new("/proc/self/ns/user"),
        ] {
            let refused = open_namespace(path, "x").unwrap_err();
            assert!(
                matches!(refused, NetNsError::WrongType { .. }),
                "{}: {refused}",
                path.display()
            );
        }
        let here = NetNs::current().unwrap();
        assert_eq!(NetNs::open(link.to_str().unwrap()).unwrap(), here);
    }

    #[test]
    fn a_path_without_an_answer_holds_nobody_up() {
        let opener = NetNsOpener::default();
        let (release, released) = channel::<()>();
        let hung = opener.open_with("/hung", SOON, move |_| {
            let _ = released.recv();
            NetNs::current()
        });
        assert!(matches!(hung, Err(NetNsError::TimedOut { .. })));
        let again = opener.open_with("/hung", LONG, |_| NetNs::current());
        assert!(
            matches!(again, Err(NetNsError::TimedOut { .. })),
            "at once, and not a thread more"
        );
        opener
            .open_with("/other", LONG, |_| NetNs::current())
            .unwrap();
        drop(release);
        while !opener.lock().calls.is_empty() {
            std::thread::yield_now();
        }
        opener
            .open_with("/hung", LONG, |_| NetNs::current())
            .unwrap();
    }

    #[test]
    fn so_many_without_an_answer_and_no_more() {
        let opener = NetNsOpener::default();
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        for number in 0..MAX_STUCK_OPENS {
            let released = Arc::clone(&released);
            let path = format!("/hung/{number}");
            let hung = opener.open_with(&path, Duration::ZERO, move |_| {
                let _ = released.lock().map(|released| released.recv());
                NetNs::current()
            });
            assert!(matches!(hung, Err(NetNsError::TimedOut { .. })));
        }
        let more = opener.open_with("/more", LONG, |_| NetNs::current());
        assert!(matches!(more, Err(NetNsError::TimedOut { .. })));
        drop(release);
    }
}

//! Handles of network namespaces, by path or by the name that `ip netns` gave, and execution inside one.
//!
//! Promises: a handle stays bound to its namespace when names change; [`run_in`] never moves the caller's
//! thread.
//!
//! Never: creates a namespace that outlives the call, or switches that of a thread that does.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};
use thiserror::Error;

mod open;

pub use open::NetNsOpener;

/// Directory in which `ip netns` keeps named namespaces.
pub const NETNS_DIR: &str = "/run/netns";

/// Identity of a namespace: two handles with the same identity are the same namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NetNsId {
    /// Device of nsfs.
    pub dev: u64,
    /// Inode on nsfs.
    pub ino: u64,
}

/// An open network namespace. The namespace lives at least as long as the handle.
#[derive(Clone)]
pub struct NetNs {
    file: Arc<File>,
    label: Arc<str>,
    id: NetNsId,
}

impl fmt::Debug for NetNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetNs({} {}:{})", self.label, self.id.dev, self.id.ino)
    }
}

impl fmt::Display for NetNs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl PartialEq for NetNs {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for NetNs {}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// An operation on a namespace failed.
#[derive(Debug, Error)]
pub enum NetNsError {
    /// The name cannot be a file name under [`NETNS_DIR`].
    #[error("network namespace name {name:?} is not usable: {reason}")]
    BadName {
        /// The name as given.
        name: String,
        /// Why the name is invalid.
        reason: &'static str,
    },
    /// There is no namespace with that name or path.
    #[error("network namespace {name} does not exist")]
    Missing {
        /// Name or path as given.
        name: String,
    },
    /// The file exists but is not a network namespace.
    #[error("{path} is not a network namespace")]
    WrongType {
        /// Path of the file.
        path: String,
    },
    /// The file system of the path does not respond.
    #[error(
        "opening network namespace {name}: its file system does not respond; fix the mount, or use \
         another path"
    )]
    TimedOut {
        /// Name or path as given.
        name: String,
    },
    /// A system call failed.
    #[error("{action} network namespace {name}: {source}")]
    Io {
        /// The action that failed, for example "opening".
        action: &'static str,
        /// Name or path of the namespace.
        name: String,
        /// The failure.
        source: io::Error,
    },
    /// The thread working inside the namespace panicked.
    #[error("the thread working in network namespace {name} panicked")]
    Panicked {
        /// Name or path of the namespace.
        name: String,
    },
}

fn io_error(action: &'static str, name: &str) -> impl Fn(io::Error) -> NetNsError {
    move |source| NetNsError::Io {
        action,
        name: name.to_owned(),
        source,
    }
}

fn errno_error(action: &'static str, name: &str) -> impl Fn(Errno) -> NetNsError {
    move |errno| NetNsError::Io {
        action,
        name: name.to_owned(),
        source: errno.into(),
    }
}

impl NetNs {
    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn current() -> Result<Self, NetNsError> {
        Self::open_path(Path::new("/proc/thread-self/ns/net"), "current")
    }

    /// Opens by path (any name with a `/`, such as `/proc/17/ns/net`) or by name under [`NETNS_DIR`].
    ///
    /// # Errors
    /// [`NetNsError::Missing`], [`NetNsError::WrongType`], or the error of the system call.
    pub fn open(name_or_path: &str) -> Result<Self, NetNsError> {
        if name_or_path.contains('/') {
            Self::open_path(Path::new(name_or_path), name_or_path)
        } else {
            Self::open_path(&namespace_path(name_or_path)?, name_or_path)
        }
    }

    fn open_path(path: &Path, label: &str) -> Result<Self, NetNsError> {
        let file = open::open_namespace(path, label)?;
        let meta = file.metadata().map_err(io_error("inspecting", label))?;
        Ok(Self {
            file: Arc::new(file),
            label: label.into(),
            id: NetNsId {
                dev: meta.dev(),
                ino: meta.ino(),
            },
        })
    }

    /// Name or path by which the handle was opened, for messages.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Identity of the namespace.
    #[must_use]
    pub fn id(&self) -> NetNsId {
        self.id
    }

    /// The uid that created the owning user namespace, and so has every capability in it; 0 if root created
    /// it.
    ///
    /// # Errors
    /// If that user namespace is neither this process's own nor a descendant of it.
    pub fn owner_uid(&self) -> Result<u32, NetNsError> {
        open::owner_uid(&self.file).map_err(errno_error("reading the owner of", self.label()))
    }
}

fn namespace_path(name: &str) -> Result<PathBuf, NetNsError> {
    let bad = |reason| NetNsError::BadName {
        name: name.to_owned(),
        reason,
    };
    match name {
        "" => Err(bad("it is empty")),
        "." | ".." => Err(bad("it is a directory")),
        _ if name.len() > 255 => Err(bad("it is longer than 255 bytes")),
        _ if name.bytes().any(|b| b == b'/' || b == 0) => {
            Err(bad("it contains a slash or a zero byte"))
        }
        _ => Ok(Path::new(NETNS_DIR).join(name)),
    }
}

/// Runs `work` on a new thread inside `netns` and waits for it.
///
/// # Errors
/// If the thread cannot be started or cannot enter the namespace, or `work` panicked.
pub fn run_in<T, F>(netns: &NetNs, work: F) -> Result<T, NetNsError>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    run_after(netns.label(), || enter(netns), work)
}

/// Runs `work` on a new thread inside a namespace that is made for it, and that goes with what `work` opened there.
///
/// # Errors
/// If the thread cannot be started or cannot make a namespace (`EPERM`), or `work` panicked.
pub fn run_in_new<T, F>(work: F) -> Result<T, NetNsError>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    const NAME: &str = "a new network namespace";
    let make = || unshare(CloneFlags::CLONE_NEWNET).map_err(errno_error("making", NAME));
    run_after(NAME, make, work)
}

/// Runs `work` on a new thread, after `enter` has moved it.
fn run_after<T, F>(
    name: &str,
    enter: impl FnOnce() -> Result<(), NetNsError> + Send,
    work: F,
) -> Result<T, NetNsError>
where
    T: Send,
    F: FnOnce() -> T + Send,
{
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, || enter().map(|()| work()))
            .map_err(io_error("starting a thread for", name))?
            .join()
            .map_err(|_| NetNsError::Panicked {
                name: name.to_owned(),
            })?
    })
}

/// Moves the calling thread into `netns`; only for threads created for this purpose.
fn enter(netns: &NetNs) -> Result<(), NetNsError> {
    // Entering the present namespace needs a privilege too, so it is skipped.
    if NetNs::current()?.id() == netns.id() {
        return Ok(());
    }
    setns(netns, CloneFlags::CLONE_NEWNET).map_err(errno_error("entering", netns.label()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for bad in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
            assert!(
                matches!(namespace_path(bad), Err(NetNsError::BadName { .. })),
                "{bad:?}"
            );
        }
        assert_eq!(
            namespace_path("pal-a").unwrap(),
            Path::new("/run/netns/pal-a")
        );
    }

    #[test]
    fn current_is_itself_and_work_runs_there() {
        let here = NetNs::current().unwrap();
        let caller = std::thread::current().id();
        let (entered, worker) = run_in(&here, || {
            (NetNs::current().unwrap(), std::thread::current().id())
        })
        .unwrap();
        assert_eq!(here, entered);
        assert_ne!(caller, worker);
    }

    #[test]
    fn a_panic_inside_is_an_error() {
        let here = NetNs::current().unwrap();
        let result: Result<(), _> = run_in(&here, || panic!("on purpose"));
        assert!(matches!(result, Err(NetNsError::Panicked { .. })));
    }

    #[test]
    fn what_is_no_namespace_is_refused() {
        assert!(matches!(
            NetNs::open("/dev/null"),
            Err(NetNsError::WrongType { .. })
        ));
        assert!(matches!(
            NetNs::open("/nonexistent/ns"),
            Err(NetNsError::Missing { .. })
        ));
        assert!(matches!(
            NetNs::open("/proc/self/ns/uts"),
            Err(NetNsError::WrongType { .. })
        ));
    }
}

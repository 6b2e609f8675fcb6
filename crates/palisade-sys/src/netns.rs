//! Named network namespaces, compatible with `ip netns`, and execution inside a namespace.
//!
//! Promises: a handle stays bound to its namespace when names change; [`run_in`] never moves the caller's
//! thread; a namespace that could not be created completely leaves no name behind.
//!
//! Never: switches the namespace of a thread that outlives the call.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use thiserror::Error;

mod open;

pub use open::NetNsOpener;

/// Directory in which `ip netns` and this crate keep named namespaces.
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
    /// A namespace with that name already exists.
    #[error("network namespace {name} already exists")]
    Exists {
        /// Name as given.
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
        Self::from_file(file, label)
    }

    fn from_file(file: File, label: &str) -> Result<Self, NetNsError> {
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

    /// A handle for tests that is not a namespace: it has its own identity, and kernel operations on it fail.
    ///
    /// # Errors
    /// If the kernel cannot create an anonymous file.
    pub fn fake(label: &str) -> Result<Self, NetNsError> {
        let fd = nix::sys::memfd::memfd_create("netns", nix::sys::memfd::MFdFlags::MFD_CLOEXEC)
            .map_err(errno_error("faking", label))?;
        Self::from_file(File::from(fd), label)
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
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("netns".to_owned())
            .spawn_scoped(scope, || enter(netns).map(|()| work()))
            .map_err(io_error("starting a thread for", netns.label()))?
            .join()
            .map_err(|_| NetNsError::Panicked {
                name: netns.label().to_owned(),
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

/// Named network namespaces of this host.
pub trait NetNamespaces {
    /// Creates and names an empty namespace (loopback down).
    ///
    /// # Errors
    /// [`NetNsError::Exists`] if the name is in use, or the error of the system call; then no name is left
    /// behind.
    fn create(&mut self, name: &str) -> Result<NetNs, NetNsError>;
    /// Removes the name; the namespace itself ends with its last user.
    ///
    /// # Errors
    /// [`NetNsError::Missing`], or the error of the system call.
    fn delete(&mut self, name: &str) -> Result<(), NetNsError>;
    /// Opens by name, or by path if it contains a `/`.
    ///
    /// # Errors
    /// [`NetNsError::Missing`], [`NetNsError::WrongType`], or the error of the system call.
    fn open(&self, name_or_path: &str) -> Result<NetNs, NetNsError>;
    /// All names, sorted.
    ///
    /// # Errors
    /// If the directory cannot be read.
    fn list(&self) -> Result<Vec<String>, NetNsError>;
}

/// The kernel's named namespaces under [`NETNS_DIR`].
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelNetNamespaces;

impl NetNamespaces for KernelNetNamespaces {
    fn create(&mut self, name: &str) -> Result<NetNs, NetNsError> {
        let path = namespace_path(name)?;
        share_directory(name)?;
        File::options()
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => NetNsError::Exists {
                    name: name.to_owned(),
                },
                _ => io_error("naming", name)(source),
            })?;
        let made = std::thread::scope(|scope| {
            std::thread::Builder::new()
                .name("netns-new".to_owned())
                .spawn_scoped(scope, || {
                    unshare(CloneFlags::CLONE_NEWNET).map_err(errno_error("creating", name))?;
                    mount(
                        Some("/proc/thread-self/ns/net"),
                        &path,
                        None::<&str>,
                        MsFlags::MS_BIND,
                        None::<&str>,
                    )
                    .map_err(errno_error("mounting", name))
                })
                .map_err(io_error("starting a thread for", name))?
                .join()
                .map_err(|_| NetNsError::Panicked {
                    name: name.to_owned(),
                })?
        });
        match made.and_then(|()| NetNs::open(name)) {
            Ok(netns) => Ok(netns),
            Err(error) => {
                // The first failure is the one to report.
                let _ = umount2(&path, MntFlags::MNT_DETACH);
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn delete(&mut self, name: &str) -> Result<(), NetNsError> {
        let path = namespace_path(name)?;
        match umount2(&path, MntFlags::MNT_DETACH) {
            // EINVAL: a name whose mount no longer exists, for example after a crash.
            Ok(()) | Err(Errno::EINVAL) => {}
            Err(Errno::ENOENT) => {
                return Err(NetNsError::Missing {
                    name: name.to_owned(),
                });
            }
            Err(errno) => return Err(errno_error("unmounting", name)(errno)),
        }
        std::fs::remove_file(&path).map_err(io_error("removing", name))
    }

    fn open(&self, name_or_path: &str) -> Result<NetNs, NetNsError> {
        NetNs::open(name_or_path)
    }

    fn list(&self) -> Result<Vec<String>, NetNsError> {
        let entries = match std::fs::read_dir(NETNS_DIR) {
            Ok(entries) => entries,
            Err(source) if source.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(io_error("listing", NETNS_DIR)(source)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(io_error("listing", NETNS_DIR))?;
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }
}

/// Makes the directory a shared mount, so that names created in one mount namespace are visible, and can be
/// deleted, in all; once, as `ip netns` does.
fn share_directory(name: &str) -> Result<(), NetNsError> {
    std::fs::create_dir_all(NETNS_DIR).map_err(io_error("creating the directory of", name))?;
    let share = || {
        mount(
            None::<&str>,
            NETNS_DIR,
            None::<&str>,
            MsFlags::MS_SHARED | MsFlags::MS_REC,
            None::<&str>,
        )
    };
    match share() {
        Ok(()) => Ok(()),
        // EINVAL: not a mount point yet; bind it to itself.
        Err(Errno::EINVAL) => {
            mount(
                Some(NETNS_DIR),
                NETNS_DIR,
                None::<&str>,
                MsFlags::MS_BIND | MsFlags::MS_REC,
                None::<&str>,
            )
            .map_err(errno_error("binding the directory of", name))?;
            share().map_err(errno_error("sharing the directory of", name))
        }
        Err(errno) => Err(errno_error("sharing the directory of", name)(errno)),
    }
}

/// One call to a [`FakeNetNamespaces`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetNsCall {
    /// [`NetNamespaces::create`].
    Create(String),
    /// [`NetNamespaces::delete`].
    Delete(String),
}

/// Named namespaces in memory; clones share them.
#[derive(Clone, Debug, Default)]
pub struct FakeNetNamespaces {
    state: Arc<Mutex<FakeNamespacesState>>,
}

#[derive(Debug, Default)]
struct FakeNamespacesState {
    names: BTreeMap<String, NetNs>,
    calls: Vec<NetNsCall>,
}

impl FakeNetNamespaces {
    /// The calls that change something, in order.
    #[must_use]
    pub fn calls(&self) -> Vec<NetNsCall> {
        self.lock().calls.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, FakeNamespacesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NetNamespaces for FakeNetNamespaces {
    fn create(&mut self, name: &str) -> Result<NetNs, NetNsError> {
        namespace_path(name)?;
        let mut state = self.lock();
        state.calls.push(NetNsCall::Create(name.to_owned()));
        if state.names.contains_key(name) {
            return Err(NetNsError::Exists {
                name: name.to_owned(),
            });
        }
        let netns = NetNs::fake(name)?;
        state.names.insert(name.to_owned(), netns.clone());
        Ok(netns)
    }

    fn delete(&mut self, name: &str) -> Result<(), NetNsError> {
        namespace_path(name)?;
        let mut state = self.lock();
        state.calls.push(NetNsCall::Delete(name.to_owned()));
        match state.names.remove(name) {
            Some(_) => Ok(()),
            None => Err(NetNsError::Missing {
                name: name.to_owned(),
            }),
        }
    }

    fn open(&self, name_or_path: &str) -> Result<NetNs, NetNsError> {
        let name = name_or_path
            .strip_prefix("/run/netns/")
            .unwrap_or(name_or_path);
        self.lock()
            .names
            .get(name)
            .cloned()
            .ok_or_else(|| NetNsError::Missing {
                name: name_or_path.to_owned(),
            })
    }

    fn list(&self) -> Result<Vec<String>, NetNsError> {
        Ok(self.lock().names.keys().cloned().collect())
    }
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
        let (there, worker) = run_in(&here, || {
            (NetNs::current().unwrap(), std::thread::current().id())
        })
        .unwrap();
        assert_eq!(here, there);
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

    #[test]
    fn fake_keeps_names_and_calls() {
        let mut fake = FakeNetNamespaces::default();
        let a = fake.create("pal-a").unwrap();
        let b = fake.create("pal-b").unwrap();
        assert_ne!(a, b);
        assert!(matches!(
            fake.create("pal-a"),
            Err(NetNsError::Exists { .. })
        ));
        assert_eq!(fake.open("/run/netns/pal-b").unwrap(), b);
        fake.delete("pal-a").unwrap();
        assert!(matches!(
            fake.delete("pal-a"),
            Err(NetNsError::Missing { .. })
        ));
        assert_eq!(fake.list().unwrap(), ["pal-b"]);
        assert_eq!(fake.calls().len(), 5);
    }
}

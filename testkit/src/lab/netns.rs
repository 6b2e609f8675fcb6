//! Named network namespaces: made, entered on a thread of their own, removed.
//!
//! The calling thread never changes its namespace.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::ifaddrs::getifaddrs;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::net::if_::InterfaceFlags;
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, recv, sendto, socket,
};

use palisade_sys::netns::NetNs;

use super::LabError;
use crate::test_driver::remove_pins;

const FOLDER: &str = "/run/netns";
/// How long an interface may take until it is running.
const RUNNING_PATIENCE: Duration = Duration::from_secs(10);

/// A named namespace with nothing in it, removed when dropped.
#[derive(Debug)]
pub struct TestNetNs {
    name: String,
    netns: NetNs,
}

impl TestNetNs {
    /// Makes a namespace; `what` appears in its name.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(what: &str) -> Result<Self, LabError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pal-{what}-{}-{number}", std::process::id());
        create(&name)?;
        let netns = NetNs::open(&name).map_err(|error| LabError::Namespace {
            doing: "opening",
            namespace: name.clone(),
            source: io::Error::other(error),
        })?;
        Ok(TestNetNs { name, netns })
    }

    /// Its name, as under `/run/netns`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its handle, which outlives the name.
    #[must_use]
    pub fn netns(&self) -> &NetNs {
        &self.netns
    }
}

impl TestNetNs {
    /// Forgets every tracked flow.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn flush_conntrack(&self) -> Result<(), LabError> {
        run_in(&self.name, flush_conntrack)?.map_err(|source| LabError::Namespace {
            doing: "flushing the flows of",
            namespace: self.name.clone(),
            source,
        })
    }
}

impl Drop for TestNetNs {
    fn drop(&mut self) {
        if let Err(error) = delete(&self.name) {
            eprintln!("left behind: {error}");
        }
    }
}

/// Where a named namespace is found.
pub(super) fn path(namespace: &str) -> PathBuf {
    Path::new(FOLDER).join(namespace)
}

/// Makes a namespace that outlives the thread that made it.
pub(super) fn create(namespace: &str) -> Result<(), LabError> {
    let failed = |source| LabError::Namespace {
        doing: "making",
        namespace: namespace.to_owned(),
        source,
    };
    prepare_folder().map_err(failed)?;
    let target = path(namespace);
    File::create_new(&target).map_err(failed)?;
    let make = || {
        unshare(CloneFlags::CLONE_NEWNET)?;
        let own = format!("/proc/self/task/{}/ns/net", nix::unistd::gettid());
        mount(
            Some(own.as_str()),
            &target,
            None::<&str>,
            MsFlags::MS_BIND,
            None::<&str>,
        )
    };
    let made = on_own_thread(make);
    made.map_err(|errno: nix::Error| failed(errno.into()))
}

/// Gives a namespace that somebody else made a name of ours, too; what is removed later is the name.
pub(super) fn adopt(namespace: &str, made: &Path) -> Result<(), LabError> {
    let failed = |source| LabError::Namespace {
        doing: "adopting",
        namespace: namespace.to_owned(),
        source,
    };
    prepare_folder().map_err(failed)?;
    let target = path(namespace);
    File::create_new(&target).map_err(failed)?;
    let bind = MsFlags::MS_BIND;
    mount(Some(made), &target, None::<&str>, bind, None::<&str>)
        .map_err(|errno| failed(errno.into()))
}

/// `ip netns add` shares `/run/netns` between mount namespaces; without that, a namespace deleted
/// in one stays mounted in another. The mount is made once a machine, by whoever is first.
fn prepare_folder() -> io::Result<()> {
    fs::create_dir_all(FOLDER)?;
    let shared = MsFlags::MS_SHARED | MsFlags::MS_REC;
    let share = || mount(None::<&str>, FOLDER, None::<&str>, shared, None::<&str>);
    match share() {
        Err(nix::Error::EINVAL) => {
            let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
            mount(Some(FOLDER), FOLDER, None::<&str>, bind, None::<&str>)?;
            Ok(share()?)
        }
        done => Ok(done?),
    }
}

/// Removes a namespace's name; the kernel removes the rest once no socket holds it.
///
/// # Errors
/// If the name cannot be removed; that there is none is no error.
pub fn delete(namespace: &str) -> Result<(), LabError> {
    let failed = |source| LabError::Namespace {
        doing: "removing",
        namespace: namespace.to_owned(),
        source,
    };
    let target = path(namespace);
    if !target.exists() {
        return Ok(());
    }
    if let Ok(netns) = NetNs::open(namespace) {
        remove_pins(&netns);
    }
    match umount2(&target, MntFlags::MNT_DETACH) {
        // Never mounted: making it failed half-way.
        Ok(()) | Err(nix::Error::EINVAL) => {}
        Err(errno) => return Err(failed(errno.into())),
    }
    fs::remove_file(&target).map_err(failed)
}

/// Runs `work` on a thread of its own inside a namespace.
pub(crate) fn run_in<R: Send>(
    namespace: &str,
    work: impl FnOnce() -> R + Send,
) -> Result<R, LabError> {
    on_own_thread(|| {
        enter(namespace)?;
        Ok(work())
    })
}

/// Moves the calling thread into a namespace.
fn enter(namespace: &str) -> Result<(), LabError> {
    let failed = |source| LabError::Namespace {
        doing: "entering",
        namespace: namespace.to_owned(),
        source,
    };
    let file = File::open(path(namespace)).map_err(failed)?;
    setns(&file, CloneFlags::CLONE_NEWNET).map_err(|errno| failed(errno.into()))
}

/// Waits until the kernel sends packets by an interface: it activates the far end of a veth some time after the near
/// one is set up, and drops what is sent by it before.
#[allow(
    clippy::disallowed_methods,
    reason = "a test's witness, independent of the agent's netlink, waits for the kernel"
)]
pub(super) fn wait_until_running(namespace: &str, interface: &str) -> Result<(), LabError> {
    let deadline = Instant::now() + RUNNING_PATIENCE;
    let is_running = || -> io::Result<bool> {
        let found = getifaddrs()?.find(|entry| entry.interface_name == interface);
        Ok(found.is_some_and(|entry| entry.flags.contains(InterfaceFlags::IFF_RUNNING)))
    };
    let wait = || {
        while !is_running()? {
            if Instant::now() > deadline {
                let message = format!("{interface} is not running");
                return Err(io::Error::new(io::ErrorKind::TimedOut, message));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    };
    run_in(namespace, wait)?.map_err(|source| LabError::Namespace {
        doing: "waiting for a link of",
        namespace: namespace.to_owned(),
        source,
    })
}

fn on_own_thread<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Deletes every tracked flow of the calling thread's namespace.
pub(super) fn flush_conntrack() -> io::Result<()> {
    const CT_DELETE: u16 = 1 << 8 | 2; // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
    const REQUEST_ACK: u16 = 1 | 4; // NLM_F_REQUEST, NLM_F_ACK
    let fd = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    let mut request = Vec::with_capacity(20);
    request.extend_from_slice(&20_u32.to_ne_bytes());
    request.extend_from_slice(&CT_DELETE.to_ne_bytes());
    request.extend_from_slice(&REQUEST_ACK.to_ne_bytes());
    request.extend_from_slice(&1_u32.to_ne_bytes()); // sequence
    request.extend_from_slice(&[0; 8]); // port; family unspecified, version 0, resource 0
    let kernel = NetlinkAddr::new(0, 0);
    sendto(fd.as_raw_fd(), &request, &kernel, MsgFlags::empty())?;
    let mut answer = [0; 256];
    let length = recv(fd.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    match answer[..length].get(16..20).map(TryInto::try_into) {
        Some(Ok(code)) => match i32::from_ne_bytes(code) {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(-code)),
        },
        _ => Err(io::Error::other("a truncated acknowledgement")),
    }
}

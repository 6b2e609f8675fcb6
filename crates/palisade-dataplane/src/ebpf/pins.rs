//! The pins of the fast path of one network namespace: what keeps programs and maps in the kernel while no agent runs.
//!
//! ```text
//! <root>/net-<inode of the namespace>/<layout>/config, flows
//!                                             /links/<interface>-ingress, …-egress
//!                                             /set-<number>/endpoints, slots, counters
//! ```
//!
//! `config` and `flows` outlive agents. Each start has a set of its own for policy; that of the agent before goes when all
//! interfaces have the new programs and what it counted is in the ledger.
//!
//! Never: opens a pin of another layout.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use palisade_bpf::LAYOUT;
use palisade_sys::bpf::{AttachPoint, BpfLink};
use palisade_sys::fault;
use palisade_sys::netns::NetNs;

use super::error::FastPathError;

/// Where the pins of all namespaces are, a folder for each.
pub const PIN_ROOT: &str = "/sys/fs/bpf/palisade";

/// The folders of the pins of a namespace.
#[derive(Clone, Debug)]
pub(super) struct PinFolders {
    /// That of the namespace.
    namespace: PathBuf,
    /// That of this layout in it.
    layout: PathBuf,
}

impl PinFolders {
    pub(super) fn new(netns: &NetNs) -> Self {
        let namespace = Path::new(PIN_ROOT).join(format!("net-{}", netns.id().ino));
        PinFolders {
            layout: namespace.join(format!("{LAYOUT:016x}")),
            namespace,
        }
    }

    /// Makes the folders.
    pub(super) fn create(&self) -> Result<(), FastPathError> {
        let links = self.layout.join("links");
        fs::create_dir_all(&links).map_err(io_error("creating", &links))
    }

    /// Whether there is anything.
    pub(super) fn exist(&self) -> bool {
        self.namespace.exists()
    }

    /// The namespace's folder.
    pub(super) fn path(&self) -> &Path {
        &self.namespace
    }

    /// The pin of a map that outlives agents.
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.layout.join(name)
    }

    pub(super) fn remove_map(&self, name: &str) -> Result<(), FastPathError> {
        remove_file(&self.map(name))
    }

    /// The pin of a link.
    pub(super) fn link(&self, interface: u32, point: AttachPoint) -> PathBuf {
        let point = match point {
            AttachPoint::Ingress => "ingress",
            AttachPoint::Egress => "egress",
        };
        self.layout
            .join("links")
            .join(format!("{interface}-{point}"))
    }

    /// The interfaces that have a pinned link.
    pub(super) fn linked_interfaces(&self) -> Result<Vec<u32>, FastPathError> {
        let folder = self.layout.join("links");
        let mut interfaces = Vec::new();
        for name in names(&folder)? {
            let number = name.split('-').next();
            let number = number.and_then(|text| text.parse::<u32>().ok());
            interfaces.extend(number);
        }
        interfaces.sort_unstable();
        interfaces.dedup();
        Ok(interfaces)
    }

    /// The numbers of the sets, the last one last.
    pub(super) fn sets(&self) -> Result<Vec<u32>, FastPathError> {
        let mut sets = Vec::new();
        for name in names(&self.layout)? {
            let number = name.strip_prefix("set-");
            sets.extend(number.and_then(|text| text.parse::<u32>().ok()));
        }
        sets.sort_unstable();
        Ok(sets)
    }

    /// The folder of a set.
    pub(super) fn set(&self, number: u32) -> PathBuf {
        self.layout.join(format!("set-{number}"))
    }

    pub(super) fn create_set(&self, number: u32) -> Result<PathBuf, FastPathError> {
        let folder = self.set(number);
        fs::create_dir(&folder).map_err(io_error("creating", &folder))?;
        Ok(folder)
    }

    pub(super) fn remove_set(&self, number: u32) -> Result<(), FastPathError> {
        remove_folder(&self.set(number))
    }

    /// Removes the pins of a link.
    pub(super) fn remove_links(&self, interface: u32) -> Result<(), FastPathError> {
        for point in [AttachPoint::Ingress, AttachPoint::Egress] {
            detach(&self.link(interface, point))?;
        }
        Ok(())
    }

    /// Removes the pins of other layouts: their programs go with their links.
    pub(super) fn remove_other_layouts(&self) -> Result<(), FastPathError> {
        for name in names(&self.namespace)? {
            let folder = self.namespace.join(name);
            if folder != self.layout {
                detach_all(&folder.join("links"))?;
                remove_folder(&folder)?;
            }
        }
        Ok(())
    }

    /// Removes the links of all layouts: nothing is attached then.
    pub(super) fn remove_links_of_all(&self) -> Result<(), FastPathError> {
        for name in names(&self.namespace)? {
            detach_all(&self.namespace.join(name).join("links"))?;
        }
        Ok(())
    }

    /// Removes everything.
    pub(super) fn remove_all(&self) -> Result<(), FastPathError> {
        self.remove_links_of_all()?;
        remove_folder(&self.namespace)
    }
}

/// The names in a folder; none if it does not exist.
fn names(folder: &Path) -> Result<Vec<String>, FastPathError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error("listing", folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(io_error("listing", folder))?;
        found.extend(entry.file_name().into_string());
    }
    Ok(found)
}

/// Detaches the program of a pinned link, and removes the pin.
fn detach(path: &Path) -> Result<(), FastPathError> {
    if let Ok(link) = BpfLink::open_pinned(path) {
        // If the kernel refuses, it is detached some time after its pin is gone.
        let _ = link.detach();
    }
    fault::reach("link-detached");
    remove_file(path)
}

/// The same for all links in a folder, which goes.
fn detach_all(folder: &Path) -> Result<(), FastPathError> {
    for name in names(folder)? {
        detach(&folder.join(name))?;
    }
    remove_folder(folder)
}

fn remove_file(path: &Path) -> Result<(), FastPathError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("removing", path)(error))
        }
        _ => Ok(()),
    }
}

/// Removes a folder and all in it, in the order of names, so that `links` goes before sets.
fn remove_folder(folder: &Path) -> Result<(), FastPathError> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(io_error("removing", folder)(error))
        }
        _ => Ok(()),
    }
}

pub(super) fn io_error(
    operation: &'static str,
    path: &Path,
) -> impl Fn(io::Error) -> FastPathError {
    move |error| FastPathError::Io {
        operation,
        path: path.to_owned(),
        error,
    }
}

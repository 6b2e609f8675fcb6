//! The pins of the fast path of one network namespace: what keeps programs and maps in the kernel while no agent runs.
//!
//! ```text
//! <root>/net-<inode of the namespace>/<layout>/config, flows, lost_events, events
//!                                             /links/<interface>-ingress, …-egress
//!                                             /set-<number>/endpoints, slots, counters
//! ```
//!
//! In `links` is the pin of each tcx link, or for a tc filter, which cannot be pinned, an empty folder of that name.
//!
//! `config`, `flows` and both of events outlive agents. Each start has a set of its own for policy; that of the agent before goes when all
//! interfaces have the new programs and what it counted is in the ledger.
//!
//! Never: opens a pin of another layout.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use palisade_bpf::{BpfObject, LAYOUT};
use palisade_sys::bpf::{AttachPoint, BpfLink, BpfMap};
use palisade_sys::fault;
use palisade_sys::netns::NetNs;

use super::error::{FastPathError, io_error};
use super::hooks::Filters;

/// Where the pins of all namespaces are, a folder for each.
pub const PIN_ROOT: &str = "/sys/fs/bpf/palisade";

/// The folders of the pins of a namespace.
#[derive(Clone, Debug)]
pub(super) struct PinFolders {
    netns: NetNs,
    /// That of the namespace.
    namespace: PathBuf,
    /// That of this layout in it.
    layout: PathBuf,
}

impl PinFolders {
    pub(super) fn new(netns: &NetNs) -> Self {
        let namespace = Path::new(PIN_ROOT).join(format!("net-{}", netns.id().ino));
        PinFolders {
            netns: netns.clone(),
            layout: namespace.join(format!("{LAYOUT:016x}")),
            namespace,
        }
    }

    /// Makes the folders.
    pub(super) fn create(&self) -> Result<(), FastPathError> {
        let links = self.layout.join("links");
        fs::create_dir_all(&links).map_err(io_error("creating", &links))
    }

    /// Whether there is anything, or a filter without its folder.
    pub(super) fn exist(&self) -> Result<bool, FastPathError> {
        Ok(self.namespace.exists() || !Filters::new(&self.netns).list()?.is_empty())
    }

    /// The namespace's folder.
    pub(super) fn path(&self) -> &Path {
        &self.namespace
    }

    /// The pin of a map that outlives agents.
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.layout.join(name)
    }

    /// The maps `config` and `flows`, if both are pinned in the shapes of this layout.
    pub(super) fn open_flow_maps(&self) -> Result<Option<(BpfMap, BpfMap)>, FastPathError> {
        Ok(self.open_map("config")?.zip(self.open_map("flows")?))
    }

    /// The maps `events` and `lost_events`, likewise. The latter is pinned first.
    pub(super) fn open_denial_maps(&self) -> Result<Option<(BpfMap, BpfMap)>, FastPathError> {
        Ok(self.open_map("events")?.zip(self.open_map("lost_events")?))
    }

    fn open_map(&self, name: &str) -> Result<Option<BpfMap>, FastPathError> {
        let shape = BpfObject::FAST_PATH.map_shape(name)?;
        Ok(BpfMap::open_pinned(&self.map(name), shape).ok())
    }

    pub(super) fn remove_map(&self, name: &str) -> Result<(), FastPathError> {
        remove_file(&self.map(name))
    }

    /// The pin of a link, or the folder for a filter.
    pub(super) fn link(&self, interface: u32, point: AttachPoint) -> PathBuf {
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

    /// Detaches the programs of an interface, and removes their pins.
    pub(super) fn remove_links(&self, interface: u32) -> Result<(), FastPathError> {
        let mut filters = Filters::new(&self.netns);
        for point in AttachPoint::ALL {
            detach(&self.link(interface, point), &mut filters)?;
        }
        Ok(())
    }

    /// Removes what other layouts have attached and pinned.
    pub(super) fn remove_other_layouts(&self) -> Result<(), FastPathError> {
        let mut filters = Filters::new(&self.netns);
        for name in names(&self.namespace)? {
            let folder = self.namespace.join(name);
            if folder != self.layout {
                detach_all(&folder.join("links"), &mut filters)?;
                remove_folder(&folder)?;
            }
        }
        Ok(())
    }

    /// Detaches what all layouts have attached, also where the pins are gone: nothing is attached then.
    pub(super) fn remove_links_of_all(&self) -> Result<(), FastPathError> {
        let mut filters = Filters::new(&self.netns);
        for name in names(&self.namespace)? {
            detach_all(&self.namespace.join(name).join("links"), &mut filters)?;
        }
        for (interface, point) in filters.list()? {
            filters.delete(interface, point)?;
        }
        Ok(())
    }

    /// Deletes filters for which there is no folder: somebody has removed what was pinned, and filters stay.
    pub(super) fn remove_forgotten_filters(&self) -> Result<(), FastPathError> {
        let mut filters = Filters::new(&self.netns);
        for (interface, point) in filters.list()? {
            if !self.link(interface, point).is_dir() {
                filters.delete(interface, point)?;
            }
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

/// Detaches the program of a pinned link, or deletes the filter that a folder stands for, and removes the pin or the
/// folder.
fn detach(path: &Path, filters: &mut Filters) -> Result<(), FastPathError> {
    if path.is_dir() {
        if let Some((interface, point)) = place_of(path) {
            filters.delete(interface, point)?;
        }
        // It is empty, unless somebody else has put something into it, which stays.
        return match fs::remove_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("removing", path)(error))
            }
            _ => Ok(()),
        };
    }
    if let Ok(link) = BpfLink::open_pinned(path) {
        // If the kernel refuses, it is detached some time after its pin is gone.
        let _ = link.detach();
    }
    fault::reach("link-detached");
    remove_file(path)
}

/// The interface and the attach point that a pin is named for.
fn place_of(path: &Path) -> Option<(u32, AttachPoint)> {
    let (interface, name) = path.file_name()?.to_str()?.split_once('-')?;
    let mut points = AttachPoint::ALL.into_iter();
    let point = points.find(|point| point.name() == name)?;
    Some((interface.parse().ok()?, point))
}

/// The same for all links in a folder, which goes.
fn detach_all(folder: &Path, filters: &mut Filters) -> Result<(), FastPathError> {
    for name in names(folder)? {
        detach(&folder.join(name), filters)?;
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

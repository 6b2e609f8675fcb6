//! Removal of everything that Palisade created on this host.
//!
//! It first lists what it finds, and then removes exactly that, in an order that never leaves traffic
//! open: the CNI configuration, the interfaces, the routes to other nodes, the dataplane's tables, then the
//! sysctls that the agent changed (forwarding, then router advertisements) are restored, and finally the CNI
//! plugin that `palisade install-cni` copied, the socket with its directory and the state directory are removed. It
//! refuses to run while an agent runs. An item that cannot be removed is reported, and the others are
//! removed nevertheless. It never removes objects of others: interfaces created by another CNI plugin
//! are set down, because no policy applies to them any more, and foreign files in the state directory
//! stay. A sysctl that another program has changed since is not restored. With `--forwarding keep` no
//! sysctl is restored, for a host where other software relies on forwarding.

use crate::cni_conf::{OWNER_KEY, USUAL_CONF_DIR};
use crate::driver::open_all_drivers;
use crate::network_driver::{NodeRoute, kernel_route, own_route};
use crate::plugin_file::{RECORD_FILE, installed_plugin};
use crate::settings::sysctl_directory;
use crate::settings::{self, ChangedSetting, SettingsError, SettingsFile};
use crate::startup::LOCK_FILE;
use crate::workload_store::{WorkloadStore, WorkloadStoreError};
use palisade_api::{CleanupItem, CleanupKind};
use palisade_config::{CniConfig, Config};
use palisade_dataplane::{Dataplane, DriverError, DriverErrorKind};
use palisade_source::error_chain;
use palisade_sys::link::{KernelLinks, Link, LinkChange, LinkError};
use palisade_sys::lock::{InstanceLock, LockError};
use palisade_sys::netns::{NetNs, NetNsError};
use palisade_sys::sysctl::KernelSysctl;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The agent's files in the state directory.
const STATE_FILES: [&str; 9] = [
    "workloads.json",
    crate::node_pools::POOLS_FILE,
    "counts.log",
    "valid",
    "snapshot",
    "cni-queue",
    settings::SETTINGS_FILE,
    RECORD_FILE,
    LOCK_FILE,
];

/// Why the host could not be inspected.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// An agent is running.
    #[error("an agent is running ({0}): stop it first")]
    AgentRunning(String),
    /// The lock cannot be read.
    #[error(transparent)]
    Lock(LockError),
    /// The workload records cannot be read.
    #[error(transparent)]
    Records(#[from] WorkloadStoreError),
    /// The host's interfaces cannot be listed.
    #[error("listing this host's interfaces")]
    Links(#[from] LinkError),
    /// The host's network namespace cannot be opened.
    #[error("opening this host's network namespace")]
    Netns(#[from] NetNsError),
    /// The changed settings cannot be read.
    #[error("reading this host's sysctls")]
    Settings(#[from] SettingsError),
    /// The dataplane's tables cannot be read.
    #[error("reading the dataplane's tables")]
    Dataplane(#[from] DriverError),
}

/// The items found, and what is needed to remove them. It holds the lock, so no agent can start.
pub struct Cleanup {
    /// The items, in the order of removal.
    pub items: Vec<CleanupItem>,
    links: KernelLinks,
    /// All drivers: an earlier agent may have enforced with another one.
    drivers: Vec<Box<dyn Dataplane>>,
    sysctl: KernelSysctl,
    /// The original value of each sysctl, by name.
    original_settings: BTreeMap<String, String>,
    /// The routes to other nodes, by name.
    routes: BTreeMap<String, NodeRoute>,
    lock: Option<InstanceLock>,
}

/// Finds everything that Palisade created on a host with this configuration.
///
/// # Errors
/// If an agent is running, or the host cannot be inspected.
pub fn find(config: &Config) -> Result<Cleanup, CleanupError> {
    let mut drivers = open_all_drivers(config)?;
    let lock = lock_without_agent(config, &mut drivers)?;
    let mut links = KernelLinks::open(&NetNs::current()?)?;
    let sysctl = KernelSysctl::mounted_at(&NetNs::current()?, sysctl_directory());
    let mut original_settings = BTreeMap::new();
    let mut items = found_items(config, &mut drivers, &mut links)?;
    for setting in changed_settings(config, &sysctl)? {
        items.push(setting_item(&setting));
        original_settings.insert(setting.key, setting.before);
    }
    items.extend(file_items(config));
    Ok(Cleanup {
        routes: node_routes(&mut links)?,
        items,
        links,
        drivers,
        sysctl,
        original_settings,
        lock,
    })
}

/// Takes the lock of the state directory; fails if an agent runs here.
pub(crate) fn lock_without_agent(
    config: &Config,
    drivers: &mut [Box<dyn Dataplane>],
) -> Result<Option<InstanceLock>, CleanupError> {
    let lock_file = config.state.dir.join(LOCK_FILE);
    // Without the lock file no agent ever ran here, and taking the lock would create the file.
    let lock = lock_file
        .exists()
        .then(|| InstanceLock::acquire_without_pid(&lock_file));
    let lock = lock.transpose().map_err(|error| match error {
        LockError::AlreadyLocked { holder, .. } => CleanupError::AgentRunning(holder),
        other => CleanupError::Lock(other),
    })?;
    if UnixStream::connect(&config.api.socket).is_ok() {
        let socket = config.api.socket.display();
        return Err(CleanupError::AgentRunning(format!(
            "it responds at {socket}"
        )));
    }
    for driver in drivers {
        driver
            .check_owner()
            .map_err(|error| match (error.kind(), error.source()) {
                (DriverErrorKind::Owned, Some(owner)) => {
                    CleanupError::AgentRunning(owner.to_string())
                }
                _ => CleanupError::Dataplane(error),
            })?;
    }
    Ok(lock)
}

/// The CNI configuration, the interfaces, the routes to other nodes and the tables.
pub(crate) fn found_items(
    config: &Config,
    drivers: &mut [Box<dyn Dataplane>],
    links: &mut KernelLinks,
) -> Result<Vec<CleanupItem>, CleanupError> {
    let mut items = cni_configuration_items(&config.cni, &config.api.socket);
    items.extend(interface_items(config, links)?);
    let routes = node_routes(links)?.into_keys();
    items.extend(routes.map(|name| CleanupItem::new(CleanupKind::Route, name, None)));
    for driver in drivers {
        let tables = driver.installed_objects()?.into_iter();
        items.extend(tables.map(|table| CleanupItem::new(CleanupKind::Table, table, None)));
    }
    Ok(items)
}

/// The routes to other nodes, by name.
fn node_routes(links: &mut KernelLinks) -> Result<BTreeMap<String, NodeRoute>, CleanupError> {
    let routes = links.routes()?.into_iter();
    let routes = routes.filter_map(|route| own_route(&route));
    Ok(routes.map(|route| (route.to_string(), route)).collect())
}

/// The sysctls that the agent changed and that are to be restored.
pub(crate) fn changed_settings(
    config: &Config,
    sysctl: &KernelSysctl,
) -> Result<Vec<ChangedSetting>, CleanupError> {
    if !config.workloads.manages_forwarding {
        return Ok(Vec::new());
    }
    let file = SettingsFile::in_state_dir(&config.state.dir);
    Ok(settings::restorable_settings(sysctl, &file)?)
}

pub(crate) fn setting_item(setting: &ChangedSetting) -> CleanupItem {
    let about = format!("{}, was {}", setting.after, setting.before);
    CleanupItem::new(CleanupKind::Setting, &*setting.key, Some(about))
}

/// The CNI plugin, the socket and the files, each before the directory that contains it.
pub(crate) fn file_items(config: &Config) -> Vec<CleanupItem> {
    let item = |kind, path: &Path| CleanupItem::new(kind, path.display().to_string(), None);
    let mut items = Vec::new();
    items.extend(
        installed_plugin(&config.state.dir).map(|path| item(CleanupKind::CniPlugin, &path)),
    );
    if config.api.socket.exists() {
        items.push(item(CleanupKind::Socket, &config.api.socket));
    }
    items.extend(socket_directory(&config.api.socket).map(|path| item(CleanupKind::Socket, path)));
    items.extend(state_items(&config.state.dir));
    items
}

/// The directory of the socket, if it is named for us and contains nothing else.
fn socket_directory(socket: &Path) -> Option<&Path> {
    let directory = socket.parent().filter(|path| path.ends_with("palisade"))?;
    let entries = std::fs::read_dir(directory).ok()?;
    let mut others = entries.filter(|entry| match entry {
        Ok(entry) => entry.path() != socket,
        Err(_) => true,
    });
    others.next().is_none().then_some(directory)
}

/// The CNI configurations that an agent of this configuration wrote: under the configured name, or under any
/// other with the same socket, also where no directory is configured now.
fn cni_configuration_items(config: &CniConfig, own_socket: &Path) -> Vec<CleanupItem> {
    let directory = config.conf_dir.as_deref();
    let directory = directory.unwrap_or(Path::new(USUAL_CONF_DIR));
    let configured = directory.join(&config.conf_name);
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_ours = |path: &PathBuf| {
        let text = palisade_sys::plain_file::read(path).unwrap_or_default();
        let list: Value = serde_json::from_slice(&text).unwrap_or_default();
        let socket = list["plugins"][0]["socket"].as_str().map(Path::new);
        list.get(OWNER_KEY).is_some() && (*path == configured || socket == Some(own_socket))
    };
    paths.retain(is_ours);
    let item = |path: PathBuf| {
        CleanupItem::new(
            CleanupKind::CniConfiguration,
            path.display().to_string(),
            None,
        )
    };
    paths.into_iter().map(item).collect()
}

/// The host sides of the agent's veth pairs: recorded ones, and unrecorded ones with a generated name.
fn interface_items(
    config: &Config,
    links: &mut KernelLinks,
) -> Result<Vec<CleanupItem>, CleanupError> {
    let remembered = WorkloadStore::read_only(&config.state.dir).read()?;
    let records = remembered.records;
    let mut veths = links.links()?;
    veths.retain(|link| link.kind.as_deref() == Some("veth"));
    let of_others = records
        .iter()
        .filter(|record| record.chained)
        .map(|record| (&record.interface, record.index, Some(record.id())));
    let closed = remembered.closed.iter();
    let closed = closed.map(|closed| (&closed.interface, Some(closed.index), None));
    let mut chained = Vec::new();
    for (interface, index, id) in of_others.chain(closed) {
        let is_that_link = |link: &&Link| match index {
            Some(index) => link.index == index,
            None => link.name == **interface,
        };
        if let Some(link) = veths.iter().find(is_that_link) {
            let workload = id.map(|id| id.to_string());
            chained.push(CleanupItem::new(
                CleanupKind::ChainedInterface,
                &*link.name,
                workload,
            ));
        }
    }
    let present: BTreeSet<String> = veths.into_iter().map(|link| link.name).collect();
    let mut items = Vec::new();
    let mut known = BTreeSet::new();
    for record in &records {
        known.insert(record.interface.to_string());
        if !record.chained && present.contains(&*record.interface) {
            let workload = format!("{}/{}", record.namespace, record.name);
            items.push(CleanupItem::new(
                CleanupKind::Interface,
                &*record.interface,
                Some(workload),
            ));
        }
    }
    known.extend(chained.iter().map(|item| item.name.clone()));
    items.extend(chained);
    for name in present.difference(&known) {
        if is_generated_name(name, &config.workloads.interface_prefix) {
            items.push(CleanupItem::new(CleanupKind::Interface, name, None));
        }
    }
    Ok(items)
}

/// Whether a name has the form of a generated name: the prefix, then hexadecimal digits up to the full
/// length.
fn is_generated_name(name: &str, prefix: &str) -> bool {
    let digits = (15 - prefix.len().min(15)).min(11);
    name.strip_prefix(prefix).is_some_and(|rest| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        rest.len() == digits && rest.bytes().all(is_hex)
    })
}

/// The agent's files in the state directory; the lock comes last, followed by the directory.
fn state_items(state_dir: &Path) -> Vec<CleanupItem> {
    let item =
        |path: PathBuf| CleanupItem::new(CleanupKind::State, path.display().to_string(), None);
    let files = STATE_FILES.iter().map(|name| state_dir.join(name));
    let files = files.filter(|path| path.exists());
    let directory = state_dir.is_dir().then(|| state_dir.to_path_buf());
    files.chain(directory).map(item).collect()
}

impl Cleanup {
    /// Removes all items and returns them with their results.
    pub fn remove(mut self) -> Vec<CleanupItem> {
        let mut items = std::mem::take(&mut self.items);
        for item in &mut items {
            match self.remove_item(item) {
                Ok(removed) => item.removed = removed,
                Err(error) => item.error = Some(error),
            }
        }
        items
    }

    fn remove_item(&mut self, item: &CleanupItem) -> Result<bool, String> {
        match item.kind {
            CleanupKind::Interface => match self.links.delete_link(&item.name) {
                Err(error) if !error.is_not_found() => return Err(error_chain(&error)),
                _ => {}
            },
            CleanupKind::Route => {
                let route = self.routes.get(&item.name).map(kernel_route);
                match route.map_or(Ok(()), |route| self.links.delete_route(&route)) {
                    Err(error) if !error.is_not_found() => return Err(error_chain(&error)),
                    _ => {}
                }
            }
            CleanupKind::Setting => {
                if let Some(before) = self.original_settings.get(&item.name) {
                    settings::restore_setting(&mut self.sysctl, &item.name, before)?;
                }
            }
            CleanupKind::ChainedInterface => {
                match self.links.change_link(&item.name, &LinkChange::Down) {
                    Err(error) if !error.is_not_found() => return Err(error_chain(&error)),
                    _ => {}
                }
            }
            CleanupKind::Table => self.remove_table(&item.name)?,
            CleanupKind::CniConfiguration
            | CleanupKind::CniPlugin
            | CleanupKind::Socket
            | CleanupKind::State => {
                return remove_path(Path::new(&item.name)).map_err(|error| error.to_string());
            }
        }
        Ok(true)
    }

    /// Removes all of the driver that has this object, which is gone with the first of its objects.
    fn remove_table(&mut self, name: &str) -> Result<(), String> {
        for driver in &mut self.drivers {
            let objects = driver.installed_objects();
            let objects = objects.map_err(|error| error_chain(&error))?;
            if objects.iter().any(|object| object == name) {
                driver.remove().map_err(|error| error_chain(&error))?;
            }
        }
        Ok(())
    }
}

/// Removes a file, a directory of the agent, or the state directory if it is empty.
fn remove_path(path: &Path) -> io::Result<bool> {
    let is_folder_of_ours = STATE_FILES.iter().any(|name| path.ends_with(name)) && path.is_dir();
    let removed = match (path.is_dir(), is_folder_of_ours) {
        (true, true) => std::fs::remove_dir_all(path),
        (true, false) => match std::fs::remove_dir(path) {
            // It contains foreign files.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => return Ok(false),
            other => other,
        },
        (false, _) => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(true),
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        // The lock is held to the end, although its file is removed before.
        drop(self.lock.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_made_are_ours() {
        for (name, prefix, ours) in [
            ("pal0123456789a", "pal", true),
            ("pal0123456789", "pal", false),
            ("palette", "pal", false),
            ("pal0123456789G", "pal", false),
            ("veth0123456789a", "pal", false),
            ("palisade0123456", "palisade", true),
        ] {
            assert_eq!(is_generated_name(name, prefix), ours, "{name}");
        }
    }

    #[test]
    fn a_state_directory_with_somebody_elses_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = dir.path().join("state");
        std::fs::create_dir_all(state_dir.join("valid")).unwrap();
        let put = |name: &str| {
            palisade_sys::atomic_file::write_atomically(&state_dir.join(name), b"x").unwrap();
        };
        put("valid/00.json");
        put("workloads.json");
        put("notes.txt");
        let found = state_items(&state_dir);
        assert_eq!(found.len(), 3);
        let removed: Vec<bool> = found
            .iter()
            .map(|item| remove_path(Path::new(&item.name)).unwrap())
            .collect();
        assert_eq!(removed, [true, true, false]);
        let left: Vec<_> = std::fs::read_dir(&state_dir).unwrap().collect();
        assert_eq!(left.len(), 1);
        std::fs::remove_file(state_dir.join("notes.txt")).unwrap();
        assert!(remove_path(&state_dir).unwrap());
        assert!(!state_dir.exists());
    }
}

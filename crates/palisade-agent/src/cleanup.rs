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

use crate::dns_proxy::proxy_sockets;
use crate::driver::open_all_drivers;
use crate::startup::LOCK_FILE;
use crate::subsystems::{subsystems, workloads};
use palisade_api::{CleanupItem, CleanupKind};
use palisade_config::{ApiConfig, Config, StateConfig};
use palisade_dataplane::{
    Dataplane, DriverError, DriverErrorKind, InstalledObject, InstalledObjectKind,
};
use palisade_network::forwarding::Forwarding;
use palisade_network::forwarding::sysctls::{self, sysctl_directory};
use palisade_network::network_driver::{HostDrivers, NetworkDriverError};
use palisade_network::node_state::NodeState;
use palisade_node::clock::SystemClock;
use palisade_node::subsystem::{Installed, RunSubsystem, Runner, SubsystemError};
use palisade_sys::lock::{InstanceLock, LockError};
use palisade_text::error_chain;
use palisade_workloads::plugin_file::{RECORD_FILE, installed_plugin};
use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The agent's files in the state directory.
const STATE_FILES: [&str; 14] = [
    "workloads.json",
    palisade_node::node_pools::POOLS_FILE,
    "counts.log",
    palisade_name_manager::name_journal::JOURNAL_FILE,
    palisade_name_manager::rule_set_store::RULE_SET_FILE,
    palisade_network::dns_redirect::SETTINGS_FILE,
    "valid",
    "snapshot",
    "cni-queue",
    sysctls::SETTINGS_FILE,
    palisade_flows::store::RECORD_FILE,
    palisade_flows::store::UNREADABLE_RECORD_FILE,
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
    /// This host cannot be inspected.
    #[error("inspecting this host")]
    Host(#[from] NetworkDriverError),
    /// A part of what Palisade created cannot be listed.
    #[error(transparent)]
    Installed(#[from] SubsystemError),
    /// The dataplane's tables cannot be read.
    #[error("reading the dataplane's tables")]
    Dataplane(#[from] DriverError),
}

/// The items found, and what removes them. It holds the lock, so no agent can start.
pub struct Cleanup {
    /// The items, in the order of removal.
    pub items: Vec<CleanupItem>,
    /// Which of the parts removes each item.
    owners: BTreeMap<(CleanupKind, String), usize>,
    parts: Vec<Box<dyn Installed>>,
    lock: Option<InstanceLock>,
}

/// Finds everything that Palisade created on a host with this configuration.
///
/// # Errors
/// If an agent is running, or the host cannot be inspected.
pub fn find(config: &Config) -> Result<Cleanup, CleanupError> {
    let mut drivers = open_all_drivers(config)?;
    let lock = lock_without_agent(&config.state, &config.api, &mut drivers)?;
    let mut parts = installed_parts(config, drivers)?;
    let mut items = Vec::new();
    let mut owners = BTreeMap::new();
    for (part, installed) in parts.iter_mut().enumerate() {
        for item in installed.installed()? {
            owners.insert((item.kind, item.name.clone()), part);
            items.push(item);
        }
    }
    items.sort_by_key(|item| removal_order(item.kind));
    Ok(Cleanup {
        items,
        owners,
        parts,
        lock,
    })
}

/// The order of removal: traffic is never left open, and files come last.
pub(crate) fn removal_order(kind: CleanupKind) -> u8 {
    match kind {
        CleanupKind::CniConfiguration => 0,
        CleanupKind::Interface | CleanupKind::ChainedInterface => 1,
        CleanupKind::Route => 2,
        CleanupKind::Table | CleanupKind::Pins => 3,
        CleanupKind::Setting => 4,
        CleanupKind::CniPlugin | CleanupKind::Socket | CleanupKind::State => 5,
    }
}

/// All that an agent of this configuration may leave on a host.
pub(crate) fn installed_parts(
    config: &Config,
    drivers: Vec<Box<dyn Dataplane>>,
) -> Result<Vec<Box<dyn Installed>>, CleanupError> {
    let host = HostDrivers::current(sysctl_directory())?;
    let workloads = workloads(config, host.network, Arc::new(SystemClock));
    let workloads: Box<dyn RunSubsystem<NodeState>> = Box::new(Runner::new(workloads));
    let forwarding = Forwarding::new(&config.workloads, &config.state, host.forwarding);
    let forwarding: Box<dyn RunSubsystem<()>> = Box::new(Runner::new(forwarding));
    let mut parts: Vec<Box<dyn Installed>> = vec![Box::new(workloads), Box::new(forwarding)];
    for subsystem in subsystems(config, host.node_routes, host.redirect_routes) {
        parts.push(Box::new(subsystem));
    }
    for driver in drivers {
        parts.push(Box::new(DriverTables(driver)));
    }
    parts.push(Box::new(AgentFiles {
        state_dir: config.state.dir.clone(),
        socket: config.api.socket.clone(),
        proxy_sockets: proxy_sockets(&config.api),
    }));
    Ok(parts)
}

/// The objects of a driver.
struct DriverTables(Box<dyn Dataplane>);

impl Installed for DriverTables {
    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        let objects = self.0.installed_objects().map_err(SubsystemError::new)?;
        let item = |object: InstalledObject| {
            let kind = match object.kind {
                InstalledObjectKind::Table => CleanupKind::Table,
                InstalledObjectKind::Pins => CleanupKind::Pins,
            };
            CleanupItem::new(kind, object.name, None)
        };
        Ok(objects.into_iter().map(item).collect())
    }

    fn remove(&mut self, _: &CleanupItem) -> Result<bool, SubsystemError> {
        self.0.remove().map_err(SubsystemError::new)?;
        Ok(true)
    }
}

/// The CNI plugin, the socket and the files of the agent.
struct AgentFiles {
    state_dir: PathBuf,
    socket: PathBuf,
    proxy_sockets: [PathBuf; 2],
}

impl Installed for AgentFiles {
    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        let sockets = [&self.socket, &self.proxy_sockets[0], &self.proxy_sockets[1]];
        Ok(file_items(&self.state_dir, &sockets))
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        remove_path(Path::new(&item.name)).map_err(SubsystemError::new)
    }
}

/// Takes the lock of the state directory; fails if an agent runs here.
pub(crate) fn lock_without_agent(
    state: &StateConfig,
    api: &ApiConfig,
    drivers: &mut [Box<dyn Dataplane>],
) -> Result<Option<InstanceLock>, CleanupError> {
    let lock_file = state.dir.join(LOCK_FILE);
    // Without the lock file no agent ever ran here, and taking the lock would create the file.
    let lock = lock_file
        .exists()
        .then(|| InstanceLock::acquire_without_pid(&lock_file));
    let lock = lock.transpose().map_err(|error| match error {
        LockError::AlreadyLocked { holder, .. } => CleanupError::AgentRunning(holder),
        other => CleanupError::Lock(other),
    })?;
    if UnixStream::connect(&api.socket).is_ok() {
        let socket = api.socket.display();
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

/// The CNI plugin, the socket and the files, each before the directory that contains it.
fn file_items(state_dir: &Path, sockets: &[&PathBuf; 3]) -> Vec<CleanupItem> {
    let item = |kind, path: &Path| CleanupItem::new(kind, path.display().to_string(), None);
    let mut items = Vec::new();
    items.extend(installed_plugin(state_dir).map(|path| item(CleanupKind::CniPlugin, &path)));
    let present = sockets.iter().filter(|socket| socket.exists());
    items.extend(present.map(|socket| item(CleanupKind::Socket, socket)));
    items.extend(socket_directory(sockets).map(|path| item(CleanupKind::Socket, path)));
    items.extend(state_items(state_dir));
    items
}

/// The directory of the sockets, if it is named for us and contains nothing else.
fn socket_directory<'a>(sockets: &[&'a PathBuf; 3]) -> Option<&'a Path> {
    let directory = sockets[0]
        .parent()
        .filter(|path| path.ends_with("palisade"))?;
    let entries = std::fs::read_dir(directory).ok()?;
    let mut others = entries.filter(|entry| match entry {
        Ok(entry) => !sockets.contains(&&entry.path()),
        Err(_) => true,
    });
    others.next().is_none().then_some(directory)
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
        let owner = self.owners.get(&(item.kind, item.name.clone()));
        let part = owner.and_then(|part| self.parts.get_mut(*part));
        let Some(part) = part else {
            return Ok(false);
        };
        part.remove(item).map_err(|error| error_chain(&error))
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

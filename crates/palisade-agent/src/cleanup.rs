//! Taking away everything Palisade made on this host.
//!
//! First it looks, and tells what it found; then it removes exactly that, in an order that opens
//! nothing: runtimes stop being sent here, interfaces go, and only then the table that judged them,
//! settings that the agent changed (forwarding, then router advertisements) are put back, then files
//! go. It refuses while an agent runs. What it cannot remove is told, and the rest is removed all the
//! same. It never removes what others made: interfaces that another CNI plugin made stay, set down,
//! since nothing judges them any more; so does whatever in the state directory is not Palisade's. A setting that somebody else has changed since
//! stays as it is, and so do all with `--forwarding keep`, for a host where others rely on forwarding
//! by now.

use crate::config::Config;
use crate::core::error_chain;
use crate::run::nft_config;
use crate::settings::{self, SettingsError, SettingsFile};
use crate::startup::LOCK_FILE;
use crate::workload_store::{WorkloadStore, WorkloadStoreError};
use palisade_dataplane::{Dataplane, NftDataplane, OwnerError};
use palisade_sys::link::{KernelLinks, Link, LinkChange, LinkError, Links};
use palisade_sys::lock::{InstanceLock, LockError};
use palisade_sys::netns::{NetNs, NetNsError};
use palisade_sys::sysctl::KernelSysctl;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// What of a state directory is ours.
const STATE_FILES: [&str; 6] = [
    "workloads.json",
    "counts.log",
    "valid",
    "cni-queue",
    settings::SETTINGS_FILE,
    LOCK_FILE,
];

/// Why nothing was looked at.
#[derive(Debug, thiserror::Error)]
pub enum CleanupError {
    /// An agent runs.
    #[error("an agent runs ({0}): stop it first")]
    AgentRunning(String),
    /// The lock cannot be looked at.
    #[error(transparent)]
    Lock(LockError),
    /// The remembered workloads cannot be read.
    #[error(transparent)]
    Records(#[from] WorkloadStoreError),
    /// This host's interfaces cannot be looked at.
    #[error("looking at this host's interfaces")]
    Links(#[from] LinkError),
    /// This host's namespace cannot be opened.
    #[error("opening this host's network namespace")]
    Netns(#[from] NetNsError),
    /// This host's settings cannot be looked at.
    #[error("looking at this host's settings")]
    Settings(#[from] SettingsError),
    /// The packet filter cannot be looked at.
    #[error("looking at the packet filter")]
    Dataplane(#[from] palisade_dataplane::Error),
}

/// What kind of thing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CleanupKind {
    /// The configuration that sends runtimes here.
    CniConfiguration,
    /// A veth pair, with its routes and neighbours.
    Interface,
    /// A veth pair that another plugin made and we judged: it is set down.
    ChainedInterface,
    /// The nftables table, with everything in it.
    Table,
    /// A kernel setting that the agent changed; it is put back.
    Setting,
    /// The API's socket.
    Socket,
    /// A file or folder of the state directory, or it itself.
    State,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CleanupItem {
    /// What it is.
    pub kind: CleanupKind,
    /// Which.
    pub name: String,
    /// Whose, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// Whether it is gone now.
    pub removed: bool,
    /// Why it is not, if it should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl CleanupItem {
    fn new(kind: CleanupKind, name: impl Into<String>, about: Option<String>) -> Self {
        CleanupItem {
            kind,
            name: name.into(),
            about,
            removed: false,
            error: None,
        }
    }
}

/// What was found, and the means to remove it. No agent starts while it is held.
pub struct Cleanup {
    /// In the order in which it is removed.
    pub items: Vec<CleanupItem>,
    links: KernelLinks,
    dataplane: NftDataplane,
    sysctl: KernelSysctl,
    /// What each setting was before, by its name.
    original_settings: BTreeMap<String, String>,
    lock: Option<InstanceLock>,
}

/// Looks for everything of ours, on a host that was configured so.
///
/// # Errors
/// If an agent runs, or something cannot be looked at.
pub fn find(config: &Config) -> Result<Cleanup, CleanupError> {
    let lock_file = config.state_dir.join(LOCK_FILE);
    // Without the file nobody ever ran here, and taking the lock would make it.
    let lock = lock_file
        .exists()
        .then(|| InstanceLock::acquire_without_pid(&lock_file));
    let lock = lock.transpose().map_err(|error| match error {
        LockError::AlreadyLocked { holder, .. } => CleanupError::AgentRunning(holder),
        other => CleanupError::Lock(other),
    })?;
    if UnixStream::connect(&config.socket).is_ok() {
        let socket = config.socket.display();
        return Err(CleanupError::AgentRunning(format!(
            "it answers at {socket}"
        )));
    }
    let mut items = Vec::new();
    items.extend(cni_configuration_item(config));
    let mut links = KernelLinks::open(&NetNs::current()?)?;
    items.extend(interface_items(config, &mut links)?);
    let mut dataplane = NftDataplane::new(nft_config(config))?;
    dataplane.check_owner().map_err(|error| match error {
        palisade_dataplane::Error::Owner(taken @ OwnerError::OwnedByOther { .. }) => {
            CleanupError::AgentRunning(taken.to_string())
        }
        other => CleanupError::Dataplane(other),
    })?;
    let tables = dataplane.present_tables()?.into_iter();
    items.extend(
        tables.map(|table| CleanupItem::new(CleanupKind::Table, format!("inet {table}"), None)),
    );
    let sysctl = KernelSysctl::new(&NetNs::current()?);
    let mut original_settings = BTreeMap::new();
    if config.manage_forwarding {
        let file = SettingsFile::in_state_dir(&config.state_dir);
        for setting in settings::restorable_settings(&sysctl, &file)? {
            let about = format!("{}, was {}", setting.after, setting.before);
            items.push(CleanupItem::new(
                CleanupKind::Setting,
                &*setting.key,
                Some(about),
            ));
            original_settings.insert(setting.key, setting.before);
        }
    }
    if config.socket.exists() {
        let name = config.socket.display().to_string();
        items.push(CleanupItem::new(CleanupKind::Socket, name, None));
    }
    items.extend(state_items(&config.state_dir));
    Ok(Cleanup {
        items,
        links,
        dataplane,
        sysctl,
        original_settings,
        lock,
    })
}

/// The file that sends runtimes here, if it is ours.
fn cni_configuration_item(config: &Config) -> Option<CleanupItem> {
    let path = config.cni_conf_dir.as_ref()?.join(&config.cni_conf_name);
    let text = std::fs::read(&path).ok()?;
    let list: serde_json::Value = serde_json::from_slice(&text).ok()?;
    let ours = list.get(crate::cni_conf::OWNER_KEY).is_some();
    ours.then(|| {
        CleanupItem::new(
            CleanupKind::CniConfiguration,
            path.display().to_string(),
            None,
        )
    })
}

/// The host sides of pairs that we made: remembered ones, and others that can only be ours.
fn interface_items(
    config: &Config,
    links: &mut KernelLinks,
) -> Result<Vec<CleanupItem>, CleanupError> {
    let remembered = WorkloadStore::read_only(&config.state_dir).read()?;
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
        if is_generated_name(name, &config.interface_prefix) {
            items.push(CleanupItem::new(CleanupKind::Interface, name, None));
        }
    }
    Ok(items)
}

/// Whether a name is made as ours are: the prefix, then hexadecimal digits up to the full length.
fn is_generated_name(name: &str, prefix: &str) -> bool {
    let digits = (15 - prefix.len().min(15)).min(11);
    name.strip_prefix(prefix).is_some_and(|rest| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        rest.len() == digits && rest.bytes().all(is_hex)
    })
}

/// What of a state directory is ours; the lock last, and then the directory.
fn state_items(state_dir: &Path) -> Vec<CleanupItem> {
    let item =
        |path: PathBuf| CleanupItem::new(CleanupKind::State, path.display().to_string(), None);
    let files = STATE_FILES.iter().map(|name| state_dir.join(name));
    let files = files.filter(|path| path.exists());
    let directory = state_dir.is_dir().then(|| state_dir.to_path_buf());
    files.chain(directory).map(item).collect()
}

impl Cleanup {
    /// Removes everything that was found; each item says how that went.
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
            CleanupKind::Table => self
                .dataplane
                .remove()
                .map_err(|error| error_chain(&error))?,
            CleanupKind::CniConfiguration | CleanupKind::Socket | CleanupKind::State => {
                return remove_path(Path::new(&item.name)).map_err(|error| error.to_string());
            }
        }
        Ok(true)
    }
}

/// Removes a file, a folder of ours, or the state directory if nothing else is in it.
fn remove_path(path: &Path) -> io::Result<bool> {
    let is_folder_of_ours = STATE_FILES.iter().any(|name| path.ends_with(name)) && path.is_dir();
    let removed = match (path.is_dir(), is_folder_of_ours) {
        (true, true) => std::fs::remove_dir_all(path),
        (true, false) => match std::fs::remove_dir(path) {
            // Something that is not ours is in it.
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
        // Held to the end, though its file is gone by then.
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

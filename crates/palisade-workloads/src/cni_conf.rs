//! The CNI configuration file that makes runtimes use palisade-cni: written when the agent is ready,
//! removed when it stops if so configured.
//!
//! The file is replaced atomically. A file that the agent did not write is never changed: the agent's
//! file contains an owner key, and a file without this key is foreign.

use crate::plugin_file::PLUGIN;
use palisade_api::{CleanupItem, CleanupKind};
use palisade_config::{ApiConfig, CniConfig, StateConfig};
use palisade_network::node_state::NodeState;
use palisade_node::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use palisade_sys::atomic_file::{WriteError, write_atomically};
use palisade_sys::plain_file::FileError;
use palisade_text::error_chain;
use serde_json::{Value, json};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The key that identifies a file written by the agent.
pub const OWNER_KEY: &str = "palisade.io/written-by";
/// Where runtimes look for configurations, unless configured otherwise.
pub const USUAL_CONF_DIR: &str = "/etc/cni/net.d";
/// The newest version that runtimes of recent years support. Newer runtimes select a version from
/// `cniVersions`.
const VERSION: &str = "1.0.0";

/// Why the file could not be written or removed.
#[derive(Debug, thiserror::Error)]
pub enum CniConfError {
    /// The file belongs to another program.
    #[error(
        "{} exists and was not written by palisade; move it away, or configure \
         another cni-conf-name", .0.display()
    )]
    Foreign(PathBuf),
    /// Plugins that runtimes would call are missing: they would fail to start any pod.
    #[error(
        "no CNI configuration is written: {} not in {}; try: palisade install-cni, or, for loopback, \
         the package kubernetes-cni or containernetworking-plugins", .names.join(" and "), .directory.display()
    )]
    MissingPlugins {
        /// Their names.
        names: Vec<&'static str>,
        /// The directory of plugins.
        directory: PathBuf,
    },
    /// The file cannot be read or removed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// The path and content of the file, and whether it is kept when the agent stops.
#[derive(Clone, Debug, PartialEq)]
pub struct CniConf {
    path: PathBuf,
    content: Value,
    keep_on_exit: bool,
}

impl CniConf {
    /// The file that these sections name; `None` if none is configured.
    pub fn new(cni: &CniConfig, state: &StateConfig, api: &ApiConfig) -> Option<Self> {
        let path = cni.conf_dir.as_ref()?.join(&cni.conf_name);
        let queue = crate::workloads::deletions::queue_dir(&state.dir);
        let content = json!({
            "cniVersion": VERSION,
            "cniVersions": ["0.3.1", "0.4.0", VERSION, "1.1.0"],
            "name": "palisade",
            OWNER_KEY: "palisade agent",
            "plugins": [{
                "type": "palisade-cni",
                "socket": api.socket,
                "queue": queue,
                "capabilities": { "ips": true },
            }],
        });
        Some(CniConf {
            path,
            content,
            keep_on_exit: cni.keeps_conf,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file; false if it already has this content.
    ///
    /// # Errors
    /// See [`CniConfError`]; the existing file is then unchanged.
    pub fn write(&self) -> Result<bool, CniConfError> {
        let existing = self.read_own()?;
        if existing.as_ref() == Some(&self.content) {
            return Ok(false);
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory)
                .map_err(self.io_error("creating the directory of"))?;
        }
        let mut text = format!("{:#}", self.content);
        text.push('\n');
        write_atomically(&self.path, text.as_bytes())?;
        Ok(true)
    }

    /// Removes the file, unless it is to be kept.
    ///
    /// # Errors
    /// See [`CniConfError`].
    pub fn remove_unless_kept(&self) -> Result<(), CniConfError> {
        if self.keep_on_exit || self.read_own()?.is_none() {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(self.io_error("removing"))
    }

    /// The existing content, if the agent wrote it.
    fn read_own(&self) -> Result<Option<Value>, CniConfError> {
        let text = match palisade_sys::plain_file::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io_error("reading")(error)),
        };
        let found: Option<Value> = serde_json::from_slice(&text).ok();
        match found.filter(|found| found.get(OWNER_KEY).is_some()) {
            Some(ours) => Ok(Some(ours)),
            None => Err(CniConfError::Foreign(self.path.clone())),
        }
    }

    fn io_error(&self, doing: &'static str) -> impl Fn(io::Error) -> CniConfError + use<> {
        let error = FileError::of(doing, &self.path);
        move |source| error(source).into()
    }
}

/// The plugin that containerd before 2.2 and CRI-O call for every pod, besides those of the configuration.
const LOOPBACK: &str = "loopback";

/// An error while plugins are missing for which the configuration has to wait.
fn check_plugins(config: &CniConfig) -> Result<(), CniConfError> {
    let is_missing = |name: &&str| !config.bin_dir.join(name).is_file();
    let names: Vec<_> = [PLUGIN, LOOPBACK].into_iter().filter(is_missing).collect();
    if names.is_empty() {
        return Ok(());
    }
    Err(CniConfError::MissingPlugins {
        names,
        directory: config.bin_dir.clone(),
    })
}

/// Writes the CNI configuration.
///
/// # Errors
/// See [`CniConfError`]; the existing file is then unchanged.
fn install(conf: &CniConf, cni: &CniConfig) -> Result<(), CniConfError> {
    check_plugins(cni)?;
    if conf.write()? {
        tracing::info!(file = %conf.path().display(), "CNI configuration written");
    }
    Ok(())
}

/// The CNI configuration as a subsystem: written once the API serves runtimes and this host has address pools.
#[derive(Debug)]
pub struct CniConfiguration {
    cni: CniConfig,
    socket: PathBuf,
    /// The file, if there is one to write.
    conf: Option<CniConf>,
    is_written: bool,
}

impl CniConfiguration {
    /// Not written yet.
    pub fn new(cni: &CniConfig, state: &StateConfig, api: &ApiConfig) -> Self {
        CniConfiguration {
            cni: cni.clone(),
            socket: api.socket.clone(),
            conf: CniConf::new(cni, state, api),
            is_written: false,
        }
    }
}

/// Writes the CNI configuration.
pub struct WriteCniConfiguration(Option<PathBuf>);

impl fmt::Display for WriteCniConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(path) => write!(f, "write {}", path.display()),
            None => f.write_str("write no CNI configuration"),
        }
    }
}

impl Subsystem<NodeState> for CniConfiguration {
    type Action = WriteCniConfiguration;

    fn name(&self) -> &'static str {
        "CNI configuration"
    }

    fn has_work(&self, node: &NodeState) -> bool {
        node.serves_runtimes && !self.is_written
    }

    fn plan(&mut self, node: &mut NodeState) -> Result<Vec<WriteCniConfiguration>, SubsystemError> {
        if self.is_written || !node.serves_runtimes || node.missing_pools().is_some() {
            return Ok(Vec::new());
        }
        let path = self.conf.as_ref().map(|conf| conf.path.clone());
        Ok(vec![WriteCniConfiguration(path)])
    }

    fn execute(
        &mut self,
        _: WriteCniConfiguration,
        _: &mut NodeState,
    ) -> Result<ActionOutcome, SubsystemError> {
        if let Some(conf) = &self.conf {
            install(conf, &self.cni).map_err(SubsystemError::new)?;
        }
        self.is_written = true;
        Ok(ActionOutcome::Done)
    }

    fn failure_reason(&self, failure: &str) -> String {
        failure.to_owned()
    }

    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        Ok(cni_configuration_items(&self.cni, &self.socket))
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        match std::fs::remove_file(&item.name) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(SubsystemError::new(error))
            }
            _ => Ok(true),
        }
    }
}

/// The CNI configurations that an agent of this configuration wrote: under the configured name, or under any
/// other with the same socket, also where no directory is configured now.
fn cni_configuration_items(cni: &CniConfig, socket: &Path) -> Vec<CleanupItem> {
    let directory = cni.conf_dir.as_deref();
    let directory = directory.unwrap_or(Path::new(USUAL_CONF_DIR));
    let configured = directory.join(&cni.conf_name);
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_ours = |path: &PathBuf| {
        let text = palisade_sys::plain_file::read(path).unwrap_or_default();
        let list: Value = serde_json::from_slice(&text).unwrap_or_default();
        let named_socket = list["plugins"][0]["socket"].as_str().map(Path::new);
        list.get(OWNER_KEY).is_some() && (*path == configured || named_socket == Some(socket))
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

/// Removes the CNI configuration, unless it is to be kept.
pub fn uninstall(cni: &CniConfig, state: &StateConfig, api: &ApiConfig) {
    if let Some(conf) = CniConf::new(cni, state, api)
        && let Err(error) = conf.remove_unless_kept()
    {
        tracing::warn!(error = %error_chain(&error), "removing the CNI configuration failed");
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests write files directly")]
mod tests {
    use super::*;
    use palisade_config::Config;
    use std::collections::BTreeMap;

    fn conf(dir: &Path, keep: &str) -> Option<CniConf> {
        let flags = [
            ("cni-conf-dir", dir.to_str().unwrap()),
            ("cni-conf-keep", keep),
        ];
        let flags: BTreeMap<_, _> = flags
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let config = Config::resolve(&flags, |_| None, None).unwrap();
        CniConf::new(&config.cni, &config.state, &config.api)
    }

    #[test]
    fn it_is_written_once_and_goes_or_stays_as_configured() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("net.d");
        let (stays, removed) = (conf(&dir, "true").unwrap(), conf(&dir, "false").unwrap());
        assert!(stays.write().unwrap());
        assert!(!stays.write().unwrap(), "nothing to do");
        let text = std::fs::read(stays.path()).unwrap();
        let read: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(read["plugins"][0]["type"], "palisade-cni");
        assert_eq!(read["plugins"][0]["queue"], "/var/lib/palisade/cni-queue");
        stays.remove_unless_kept().unwrap();
        assert!(stays.path().exists());
        removed.remove_unless_kept().unwrap();
        assert!(!stays.path().exists());
        removed.remove_unless_kept().unwrap();
        let others = std::fs::read_dir(&dir).unwrap().count();
        assert_eq!(others, 0, "no draft is left");
    }

    #[test]
    fn a_foreign_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(dir.path(), "false").unwrap();
        for text in ["{\"name\": \"mine\"}", "no JSON"] {
            std::fs::write(conf.path(), text).unwrap();
            assert!(matches!(conf.write(), Err(CniConfError::Foreign(_))));
            assert!(matches!(
                conf.remove_unless_kept(),
                Err(CniConfError::Foreign(_))
            ));
            assert_eq!(std::fs::read_to_string(conf.path()).unwrap(), text);
        }
    }

    #[test]
    fn without_a_folder_there_is_none() {
        assert_eq!(conf(Path::new(""), "true"), None);
    }
}

//! The CNI configuration that tells runtimes to use palisade-cni: written when the agent is ready,
//! removed when it ends if so configured.
//!
//! The file is always whole, and one that the agent did not write is never touched: it carries a mark
//! of its own, and what has none is foreign.

use crate::config::Config;
use crate::core::{Core, chain};
use palisade_sys::atomic_file::{WriteError, write_atomically};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// The key whose presence says that the file is ours.
pub(crate) const MARK: &str = "palisade.io/written-by";
/// The newest version that every runtime of the last years knows. What knows newer ones picks of
/// `cniVersions`.
const VERSION: &str = "1.0.0";

/// Why it was not written or removed.
#[derive(Debug, thiserror::Error)]
pub enum ConfError {
    /// Somebody else's.
    #[error(
        "{} is there and was not written by palisade: it stays; move it away, or configure \
         another cni-conf-name", .0.display()
    )]
    Foreign(PathBuf),
    /// It cannot be looked at or removed.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Where it goes, what it says, and whether it stays.
#[derive(Clone, Debug, PartialEq)]
pub struct CniConf {
    path: PathBuf,
    content: Value,
    keep: bool,
}

impl CniConf {
    /// As configured; `None` if none is to be written.
    pub fn of(config: &Config) -> Option<Self> {
        let path = config.cni_conf_dir.as_ref()?.join(&config.cni_conf_name);
        let queue = crate::deletions::folder(&config.state_dir);
        let content = json!({
            "cniVersion": VERSION,
            "cniVersions": ["0.3.1", "0.4.0", VERSION, "1.1.0"],
            "name": "palisade",
            MARK: "palisade agent",
            "plugins": [{
                "type": "palisade-cni",
                "socket": config.socket,
                "queue": queue,
                "capabilities": { "ips": true },
            }],
        });
        Some(CniConf {
            path,
            content,
            keep: config.cni_conf_keep,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it; says whether it was not there like this already.
    ///
    /// # Errors
    /// See [`ConfError`]; then what was there still is.
    pub fn write(&self) -> Result<bool, ConfError> {
        let found = self.found()?;
        if found.as_ref() == Some(&self.content) {
            return Ok(false);
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory).map_err(self.failed("making the folder of"))?;
        }
        let mut text = format!("{:#}", self.content);
        text.push('\n');
        write_atomically(&self.path, text.as_bytes())?;
        Ok(true)
    }

    /// Removes it, unless it is to stay.
    ///
    /// # Errors
    /// See [`ConfError`].
    pub fn end(&self) -> Result<(), ConfError> {
        if self.keep || self.found()?.is_none() {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(self.failed("removing"))
    }

    /// What is there, if it is ours.
    fn found(&self) -> Result<Option<Value>, ConfError> {
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("reading")(error)),
        };
        let found: Option<Value> = serde_json::from_slice(&text).ok();
        match found.filter(|found| found.get(MARK).is_some()) {
            Some(ours) => Ok(Some(ours)),
            None => Err(ConfError::Foreign(self.path.clone())),
        }
    }

    fn failed(&self, doing: &'static str) -> impl Fn(io::Error) -> ConfError + use<> {
        let path = self.path.clone();
        move |source| ConfError::Io {
            doing,
            path: path.clone(),
            source,
        }
    }
}

impl Core {
    /// Tells runtimes that this agent is ready; what that fails with is shown in status.
    pub(crate) fn announce(&mut self) {
        let Some(conf) = CniConf::of(&self.config) else {
            return;
        };
        let path = conf.path().display();
        let plugin = self.config.cni_bin_dir.join("palisade-cni");
        if !plugin.is_file() {
            // Not degraded: runtimes may well look elsewhere too.
            tracing::warn!(plugin = %plugin.display(), "the CNI plugin is not where runtimes look for it");
        }
        match conf.write() {
            Ok(true) => tracing::info!(file = %path, "CNI configuration written"),
            Ok(false) => {}
            Err(error) => {
                tracing::error!(error = %chain(&error), "writing the CNI configuration");
                self.unannounced = Some(chain(&error));
            }
        }
    }

    /// Takes it back, if it is not to stay.
    pub(crate) fn end_announcement(&mut self) {
        if let Some(conf) = CniConf::of(&self.config)
            && let Err(error) = conf.end()
        {
            tracing::warn!(error = %chain(&error), "removing the CNI configuration");
        }
    }
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write with the plain calls"
)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn conf(dir: &Path, keep: &str) -> Option<CniConf> {
        let said = [
            ("cni-conf-dir", dir.to_str().unwrap()),
            ("cni-conf-keep", keep),
        ];
        let said: BTreeMap<_, _> = said
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        CniConf::of(&Config::resolve(&said, |_| None, None).unwrap())
    }

    #[test]
    fn it_is_written_once_and_goes_or_stays_as_configured() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("net.d");
        let (stays, goes) = (conf(&dir, "true").unwrap(), conf(&dir, "false").unwrap());
        assert!(stays.write().unwrap());
        assert!(!stays.write().unwrap(), "nothing to do");
        let text = std::fs::read(stays.path()).unwrap();
        let read: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(read["plugins"][0]["type"], "palisade-cni");
        assert_eq!(read["plugins"][0]["queue"], "/var/lib/palisade/cni-queue");
        stays.end().unwrap();
        assert!(stays.path().exists());
        goes.end().unwrap();
        assert!(!stays.path().exists());
        goes.end().unwrap();
        let others = std::fs::read_dir(&dir).unwrap().count();
        assert_eq!(others, 0, "no draft is left");
    }

    #[test]
    fn a_foreign_file_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let conf = conf(dir.path(), "false").unwrap();
        for text in ["{\"name\": \"mine\"}", "no JSON"] {
            std::fs::write(conf.path(), text).unwrap();
            assert!(matches!(conf.write(), Err(ConfError::Foreign(_))));
            assert!(matches!(conf.end(), Err(ConfError::Foreign(_))));
            assert_eq!(std::fs::read_to_string(conf.path()).unwrap(), text);
        }
    }

    #[test]
    fn without_a_folder_there_is_none() {
        assert_eq!(conf(Path::new(""), "true"), None);
    }
}

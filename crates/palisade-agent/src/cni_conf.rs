//! The CNI configuration that tells runtimes to use palisade-cni: written when the agent is ready,
//! removed when it ends if so configured.
//!
//! The file is always whole, and one that the agent did not write is never touched: it carries a mark
//! of its own, and what has none is foreign.

use crate::config::Config;
use crate::core::{Core, error_chain};
use palisade_sys::atomic_file::{WriteError, write_atomically};
use serde_json::{Value, json};
use std::io;
use std::path::{Path, PathBuf};

/// The key whose presence says that the file is ours.
pub(crate) const OWNER_KEY: &str = "palisade.io/written-by";
/// The newest version that every runtime of the last years knows. What knows newer ones picks of
/// `cniVersions`.
const VERSION: &str = "1.0.0";

/// Why it was not written or removed.
#[derive(Debug, thiserror::Error)]
pub enum CniConfError {
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
    keep_on_exit: bool,
}

impl CniConf {
    /// As configured; `None` if none is to be written.
    pub fn from_config(config: &Config) -> Option<Self> {
        let path = config.cni_conf_dir.as_ref()?.join(&config.cni_conf_name);
        let queue = crate::deletions::queue_dir(&config.state_dir);
        let content = json!({
            "cniVersion": VERSION,
            "cniVersions": ["0.3.1", "0.4.0", VERSION, "1.1.0"],
            "name": "palisade",
            OWNER_KEY: "palisade agent",
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
            keep_on_exit: config.cni_conf_keep,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes it; says whether it was not there like this already.
    ///
    /// # Errors
    /// See [`CniConfError`]; then what was there still is.
    pub fn write(&self) -> Result<bool, CniConfError> {
        let existing = self.read_own()?;
        if existing.as_ref() == Some(&self.content) {
            return Ok(false);
        }
        if let Some(directory) = self.path.parent() {
            std::fs::create_dir_all(directory).map_err(self.io_error("making the folder of"))?;
        }
        let mut text = format!("{:#}", self.content);
        text.push('\n');
        write_atomically(&self.path, text.as_bytes())?;
        Ok(true)
    }

    /// Removes it, unless it is to stay.
    ///
    /// # Errors
    /// See [`CniConfError`].
    pub fn remove_unless_kept(&self) -> Result<(), CniConfError> {
        if self.keep_on_exit || self.read_own()?.is_none() {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(self.io_error("removing"))
    }

    /// What is there, if it is ours.
    fn read_own(&self) -> Result<Option<Value>, CniConfError> {
        let text = match std::fs::read(&self.path) {
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
        let path = self.path.clone();
        move |source| CniConfError::Io {
            doing,
            path: path.clone(),
            source,
        }
    }
}

impl Core {
    /// Tells runtimes that this agent is ready; what that fails with is shown in status.
    pub(crate) fn install_cni_conf(&mut self) {
        let Some(conf) = CniConf::from_config(&self.config) else {
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
                tracing::error!(error = %error_chain(&error), "writing the CNI configuration");
                self.cni_conf_failure = Some(error_chain(&error));
            }
        }
    }

    /// Takes it back, if it is not to stay.
    pub(crate) fn uninstall_cni_conf(&mut self) {
        if let Some(conf) = CniConf::from_config(&self.config)
            && let Err(error) = conf.remove_unless_kept()
        {
            tracing::warn!(error = %error_chain(&error), "removing the CNI configuration");
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
        let flags = [
            ("cni-conf-dir", dir.to_str().unwrap()),
            ("cni-conf-keep", keep),
        ];
        let flags: BTreeMap<_, _> = flags
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        CniConf::from_config(&Config::resolve(&flags, |_| None, None).unwrap())
    }

    #[test]
    fn it_is_written_once_and_goes_or_stays_as_configured() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("net.d");
        let (kept, removed) = (conf(&dir, "true").unwrap(), conf(&dir, "false").unwrap());
        assert!(kept.write().unwrap());
        assert!(!kept.write().unwrap(), "nothing to do");
        let text = std::fs::read(kept.path()).unwrap();
        let read: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(read["plugins"][0]["type"], "palisade-cni");
        assert_eq!(read["plugins"][0]["queue"], "/var/lib/palisade/cni-queue");
        kept.remove_unless_kept().unwrap();
        assert!(kept.path().exists());
        removed.remove_unless_kept().unwrap();
        assert!(!kept.path().exists());
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

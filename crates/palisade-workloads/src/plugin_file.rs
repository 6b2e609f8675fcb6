//! The copy of palisade-cni in the plugin directory of this host's runtimes, made by `palisade install-cni`.
//!
//! It is replaced atomically, and only if it differs: a runtime that calls it meanwhile runs the old or the new
//! one. The state directory records that the copy is ours, so that cleanup removes this file and no other. A file
//! that was there before with the same content is not ours.

use palisade_api::CniInstallOutcome;
use palisade_config::{CniConfig, StateConfig};
use palisade_sys::atomic_file::{WriteError, write_atomically, write_program_atomically};
use palisade_sys::plain_file::FileError;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The name of the record in the state directory.
pub const RECORD_FILE: &str = "cni-plugin.json";
/// The name of the plugin.
pub const PLUGIN: &str = "palisade-cni";
/// The schema this build writes.
const SCHEMA: u32 = 1;

/// Why the plugin could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum PluginInstallError {
    /// A file or directory cannot be read or created.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// That the plugin at this path is a copy of ours.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PluginRecord {
    schema: u32,
    path: PathBuf,
}

/// Copies the plugin into the configured plugin directory; returns its path there and what was done.
///
/// # Errors
/// See [`PluginInstallError`]; the present plugin is then unchanged.
pub fn install_plugin(
    from: &Path,
    cni: &CniConfig,
    state: &StateConfig,
) -> Result<(PathBuf, CniInstallOutcome), PluginInstallError> {
    let failed = FileError::of;
    let program =
        palisade_sys::plain_file::read(from).map_err(failed("reading the plugin", from))?;
    let to = cni.bin_dir.join(PLUGIN);
    let present = match palisade_sys::plain_file::read(&to) {
        Ok(present) => Some(present),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("reading", &to)(error).into()),
    };
    if present.as_ref() == Some(&program) {
        return Ok((to, CniInstallOutcome::Unchanged));
    }
    for folder in [&cni.bin_dir, &state.dir] {
        std::fs::create_dir_all(folder).map_err(failed("creating the directory", folder))?;
    }
    // First, so that a crash leaves no copy without a record.
    write_record(&state.dir, &to)?;
    write_program_atomically(&to, &program)?;
    Ok((
        to,
        match present {
            Some(_) => CniInstallOutcome::Replaced,
            None => CniInstallOutcome::Installed,
        },
    ))
}

fn write_record(state_dir: &Path, plugin: &Path) -> Result<(), PluginInstallError> {
    let record = PluginRecord {
        schema: SCHEMA,
        path: plugin.to_owned(),
    };
    let path = state_dir.join(RECORD_FILE);
    let text = serde_json::to_vec(&record)
        .map_err(|error| FileError::of("writing", &path)(error.into()))?;
    Ok(write_atomically(&path, &text)?)
}

/// The copy that the state directory records, if it is still a file.
pub fn installed_plugin(state_dir: &Path) -> Option<PathBuf> {
    let text = palisade_sys::plain_file::read(&state_dir.join(RECORD_FILE)).ok()?;
    let record: PluginRecord = serde_json::from_slice(&text).ok()?;
    let found = std::fs::symlink_metadata(&record.path).ok()?;
    // A link was put there by others, such as a package.
    (record.path.ends_with(PLUGIN) && found.is_file()).then_some(record.path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_config::Config;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    fn config(root: &Path) -> Config {
        let path = |name: &str| root.join(name).display().to_string();
        let flags = BTreeMap::from([
            ("state-dir".to_owned(), path("state")),
            ("cni-bin-dir".to_owned(), path("opt/bin")),
        ]);
        Config::resolve(&flags, |_| None, None).unwrap()
    }

    fn put(path: &Path, text: &str) {
        write_atomically(path, text.as_bytes()).unwrap();
    }

    #[test]
    fn it_is_copied_once_replaced_when_it_differs_and_ours_from_then_on() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let from = dir.path().join("plugin");
        let missing = install_plugin(&from, &config.cni, &config.state).unwrap_err();
        assert!(missing.to_string().contains("reading the plugin"));
        assert!(!config.cni.bin_dir.exists() && !config.state.dir.exists());
        put(&from, "one");
        let (to, outcome) = install_plugin(&from, &config.cni, &config.state).unwrap();
        assert_eq!(outcome, CniInstallOutcome::Installed);
        let mode = std::fs::metadata(&to).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755);
        let again = install_plugin(&from, &config.cni, &config.state).unwrap().1;
        assert_eq!(again, CniInstallOutcome::Unchanged);
        put(&from, "two");
        let newer = install_plugin(&from, &config.cni, &config.state).unwrap().1;
        assert_eq!(newer, CniInstallOutcome::Replaced);
        assert_eq!(std::fs::read_to_string(&to).unwrap(), "two");
        assert_eq!(installed_plugin(&config.state.dir), Some(to.clone()));
        let others = std::fs::read_dir(&config.cni.bin_dir).unwrap().count();
        assert_eq!(others, 1, "no draft is left");
        std::fs::remove_file(&to).unwrap();
        assert_eq!(installed_plugin(&config.state.dir), None);
        std::os::unix::fs::symlink(&from, &to).unwrap();
        assert_eq!(installed_plugin(&config.state.dir), None, "somebody's link");
    }

    #[test]
    fn one_that_was_there_before_is_not_ours() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let from = dir.path().join("plugin");
        put(&from, "one");
        std::fs::create_dir_all(&config.cni.bin_dir).unwrap();
        put(&config.cni.bin_dir.join(PLUGIN), "one");
        let outcome = install_plugin(&from, &config.cni, &config.state).unwrap().1;
        assert_eq!(outcome, CniInstallOutcome::Unchanged);
        assert_eq!(installed_plugin(&config.state.dir), None);
    }
}

//! Rereads the configuration file while the agent runs: when it changes, and on SIGHUP.
//!
//! A rejected file changes nothing, and the status reports it until the file is corrected; parameters
//! that need a restart are logged once and shown by `palisade config`.
//! [`Config::reread`] interprets the file.

use palisade_config::{Config, ConfigChanges, ConfigFile};
use palisade_text::error_chain;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The configuration file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("configuration: reading {}: {source}", path.display())]
pub struct ConfigReadError {
    /// Which file.
    pub path: PathBuf,
    /// The cause.
    pub source: std::io::Error,
}

/// The text of the file; `None` if it is optional and absent.
///
/// # Errors
/// If the file exists and cannot be read, or if it is absent and not optional.
pub fn read_config_file(file: &ConfigFile) -> Result<Option<Vec<u8>>, ConfigReadError> {
    match palisade_sys::plain_file::read(&file.path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if file.optional && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigReadError {
            path: file.path.clone(),
            source,
        }),
    }
}

/// Called with each new configuration, on the core's thread.
pub type ConfigListener = Box<dyn Fn(&Config) + Send>;

/// The configuration after the file was read again, and what changed; `None` if there is no file.
pub(crate) fn reread_config(config: &Config) -> Option<(Config, ConfigChanges)> {
    let file = config.file.as_ref()?;
    let name = file.path.display().to_string();
    let (next, changed) = match read_config_file(file) {
        Ok(text) => {
            let input = text.as_deref().map(|text| (&*name, text));
            config.reread(input)
        }
        Err(error) => (
            config.with_file_error(error_chain(&error)),
            ConfigChanges::new(),
        ),
    };
    log_config_changes(config, &next, &changed);
    Some((next, changed))
}

fn log_config_changes(config: &Config, next: &Config, changed: &ConfigChanges) {
    let (before, after) = (config.file_status(), next.file_status());
    match (&before.error, &after.error) {
        (before, Some(error)) if before.as_ref() != Some(error) => {
            tracing::error!(%error, "the configuration file is rejected; the current configuration stays in effect");
        }
        (Some(_), None) => tracing::info!("the configuration file is valid again"),
        _ => {}
    }
    for (parameter, from, to) in changed {
        tracing::info!(parameter, from, to, "the configuration changed");
    }
    for (parameter, value) in &after.pending {
        if before.pending.get(parameter) != Some(value) {
            let (in_force, at_restart) = (config.displayed_value(parameter), value);
            tracing::warn!(
                parameter,
                in_force,
                at_restart,
                "a changed parameter in the configuration file takes effect at the next restart"
            );
        }
    }
}

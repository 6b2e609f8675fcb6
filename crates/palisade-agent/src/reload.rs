//! Rereads the configuration file while the agent runs: when it changes, and on SIGHUP.
//!
//! A rejected file changes nothing, and the status reports it until the file is corrected; parameters
//! that need a restart are logged once and shown by `palisade config`.
//! [`crate::config::Config::reread`] interprets the file.

use crate::config::{Config, ConfigChanges};
use palisade_source::error_chain;

/// Called with each new configuration, on the core's thread.
pub type ConfigListener = Box<dyn Fn(&Config) + Send>;

/// The configuration after the file was read again, and what changed; `None` if there is no file.
pub(crate) fn reread_config(config: &Config) -> Option<(Config, ConfigChanges)> {
    let file = config.file.as_ref()?;
    let name = file.path.display().to_string();
    let (next, changed) = match file.read() {
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

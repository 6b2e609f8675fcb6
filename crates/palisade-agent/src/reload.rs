//! Rereads the configuration file while the agent runs: when it changes, and on SIGHUP.
//!
//! A rejected file changes nothing, and the status reports it until the file is corrected; parameters
//! that need a restart are logged once and shown by `palisade config`.
//! [`crate::config::Config::reread`] interprets the file.

use crate::config::{Config, ConfigChanges, ConfigFile};
use crate::core::{Core, CoreEvent, CoreHandle};
use crate::error_chain::error_chain;
use palisade_source::FileWatch;
use std::path::Path;

/// Called with each new configuration, on the core's thread.
pub type ConfigListener = Box<dyn Fn(&Config) + Send>;

impl Core {
    /// Adds a listener for configuration changes.
    pub fn add_config_listener(&mut self, listener: ConfigListener) {
        self.config_listeners.push(listener);
    }

    /// Sets the file to reread.
    pub fn set_config_file(&mut self, file: ConfigFile) {
        self.config.file = Some(file);
    }

    /// Rereads the configuration file and applies its live parameters.
    pub fn reread_config(&mut self) {
        let Some(file) = self.config.file.clone() else {
            return;
        };
        let name = file.path.display().to_string();
        let (config, changed) = match file.read() {
            Ok(text) => {
                let input = text.as_deref().map(|text| (&*name, text));
                self.config.reread(input)
            }
            Err(error) => (
                self.config.with_file_error(error_chain(&error)),
                ConfigChanges::new(),
            ),
        };
        self.log_config_changes(&config, &changed);
        self.config = config;
        self.monitor.set_rate(self.config.monitor_rate);
        let budget = ["policy-set-max-elements", "host-max-elements"];
        if changed
            .iter()
            .any(|(parameter, ..)| budget.contains(parameter))
        {
            self.apply_budget();
        }
        if !changed.is_empty() {
            for listener in &self.config_listeners {
                listener(&self.config);
            }
        }
    }

    fn log_config_changes(&self, next: &Config, changed: &ConfigChanges) {
        let (before, after) = (self.config.file_status(), next.file_status());
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
                let (in_force, at_restart) = (self.config.displayed_value(parameter), value);
                tracing::warn!(
                    parameter,
                    in_force,
                    at_restart,
                    "a changed parameter in the configuration file takes effect at the next restart"
                );
            }
        }
    }
}

/// Requests a reread whenever the file changes. Ends with the core, or with the process.
pub fn watch_config_file(path: &Path, core: &CoreHandle) {
    let result = FileWatch::open(path).and_then(|mut watch| {
        while watch.wait_for_change()? {
            if !core.send(CoreEvent::ConfigChanged) {
                break;
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        let error = error_chain(&error);
        tracing::warn!(%error, "cannot watch the configuration file; send SIGHUP after changing it");
    }
}

//! The configuration file read again while the agent runs: when it changes, and on SIGHUP.
//!
//! Promises: a file that is refused changes nothing, and status says so until it is mended; what
//! needs a restart is told once and shown by `palisade config`. What the file means is
//! [`crate::config::Config::reread`]'s business.

use crate::config::{Changed, Config, ConfigFile};
use crate::core::{Core, Event, Handle, chain};
use palisade_source::FileWatch;
use std::path::Path;

/// Told of each new configuration, in the core's thread.
pub type Listener = Box<dyn Fn(&Config) + Send>;

impl Core {
    /// From now on `listener` is told of each change of the configuration.
    pub fn on_config(&mut self, listener: Listener) {
        self.config_listeners.push(listener);
    }

    /// From now on this is the file that is read again.
    pub fn set_config_file(&mut self, file: ConfigFile) {
        self.config.file = Some(file);
    }

    /// Reads the configuration file, and takes from it what can change while running.
    pub fn reread_config(&mut self) {
        let Some(file) = self.config.file.clone() else {
            return;
        };
        let name = file.path.display().to_string();
        let (config, changed) = match file.read() {
            Ok(text) => {
                let said = text.as_deref().map(|text| (&*name, text));
                self.config.reread(said)
            }
            Err(error) => (self.config.refusing(chain(&error)), Changed::new()),
        };
        self.tell_news(&config, &changed);
        self.config = config;
        self.monitor.set_rate(self.config.monitor_rate);
        let budget = ["policy-set-max-elements", "host-max-elements"];
        if changed
            .iter()
            .any(|(parameter, ..)| budget.contains(parameter))
        {
            self.hold_budget();
        }
        if !changed.is_empty() {
            for listener in &self.config_listeners {
                listener(&self.config);
            }
        }
    }

    fn tell_news(&self, next: &Config, changed: &Changed) {
        let (before, now) = (self.config.news(), next.news());
        match (&before.trouble, &now.trouble) {
            (before, Some(error)) if before.as_ref() != Some(error) => {
                tracing::error!(%error, "the configuration file is refused; what was in force stays");
            }
            (Some(_), None) => tracing::info!("the configuration file is accepted again"),
            _ => {}
        }
        for (parameter, from, to) in changed {
            tracing::info!(parameter, from, to, "the configuration changed");
        }
        for (parameter, value) in &now.pending {
            if before.pending.get(parameter) != Some(value) {
                let (in_force, at_restart) = (self.config.shown(parameter), value);
                tracing::warn!(
                    parameter,
                    in_force,
                    at_restart,
                    "a new value in the configuration file needs a restart"
                );
            }
        }
    }
}

/// Has the file read again whenever it changes. Ends with the core, or with the process.
pub fn follow(path: &Path, core: &Handle) {
    let watched = FileWatch::open(path).and_then(|mut watch| {
        while watch.changed()? {
            if !core.send(Event::ConfigChanged) {
                break;
            }
        }
        Ok(())
    });
    if let Err(error) = watched {
        let error = chain(&error);
        tracing::warn!(%error, "changes of the configuration file are not seen; SIGHUP has it read");
    }
}

/// Has the file read again; false if the core has stopped.
pub fn read_again(core: &Handle) -> bool {
    core.send(Event::ConfigChanged)
}

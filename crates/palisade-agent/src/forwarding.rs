//! Forwarding as a subsystem: this host forwards from its first workload on, if the agent manages it.
//!
//! It stays enabled without workloads: other software may rely on it by then. What is changed and restored:
//! [`crate::settings`].

use crate::config::Config;
use crate::host_changes::HostChanges;
use crate::network_driver::NetworkDriverError;
use crate::settings::SettingsFile;
use crate::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use palisade_model::Str;
use palisade_source::error_chain;
use std::fmt;

/// Changes the sysctls of a host.
pub trait ForwardingDriver: Send {
    /// Enables forwarding if it is off, and makes the kernel accept router advertisements as before; returns the
    /// changed sysctls. The former values are saved in `file`; names of the agent's interfaces begin with `prefix`.
    ///
    /// # Errors
    /// If a sysctl cannot be changed, or its value cannot be saved.
    fn ensure_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<String>, NetworkDriverError>;
}

/// The sysctls of forwarding.
pub struct Forwarding {
    driver: Box<dyn ForwardingDriver>,
    file: SettingsFile,
    interface_prefix: Str,
    is_managed: bool,
    /// Whether this host has to forward.
    is_wanted: bool,
    /// Whether the kernel may have something else.
    is_dirty: bool,
    /// Whether sysctls changed that nobody but another program changes.
    is_tampered: bool,
}

/// Sets the sysctls.
pub struct EnableForwarding {
    is_repair: bool,
}

impl fmt::Display for EnableForwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("enable forwarding")
    }
}

impl Forwarding {
    /// Of a host with this configuration.
    pub(crate) fn new(config: &Config, driver: Box<dyn ForwardingDriver>) -> Self {
        Forwarding {
            driver,
            file: SettingsFile::in_state_dir(&config.state_dir),
            interface_prefix: config.interface_prefix.as_str().into(),
            is_managed: config.manage_forwarding && !config.dry_run,
            is_wanted: false,
            is_dirty: false,
            is_tampered: false,
        }
    }

    /// Continues where an agent before left off: it forwards if sysctls were changed.
    pub(crate) fn restore(&mut self) {
        self.is_wanted = match self.file.read() {
            Ok(changed) => self.is_managed && !changed.is_empty(),
            Err(error) => {
                tracing::warn!(error = %error_chain(&error), "cannot read which sysctls were changed");
                false
            }
        };
    }

    /// Makes this host forward from the next run on.
    pub(crate) fn enable(&mut self) {
        self.is_dirty |= !self.is_wanted;
        self.is_wanted = true;
    }
}

impl Subsystem<()> for Forwarding {
    type Action = EnableForwarding;

    fn name(&self) -> &'static str {
        "forwarding"
    }

    fn host_changed(&mut self, changes: &HostChanges) {
        self.is_tampered |= changes.concern_settings();
        self.is_dirty |= changes.concern_settings() || changes.concern_uplinks();
    }

    fn has_work(&self, (): &()) -> bool {
        self.is_managed && self.is_wanted && self.is_dirty
    }

    fn plan(&mut self, (): &mut ()) -> Result<Vec<EnableForwarding>, SubsystemError> {
        if !self.is_managed || !self.is_wanted {
            return Ok(Vec::new());
        }
        let is_repair = self.is_tampered;
        Ok(vec![EnableForwarding { is_repair }])
    }

    fn execute(
        &mut self,
        action: EnableForwarding,
        (): &mut (),
    ) -> Result<ActionOutcome, SubsystemError> {
        self.is_dirty = true;
        let changed = self
            .driver
            .ensure_forwarding(&self.interface_prefix, &self.file)
            .map_err(SubsystemError::new)?;
        (self.is_dirty, self.is_tampered) = (false, false);
        for setting in &changed {
            tracing::info!(setting, "sysctl changed to enable forwarding");
        }
        Ok(if action.is_repair && !changed.is_empty() {
            ActionOutcome::Repaired(changed)
        } else {
            ActionOutcome::Done
        })
    }
}

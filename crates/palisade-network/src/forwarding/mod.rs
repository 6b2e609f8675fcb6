//! Forwarding as a subsystem: this host forwards from its first workload on, if the agent manages it.
//!
//! It stays enabled without workloads: other software may rely on it by then. What is changed and restored:
//! [`sysctls`].

pub mod sysctls;

use crate::network_error::NetworkDriverError;
use palisade_api::{CleanupItem, CleanupKind};
use palisade_config::{StateConfig, WorkloadsConfig};
use palisade_model::Str;
use palisade_node::host_changes::HostChanges;
use palisade_node::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use palisade_text::error_chain;
use std::fmt;
use sysctls::{ChangedSetting, SettingsFile};

/// Changes the sysctls of a host.
pub trait ForwardingDriver: Send {
    /// See [`sysctls::plan_forwarding`]; names of the agent's interfaces begin with `prefix`.
    ///
    /// # Errors
    /// If the kernel or the file cannot be read.
    fn plan_forwarding(
        &mut self,
        prefix: &str,
        file: &SettingsFile,
    ) -> Result<Vec<ChangedSetting>, NetworkDriverError>;

    /// See [`sysctls::apply_settings`].
    ///
    /// # Errors
    /// If a sysctl cannot be changed, or its value cannot be saved.
    fn apply_settings(
        &mut self,
        file: &SettingsFile,
        changes: Vec<ChangedSetting>,
    ) -> Result<Vec<String>, NetworkDriverError>;

    /// See [`sysctls::restorable_settings`].
    ///
    /// # Errors
    /// If the kernel or the file cannot be read.
    fn restorable_settings(
        &mut self,
        file: &SettingsFile,
    ) -> Result<Vec<ChangedSetting>, NetworkDriverError>;

    /// Restores a sysctl.
    ///
    /// # Errors
    /// If the kernel rejects the former value.
    fn restore_setting(&mut self, setting: &ChangedSetting) -> Result<(), NetworkDriverError>;
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
    /// What can be restored, as it was last listed.
    restorable: Vec<ChangedSetting>,
}

/// Sets sysctls.
pub struct SetSysctls {
    changes: Vec<ChangedSetting>,
    is_repair: bool,
}

impl fmt::Display for SetSysctls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changes = self
            .changes
            .iter()
            .filter(|change| change.before != change.after);
        let changes = changes.map(|change| format!("{}={}", change.key, change.after));
        write!(f, "set {}", changes.collect::<Vec<_>>().join(", "))
    }
}

impl Forwarding {
    /// Of a host with these sections of the configuration.
    pub fn new(
        config: &WorkloadsConfig,
        state: &StateConfig,
        driver: Box<dyn ForwardingDriver>,
    ) -> Self {
        Forwarding {
            driver,
            file: SettingsFile::in_state_dir(&state.dir),
            interface_prefix: config.interface_prefix.as_str().into(),
            is_managed: config.manages_forwarding,
            is_wanted: false,
            is_dirty: false,
            is_tampered: false,
            restorable: Vec::new(),
        }
    }

    /// Continues where an agent before left off: it forwards if sysctls were changed.
    pub fn restore(&mut self) {
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
    type Action = SetSysctls;

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

    fn plan(&mut self, (): &mut ()) -> Result<Vec<SetSysctls>, SubsystemError> {
        if !self.is_managed || !self.is_wanted {
            return Ok(Vec::new());
        }
        self.is_dirty = true;
        let changes = self
            .driver
            .plan_forwarding(&self.interface_prefix, &self.file)
            .map_err(SubsystemError::new)?;
        let is_repair = self.is_tampered;
        (self.is_dirty, self.is_tampered) = (false, false);
        let set = SetSysctls { changes, is_repair };
        Ok((!set.changes.is_empty())
            .then_some(set)
            .into_iter()
            .collect())
    }

    fn execute(
        &mut self,
        SetSysctls { changes, is_repair }: SetSysctls,
        (): &mut (),
    ) -> Result<ActionOutcome, SubsystemError> {
        let changed = self.driver.apply_settings(&self.file, changes);
        let changed = changed.map_err(|error| {
            (self.is_dirty, self.is_tampered) = (true, is_repair);
            SubsystemError::new(error)
        })?;
        for setting in &changed {
            tracing::info!(setting, "sysctl changed to enable forwarding");
        }
        Ok(if is_repair && !changed.is_empty() {
            ActionOutcome::Repaired(changed)
        } else {
            ActionOutcome::Done
        })
    }

    fn installed(&mut self) -> Result<Vec<CleanupItem>, SubsystemError> {
        if !self.is_managed {
            return Ok(Vec::new());
        }
        let settings = self.driver.restorable_settings(&self.file);
        self.restorable = settings.map_err(SubsystemError::new)?;
        let item = |setting: &ChangedSetting| {
            let about = format!("{}, was {}", setting.after, setting.before);
            CleanupItem::new(CleanupKind::Setting, &*setting.key, Some(about))
        };
        Ok(self.restorable.iter().map(item).collect())
    }

    fn remove(&mut self, item: &CleanupItem) -> Result<bool, SubsystemError> {
        let mut settings = self.restorable.iter();
        if let Some(setting) = settings.find(|setting| setting.key == item.name) {
            let restored = self.driver.restore_setting(setting);
            restored.map_err(SubsystemError::new)?;
        }
        Ok(true)
    }
}

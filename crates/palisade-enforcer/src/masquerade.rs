//! Masquerading: the workloads' source addresses are replaced by the host's.
//!
//! Workloads and nodes decide what is wanted; this writes it beside the policy, by the driver's translation. Never:
//! affects a verdict.

use palisade_dataplane::{Dataplane, DriverError, DriverErrorKind, MasqueradePolicy, PlanPreview};
use palisade_node::subsystem::{ActionOutcome, Subsystem, SubsystemError};
use std::fmt;

/// The masquerade rules of this host.
#[derive(Debug, Default)]
pub struct MasqueradeSubsystem {
    wanted: MasqueradePolicy,
    /// Whether the kernel may have something else.
    is_dirty: bool,
    /// The objects and elements written since this was last asked.
    writes: usize,
}

/// Writes the masquerade rules.
pub struct WriteMasquerade(MasqueradePolicy);

impl fmt::Display for WriteMasquerade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "masquerade {} addresses", self.0.addresses.len())
    }
}

impl MasqueradeSubsystem {
    /// Sets what is wanted.
    pub fn set_wanted(&mut self, wanted: MasqueradePolicy) {
        self.is_dirty |= self.wanted != wanted;
        self.wanted = wanted;
    }

    /// Makes the next run compare with the kernel, which others may have changed.
    pub(crate) fn recheck(&mut self) {
        self.is_dirty = true;
    }

    /// Whether the kernel may have something else than what is wanted.
    pub fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// The objects and elements written since this was last asked.
    pub(crate) fn take_writes(&mut self) -> usize {
        std::mem::take(&mut self.writes)
    }
}

impl Subsystem<dyn Dataplane> for MasqueradeSubsystem {
    type Action = WriteMasquerade;

    fn name(&self) -> &'static str {
        "masquerading"
    }

    fn has_work(&self, _: &(dyn Dataplane + 'static)) -> bool {
        self.is_dirty
    }

    fn plan(
        &mut self,
        _: &mut (dyn Dataplane + 'static),
    ) -> Result<Vec<WriteMasquerade>, SubsystemError> {
        Ok(vec![WriteMasquerade(self.wanted.clone())])
    }

    fn describe(
        &mut self,
        action: &WriteMasquerade,
        dataplane: &mut (dyn Dataplane + 'static),
    ) -> Result<Option<String>, SubsystemError> {
        let Some(translation) = dataplane.address_translation() else {
            return Ok(Some(action.to_string()).filter(|_| !action.0.addresses.is_empty()));
        };
        let preview = translation.preview(&action.0);
        let PlanPreview { writes, .. } = preview.map_err(SubsystemError::new)?;
        Ok((writes > 0).then(|| format!("{action}: {writes} writes")))
    }

    fn execute(
        &mut self,
        WriteMasquerade(wanted): WriteMasquerade,
        dataplane: &mut (dyn Dataplane + 'static),
    ) -> Result<ActionOutcome, SubsystemError> {
        self.is_dirty = true;
        self.writes += match dataplane.address_translation() {
            Some(translation) => translation.masquerade(&wanted),
            None if wanted.addresses.is_empty() => Ok(0),
            None => Err(DriverError::new(
                DriverErrorKind::Unusable,
                "masquerading",
                "workload addresses",
                "the driver has no address translation",
            )),
        }
        .map_err(SubsystemError::new)?;
        self.is_dirty = false;
        Ok(ActionOutcome::Done)
    }
}

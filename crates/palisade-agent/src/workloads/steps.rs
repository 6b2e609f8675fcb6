//! The steps of attaching and detaching a workload, in order.
//!
//! Each step is announced before it runs, so that tests can fail it or kill the agent there. This
//! module only defines the steps.

use std::fmt;

/// The step that is about to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachStep {
    /// Claim the addresses in memory.
    ClaimAddresses,
    /// Save the workload as pending on disk.
    SavePending,
    /// Create the veth pair; the host side stays down.
    CreateInterfaces,
    /// Configure addresses and routes inside the namespace.
    ConfigureNetns,
    /// Add the endpoint to the engine and write the changes to the kernel.
    ApplyPolicy,
    /// Masquerade its traffic to external networks, if configured.
    Masquerade,
    /// Bring the host side up, with routes to it.
    BringUp,
    /// Save the workload as attached on disk.
    SaveAttached,
    /// Report success to the caller.
    ReportAttached,
    /// Delete its interfaces.
    DeleteInterfaces,
    /// Remove the endpoint from the engine and its policy from the kernel.
    RemovePolicy,
    /// Remove its record from disk.
    RemoveRecord,
    /// Release its addresses in memory.
    ReleaseAddresses,
    /// Report success to the caller.
    ReportDetached,
}

impl fmt::Display for AttachStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachStep::ClaimAddresses => "claiming addresses",
            AttachStep::SavePending => "saving it as pending",
            AttachStep::CreateInterfaces => "creating its interfaces",
            AttachStep::ConfigureNetns => "configuring its addresses and routes",
            AttachStep::ApplyPolicy => "enforcing its policy",
            AttachStep::Masquerade => "writing its masquerade rules",
            AttachStep::BringUp => "bringing its interface up",
            AttachStep::SaveAttached => "saving it as attached",
            AttachStep::ReportAttached => "answering",
            AttachStep::DeleteInterfaces => "deleting its interface",
            AttachStep::RemovePolicy => "removing its policy from the kernel",
            AttachStep::RemoveRecord => "removing its record",
            AttachStep::ReleaseAddresses => "releasing its addresses",
            AttachStep::ReportDetached => "reporting that it is detached",
        })
    }
}

/// Called before every step; the step is skipped if the hook returns an error.
pub type StepHook = Box<dyn FnMut(AttachStep) -> Result<(), String> + Send>;

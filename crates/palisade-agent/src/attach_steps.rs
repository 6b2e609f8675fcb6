//! The steps of attaching and detaching a workload, by name and in order.
//!
//! Each is announced before it is taken, so that tests can fail it, or die before it. Nothing here
//! does anything.

use std::fmt;

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttachStep {
    /// Addresses are claimed, in memory.
    ClaimAddresses,
    /// It is written to disk that it is being attached.
    SavePending,
    /// The pair of interfaces is made, the host's side down.
    CreateInterfaces,
    /// The inside gets addresses and routes.
    ConfigureNetns,
    /// Its endpoint goes through the engine, and what changes into the kernel.
    ApplyPolicy,
    /// What it sends to the outside is translated, where that is asked for.
    Masquerade,
    /// The host's side comes up, with routes to it.
    BringUp,
    /// It is written to disk that it is attached.
    SaveAttached,
    /// It is done, and whoever asked is told.
    ReportAttached,
    /// Its interface is removed.
    DeleteInterfaces,
    /// Its endpoint leaves the engine, and what that changes the kernel.
    RemovePolicy,
    /// It is written to disk that it is not there any more.
    RemoveRecord,
    /// Its addresses are free again, in memory.
    ReleaseAddresses,
    /// It is gone, and whoever asked is told.
    ReportDetached,
}

impl AttachStep {
    /// Of attaching, in order.
    pub const ATTACH: [AttachStep; 9] = [
        AttachStep::ClaimAddresses,
        AttachStep::SavePending,
        AttachStep::CreateInterfaces,
        AttachStep::ConfigureNetns,
        AttachStep::ApplyPolicy,
        AttachStep::Masquerade,
        AttachStep::BringUp,
        AttachStep::SaveAttached,
        AttachStep::ReportAttached,
    ];
    /// Of detaching, in order.
    pub const DETACH: [AttachStep; 5] = [
        AttachStep::DeleteInterfaces,
        AttachStep::RemovePolicy,
        AttachStep::RemoveRecord,
        AttachStep::ReleaseAddresses,
        AttachStep::ReportDetached,
    ];
}

impl fmt::Display for AttachStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AttachStep::ClaimAddresses => "claiming addresses",
            AttachStep::SavePending => "remembering it",
            AttachStep::CreateInterfaces => "making its interfaces",
            AttachStep::ConfigureNetns => "giving it addresses and routes",
            AttachStep::ApplyPolicy => "enforcing its policy",
            AttachStep::Masquerade => "translating what it sends to the outside",
            AttachStep::BringUp => "opening it",
            AttachStep::SaveAttached => "remembering that it is attached",
            AttachStep::ReportAttached => "answering",
            AttachStep::DeleteInterfaces => "removing its interface",
            AttachStep::RemovePolicy => "taking back its policy",
            AttachStep::RemoveRecord => "forgetting it",
            AttachStep::ReleaseAddresses => "freeing its addresses",
            AttachStep::ReportDetached => "answering that it is gone",
        })
    }
}

/// Hears of every step before it is taken; what it refuses is not done.
pub type StepHook = Box<dyn FnMut(AttachStep) -> Result<(), String> + Send>;

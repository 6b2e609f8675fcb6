//! What is in force: from the definitions of all sources to the effective objects.
//!
//! [`EffectiveObjects`] takes in the changes of named sources ([`SourceDelta`]) and returns the updates of
//! the objects in force. The agent and the command line both use it, so they decide and warn alike. It
//! decides which version of an object is in force (the last valid one; without one, an isolation policy),
//! which definition of several, which policies exceed their element budget, and which pods hold no address.
//!
//! Promises: an object goes out of force only when its source says that it is gone; a version in force stays
//! while its object is invalid, over budget or defined twice; the work of a change is that of the objects it
//! concerns; the same definitions give the same diagnostics, whoever asks.
//!
//! Never: reads a file or a clock, evaluates policy for a packet, or knows the format of an object.

#![no_std]

extern crate alloc;

mod acceptance;
mod activate;
mod applied_labels;
mod definition;
mod definition_problems;
mod dependents;
mod diagnostic;
mod effective_object;
mod lint;
mod node_endpoints;
mod objects;
mod policy_cost;
mod report;
mod service_rules;
mod source;
mod version_choice;

pub use acceptance::{EnforcedVersion, PolicyAcceptance};
pub use definition::{Definition, ObjectOrigin};
pub use definition_problems::ClosedParts;
pub use diagnostic::{Diagnostic, DiagnosticCollector, Severity};
pub use effective_object::is_saved;
pub use lint::HostNetworkChange;
pub use objects::{BudgetUse, CidrMatchMode, EffectiveObjects, ObjectsToSave, RestoredObject};
pub use palisade_engine::{ElementBudget, ExceededLimit};
pub use policy_cost::{ExpensiveRule, ObjectCost, OversizedPolicy};
pub use report::{EffectiveReport, RetainedObject};
pub use source::{
    DefinitionChange, SourceDelta, SourceNumber, SourceReport, SourceState, Staleness,
};
#[cfg(feature = "faults")]
pub use version_choice::ChoiceFaults;
pub use version_choice::{EffectiveVersion, ValidVersion};

use alloc::sync::Arc;
use palisade_model::ObjectId;

/// An object's name, shared by all structures that refer to the object.
pub type SharedId = Arc<ObjectId>;

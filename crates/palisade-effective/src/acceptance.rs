//! Which policies are not enforced exactly as written, why, and what is in force instead.
//!
//! Promises: every policy that was read is either in force as written or in this report, also one of which nothing
//! is in force. Never: says whether the kernel has a policy.

use crate::SharedId;
use crate::definition::ObjectOrigin;
use crate::definition_problems::ClosedParts;
use crate::version_choice::ValidVersion;
use alloc::sync::Arc;
use alloc::vec::Vec;
use palisade_manifest::Problem;

/// What is in force of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcedVersion {
    /// Its present definition.
    Present,
    /// An earlier version, or one of several definitions.
    LastValid(ValidVersion),
    /// Nothing of it: the pods that it selects are isolated.
    Isolation,
    /// Nothing.
    Nothing,
}

/// A policy that is not enforced exactly as written.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyAcceptance {
    /// The policy.
    pub id: SharedId,
    /// What is in force.
    pub enforced: EnforcedVersion,
    /// Where its present definition was read, or the version in force if there is no definition.
    pub origin: Option<ObjectOrigin>,
    /// Why its present definition is not in force.
    pub errors: Vec<Problem>,
    /// The number of further errors.
    pub more_errors: usize,
    /// The parts of the version in force that are held closed.
    pub closed: Option<Arc<ClosedParts>>,
}

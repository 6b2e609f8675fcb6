//! Profiles: what holds for an endpoint after every policy.

use crate::{Labels, Rule, Str};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Rules that are evaluated for an endpoint after the last tier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: Str,
    /// Its ingress rules.
    pub ingress: Vec<Rule>,
    /// Its egress rules.
    pub egress: Vec<Rule>,
    /// Labels that its endpoints get beside their own ([`crate::Endpoint::inherit_labels`]).
    #[serde(default)]
    pub labels_to_apply: Labels,
}

impl Profile {
    /// The profile of pods and attached workloads: it allows everything. It is built in, and no object
    /// can replace it.
    pub const ALLOW_ALL: &'static str = "palisade.allow-all";
}

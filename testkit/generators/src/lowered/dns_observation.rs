//! Some policies of a world made to observe DNS.
//!
//! It draws from dice of its own, so everything else in a world is as it would be without it.

use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::Policy;

/// The feature of a policy that observes DNS.
pub(super) const FEATURE: &str = "policy that observes DNS";

/// How many policies of a hundred observe DNS.
const POLICIES: u32 = 20;

/// What makes them.
pub(super) struct DnsObserverGenerator(Dice);

impl DnsObserverGenerator {
    /// That of a world.
    pub(super) fn new(seed: u64, case: u64) -> Self {
        DnsObserverGenerator(Dice::new(seed ^ 0x646e_735f_6f62_7365, case))
    }

    /// Makes some of the policies observe, whatever they govern and select.
    pub(super) fn change_policy(&mut self, policy: &mut Policy, features: &mut Features) {
        if self.0.chance(POLICIES) {
            policy.observes_dns = true;
            features.insert(FEATURE);
        }
    }
}

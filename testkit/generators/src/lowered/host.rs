//! Some host endpoints of a world made those of this host, and some policies made to apply to what it forwards.
//!
//! It draws from dice of its own, so everything else in a world is as it would be without it.

use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{Endpoint, Policy, State};

/// The feature of a policy that applies on forward.
pub(super) const FORWARD: &str = "policy that applies on forward";

/// The interfaces of the host.
pub const HOST_INTERFACES: [&str; 2] = ["eth0", "eth1"];

/// What makes them.
pub(super) struct HostGenerator(Dice);

impl HostGenerator {
    /// That of a world.
    pub(super) fn new(seed: u64, case: u64) -> Self {
        HostGenerator(Dice::new(seed ^ 0x686f_7374_5f65_7000, case))
    }

    /// Gives most host endpoints an interface of this host. In half of the worlds there is no host endpoint of this
    /// host.
    pub(super) fn change_endpoints(&mut self, state: &mut State) {
        if self.0.chance(50) {
            return;
        }
        for endpoint in state.endpoints.values_mut().filter(|e| e.host) {
            let interface = *self
                .0
                .pick(&["eth0", "eth1", Endpoint::ANY_INTERFACE, "eth9", "lo"]);
            if self.0.chance(90) {
                endpoint.interface = Some(interface.into());
                // As every dialect lowers them: what is known of an interface's addresses is a network set.
                endpoint.addresses.clear();
            }
        }
    }

    /// Makes a third of the policies apply to what is forwarded.
    pub(super) fn change_policy(&mut self, policy: &mut Policy, features: &mut Features) {
        if self.0.chance(35) {
            policy.apply_on_forward = true;
            features.insert(FORWARD);
        }
    }
}

//! Some host endpoints of a world made those of this host, and some policies made to apply to what it forwards.
//!
//! It draws from dice of its own, so everything else in a world is as it would be without it.

use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{Endpoint, Policy, State, TrafficScope};

/// The feature of a policy that applies on forward.
pub(super) const FORWARD: &str = "policy that applies on forward";

/// The feature of a policy of what is not tracked.
pub(super) const UNTRACKED: &str = "policy of untracked traffic";

/// The feature of a policy of what is not yet translated.
pub(super) const PRE_DNAT: &str = "policy of traffic before DNAT";

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

    /// Makes some of the policies apply to what is forwarded, or to the traffic of an early pass.
    pub(super) fn change_policy(&mut self, policy: &mut Policy, features: &mut Features) {
        let (scope, feature) = match self.0.below(100) {
            0..25 => (TrafficScope::Forwarded, FORWARD),
            25..35 => (TrafficScope::Untracked, UNTRACKED),
            35..45 => (TrafficScope::PreDnat, PRE_DNAT),
            _ => return,
        };
        policy.scope = scope;
        features.insert(feature);
    }
}

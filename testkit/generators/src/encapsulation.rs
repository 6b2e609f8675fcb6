//! Some flows of a world made packets within packets, as an endpoint's own tunnel sends them.
//!
//! It draws from dice of its own, so worlds and their other flows are as they would be without it.

use crate::Dice;
use crate::kubernetes::Features;

/// Protocols, with a destination port where they have ports.
const TUNNELS: [(u8, Option<u16>); 6] = [
    (4, None),
    (41, None),
    (47, None),
    (17, Some(4789)),
    (17, Some(8472)),
    (17, Some(6081)),
];

/// The feature of such a flow.
pub(crate) const FEATURE: &str = "flow: encapsulation";

/// What some flows are turned into.
pub(crate) struct TunnelGenerator(Dice);

impl TunnelGenerator {
    /// Those of a world.
    pub(crate) fn new(seed: u64, case: u64) -> Self {
        TunnelGenerator(Dice::new(seed ^ 0x7475_6e6e_656c, case))
    }

    /// For some flows the protocol and destination port that it gets; its features then tell of it.
    pub(crate) fn draw(&mut self, features: &mut Features) -> Option<(u8, Option<u16>)> {
        if !self.0.chance(8) {
            return None;
        }
        let tunnel = *self.0.pick(&TUNNELS);
        let protocols = ["TCP", "UDP", "SCTP", "ICMP", "ICMPv6", "another protocol"];
        features.retain(|feature| {
            let protocol = feature.strip_prefix("flow: ");
            !protocol.is_some_and(|protocol| protocols.contains(&protocol))
        });
        features.insert(FEATURE);
        Some(tunnel)
    }
}

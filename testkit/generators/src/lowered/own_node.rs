//! The node of this host, the nodes that endpoints name, and peers that test the own node of the judged endpoint.
//!
//! It draws from dice of its own, so worlds and their other rules are as they would be without it.

use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{Endpoint, LabelKey, Policy, Selector, State, reserved};

/// The feature of a policy with such a peer.
pub(super) const FEATURE: &str = "reserved: own node";
/// The feature of an end that is attached here and names another node than that of this host.
pub(super) const OTHER_NODE: &str = "endpoint here that names another node";
/// The feature of an end that is attached here and names no node.
pub(super) const NO_NODE: &str = "endpoint here that names no node";
/// The feature of an end that is attached to a host whose node is not known.
pub(super) const UNKNOWN_NODE: &str = "endpoint here, the node of the host not known";

/// What makes such peers.
pub(super) struct OwnNodeGenerator(Dice);

impl OwnNodeGenerator {
    /// That of a world.
    pub(super) fn new(seed: u64, case: u64) -> Self {
        OwnNodeGenerator(Dice::new(seed ^ 0x6f77_6e5f_6e6f_6465, case))
    }

    /// Chooses the node of this host, and moves some endpoints to other nodes by what they name.
    pub(super) fn place(&mut self, state: &mut State) {
        let dice = &mut self.0;
        state.host_node = match dice.below(10) {
            0 => None,
            1 => Some("node-1".into()),
            _ => Some("node-0".into()),
        };
        for endpoint in state.endpoints.values_mut() {
            if dice.chance(15) {
                endpoint.node = Some(if dice.chance(50) { "node-1" } else { "node-2" }.into());
            }
        }
    }

    /// Changes some peers of a policy, and adds the feature of that.
    pub(super) fn change(&mut self, policy: &mut Policy, features: &mut Features) {
        let dice = &mut self.0;
        let rules = policy.ingress.iter_mut().chain(&mut policy.egress);
        let peers = rules.flat_map(|rules| rules.rules.iter_mut().flat_map(|rule| &mut rule.peers));
        for peer in peers {
            if !dice.chance(6) {
                continue;
            }
            let kind = Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_NODE);
            let own = if dice.chance(50) {
                Selector::has(LabelKey::reserved(reserved::OWN_NODE))
            } else {
                let values = [reserved::IS_OWN_NODE, reserved::IS_OTHER_NODE];
                let value = *dice.pick(&values);
                Selector::equals(LabelKey::reserved(reserved::OWN_NODE), value)
            };
            let test = match dice.below(3) {
                0 => own,
                1 => Selector::and([kind, Selector::negate(own)]),
                _ => Selector::or([own, Selector::negate(kind)]),
            };
            features.insert(FEATURE);
            if dice.chance(70) {
                peer.selector = Some(test)
            } else {
                peer.not_selector = Some(test)
            }
        }
    }
}

/// What the node that an endpoint names tries, if it is attached here.
pub(super) fn feature(state: &State, endpoint: &Endpoint) -> Option<&'static str> {
    endpoint.interface.as_ref()?;
    match (&state.host_node, &endpoint.node) {
        (None, _) => Some(UNKNOWN_NODE),
        (Some(_), None) => Some(NO_NODE),
        (Some(host), Some(node)) => (host != node).then_some(OTHER_NODE),
    }
}

//! Some host endpoints of a world made those of this host, its node given one, and some policies made to apply to what
//! it forwards or to select nodes.
//!
//! It draws from dice of its own, so everything else in a world is as it would be without it.

use super::selector::OWN;
use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{Endpoint, LabelKey, Policy, Selector, State, TrafficScope};

/// The feature of a policy that applies on forward.
pub(super) const FORWARD: &str = "policy that applies on forward";

/// The feature of a policy of what is not tracked.
pub(super) const UNTRACKED: &str = "policy of untracked traffic";

/// The feature of a policy of what is not yet translated.
pub(super) const PRE_DNAT: &str = "policy of traffic before DNAT";

/// The feature of a policy that judges what an endpoint sends to itself.
pub(super) const HAIRPIN: &str = "policy of hairpin traffic";

/// The interfaces of the host.
pub const HOST_INTERFACES: [&str; 2] = ["eth0", "eth1"];

/// The nodes that may have an endpoint.
const NODES: [&str; 2] = ["node-0", "node-1"];

/// What makes them.
pub(super) struct HostGenerator {
    dice: Dice,
    /// For what is about nodes.
    node_dice: Dice,
    hairpin_dice: Dice,
}

impl HostGenerator {
    /// That of a world.
    pub(super) fn new(seed: u64, case: u64) -> Self {
        HostGenerator {
            dice: Dice::new(seed ^ 0x686f_7374_5f65_7000, case),
            node_dice: Dice::new(seed ^ 0x6e6f_6465_5f65_7000, case),
            hairpin_dice: Dice::new(seed ^ 0x6861_6972_7069_6e00, case),
        }
    }

    /// Gives most host endpoints an interface of this host. In half of the worlds there is no host endpoint of this
    /// host.
    pub(super) fn change_endpoints(&mut self, state: &mut State) {
        self.add_node_endpoint(state);
        if self.dice.chance(50) {
            return;
        }
        let written = |endpoint: &&mut Endpoint| endpoint.is_host() && !endpoint.is_node_endpoint();
        for endpoint in state.endpoints.values_mut().filter(written) {
            let interface =
                *self
                    .dice
                    .pick(&["eth0", "eth1", Endpoint::ANY_INTERFACE, "eth9", "lo"]);
            if self.dice.chance(90) {
                endpoint.interface = Some(interface.into());
                // As every dialect lowers them: what is known of an interface's addresses is a network set.
                endpoint.addresses.clear();
            }
        }
    }

    /// Gives a node its endpoint in some worlds, whether or not the node is known.
    fn add_node_endpoint(&mut self, state: &mut State) {
        let dice = &mut self.node_dice;
        if dice.chance(45) {
            let node = Endpoint::of_node((*dice.pick(&NODES)).into(), dice.chance(10));
            state.endpoints.insert(node.id.clone(), node);
        }
    }

    /// Makes some policies select nodes, by labels that nodes have.
    fn select_nodes(&mut self, policy: &mut Policy) {
        let dice = &mut self.node_dice;
        if !dice.chance(18) {
            return;
        }
        let (name, values) = *dice.pick(&OWN);
        let key = LabelKey::node(name);
        let value = *dice.pick(values);
        let test = match dice.below(4) {
            0 => Selector::equals(key, value),
            1 => Selector::not_in(key, [value.into()]),
            2 => Selector::has(key),
            _ => Selector::all(),
        };
        policy.subject = Selector::and([Policy::node_subject(), test]);
    }

    /// Makes some of the policies apply to what is forwarded, to the traffic of an early stage, or to what an endpoint
    /// sends to itself.
    pub(super) fn change_policy(&mut self, policy: &mut Policy, features: &mut Features) {
        self.select_nodes(policy);
        let is_of_hairpin = self.hairpin_dice.chance(50);
        let (scope, feature) = match self.dice.below(100) {
            0..25 => (TrafficScope::Forwarded, FORWARD),
            25..35 => (TrafficScope::Untracked, UNTRACKED),
            35..45 => (TrafficScope::PreDnat, PRE_DNAT),
            _ if is_of_hairpin => (TrafficScope::Hairpin, HAIRPIN),
            _ => return,
        };
        policy.scope = scope;
        features.insert(feature);
    }
}

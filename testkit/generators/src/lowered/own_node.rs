//! Some peers of a world made tests of the own node of the judged endpoint.
//!
//! It draws from dice of its own, so worlds and their other rules are as they would be without it.

use crate::Dice;
use crate::kubernetes::Features;
use palisade_model::{LabelKey, Policy, Selector, reserved};

/// The feature of a policy with such a peer.
pub(super) const FEATURE: &str = "reserved: own node";

/// What makes such peers.
pub(super) struct OwnNodeGenerator(Dice);

impl OwnNodeGenerator {
    /// That of a world.
    pub(super) fn new(seed: u64, case: u64) -> Self {
        OwnNodeGenerator(Dice::new(seed ^ 0x6f77_6e5f_6e6f_6465, case))
    }

    /// Changes some peers of a policy; its features then tell of it.
    pub(super) fn change(&mut self, policy: &mut Policy, features: &mut Features) {
        let dice = &mut self.0;
        let rules = policy.ingress.iter_mut().chain(&mut policy.egress);
        let peers = rules.flat_map(|rules| rules.rules.iter_mut().flat_map(|rule| &mut rule.peers));
        for peer in peers {
            if !dice.chance(6) {
                continue;
            }
            let kind = Selector::equals(LabelKey::reserved(reserved::KIND), reserved::KIND_NODE);
            let own = match dice.chance(50) {
                true => Selector::has(LabelKey::reserved(reserved::OWN_NODE)),
                false => Selector::equals(LabelKey::reserved(reserved::OWN_NODE), "true"),
            };
            let test = match dice.below(3) {
                0 => own,
                1 => Selector::and([kind, Selector::negate(own)]),
                _ => Selector::or([own, Selector::negate(kind)]),
            };
            features.insert(FEATURE);
            match dice.chance(70) {
                true => peer.selector = Some(test),
                false => peer.not_selector = Some(test),
            }
        }
    }
}

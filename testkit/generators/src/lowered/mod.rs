//! Random states over the whole model: whatever a dialect could ever be lowered to.
//!
//! Kubernetes objects reach only a corner of the model. Here every field of it is drawn: tiers,
//! orders, passes, negations, profiles, own-address tests, source ports, ICMP, network sets, nodes,
//! and endpoints that share addresses. Selectors are built by the model's constructors, as dialects
//! build them.

mod dns_observation;
mod features;
mod flow;
mod host;
mod object;
mod own_node;
mod policy;
mod selector;
mod updates;

pub use features::FEATURES;
pub use host::HOST_INTERFACES;
pub use updates::batches;

use super::Dice;
use super::kubernetes::Features;
use crate::audit;
use crate::encapsulation::TunnelGenerator;
use palisade_model::{
    Flow, L4, NetworkSetKind, Object, ObjectId, ObjectKind, Policy, PolicyId, Profile, Protocol,
    State, Str, Update,
};
use std::collections::BTreeMap;

/// A flow, with the features it has.
#[derive(Clone, Debug)]
pub struct ModelTrial {
    /// The flow.
    pub flow: Flow,
    /// What it tries.
    pub features: Features,
}

/// A state, and flows through it.
#[derive(Clone, Debug)]
pub struct ModelWorld {
    /// The objects.
    pub state: State,
    /// What each policy tries.
    policies: BTreeMap<PolicyId, Features>,
    /// What each profile tries.
    profiles: BTreeMap<Str, Features>,
    /// The flows.
    pub trials: Vec<ModelTrial>,
}

impl ModelWorld {
    /// The world of a case, with this many flows.
    #[must_use]
    pub fn generate(seed: u64, case: u64, flows: usize) -> ModelWorld {
        let mut dice = Dice::new(seed ^ 0x6c6f_7765_7265_6421, case);
        let mut world = ModelWorld {
            state: State::default(),
            policies: BTreeMap::new(),
            profiles: BTreeMap::new(),
            trials: Vec::new(),
        };
        for object in object::objects(&mut dice) {
            world.state.apply(Update::Upsert(object));
        }
        let mut hosts = host::HostGenerator::new(seed, case);
        hosts.change_endpoints(&mut world.state);
        let mut own_nodes = own_node::OwnNodeGenerator::new(seed, case);
        own_nodes.place(&mut world.state);
        let mut observers = dns_observation::DnsObserverGenerator::new(seed, case);
        for _ in 0..dice.between(2, 7) {
            let (mut policy, mut features): (Policy, _) = policy::policy(&mut dice);
            own_nodes.change(&mut policy, &mut features);
            hosts.change_policy(&mut policy, &mut features);
            observers.change_policy(&mut policy, &mut features);
            world.policies.insert(policy.id.clone(), features);
            world.state.apply(Update::Upsert(Object::Policy(policy)));
        }
        for name in ["p-one", "p-two", Profile::ALLOW_ALL] {
            let percent = if name == Profile::ALLOW_ALL { 2 } else { 80 };
            if dice.chance(percent) {
                let (profile, features) = policy::profile(&mut dice, name);
                world.profiles.insert(profile.name.clone(), features);
                world.state.apply(Update::Upsert(Object::Profile(profile)));
            }
        }
        audit::mark(&mut world.state, seed, case);
        let mut tunnels = TunnelGenerator::new(seed, case);
        let trials = (0..flows).map(|_| flow::trial(&mut dice, &world.state));
        let trials = trials.map(|mut trial| {
            if let Some((protocol, port)) = tunnels.draw(&mut trial.features) {
                trial.flow.protocol = Protocol(protocol);
                trial.flow.l4 = port.map_or(L4::None, |destination| L4::Ports {
                    source: 41_000,
                    destination,
                });
            }
            trial
        });
        world.trials = trials.collect();
        world
    }

    /// What a flow tries here: what it is itself, and what is said by the endpoints that claim its
    /// ends and by the policies and profiles that are about them.
    #[must_use]
    pub fn tried_features(&self, trial: &ModelTrial) -> Features {
        let mut features = trial.features.clone();
        for end in [trial.flow.source, trial.flow.destination] {
            let claimants: Vec<_> = self
                .state
                .endpoints
                .values()
                .filter(|endpoint| endpoint.addresses.contains(&end))
                .collect();
            if claimants.len() > 1 {
                features.insert("address claimed twice");
            }
            for endpoint in claimants {
                object::features(endpoint, &mut features);
                features.extend(own_node::feature(&self.state, endpoint));
                if endpoint.audit {
                    features.insert(audit::ENDPOINT);
                } else if self.state.is_in_audit(endpoint) {
                    features.insert(audit::NAMESPACE);
                }
                let labels = self.state.endpoint_labels(endpoint);
                for (id, policy) in &self.state.policies {
                    if policy.subject.matches(&labels) {
                        features.extend(self.policies.get(id).into_iter().flatten());
                        audit::policy_features(policy.mode, &mut features);
                        let tier = self.state.tier(&policy.tier);
                        features.insert(match tier.map(|tier| tier.default) {
                            None => "tier that does not exist",
                            Some(palisade_model::TierDefault::Deny) => "tier that denies",
                            Some(palisade_model::TierDefault::Pass) => "tier that passes",
                        });
                    }
                }
                for name in &endpoint.profiles {
                    features.extend(self.profiles.get(name).into_iter().flatten());
                    if &**name != Profile::ALLOW_ALL && !self.state.profiles.contains_key(name) {
                        features.insert("profile that does not exist");
                    }
                }
            }
            let covers = |net: &palisade_model::Prefix| net.contains(end);
            for set in self.state.network_sets.values() {
                if set.nets.iter().any(covers) {
                    features.insert(match set.kind {
                        NetworkSetKind::DomainName => "address of a name",
                        _ => "address in a network set",
                    });
                }
            }
            if self
                .state
                .nodes
                .values()
                .any(|node| node.addresses.contains(&end))
            {
                features.insert("address of a node");
            }
        }
        features
    }
}

pub(super) const NAMESPACES: [&str; 3] = ["shop", "stock", "bare"];

/// A name in a namespace, or cluster-wide.
pub(super) fn id(namespace: Option<&str>, name: &str, kind: &str) -> ObjectId {
    ObjectId {
        namespace: namespace.map(Str::from),
        name: name.into(),
        kind: ObjectKind::new(if kind == "Pod" { "" } else { "example.org" }, kind),
    }
}

#[cfg(test)]
mod tests;

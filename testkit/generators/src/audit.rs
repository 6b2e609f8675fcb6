//! Some policies, endpoints and namespaces of a world put in audit.
//!
//! It draws from dice of its own, so worlds and their flows are as they would be without it.

use crate::Dice;
use crate::kubernetes::{Features, GeneratedObject};
use palisade_model::{PolicyMode, State};
use serde_json::Value;

/// The annotation.
pub(crate) const ANNOTATION: &str = "palisade.dev/mode";

/// The features of what is in audit.
pub(crate) const POLICY: &str = "policy in audit";
/// An endpoint, by itself.
pub(crate) const ENDPOINT: &str = "endpoint in audit";
/// The endpoints of a namespace.
pub(crate) const NAMESPACE: &str = "namespace in audit";

/// In how many worlds of a hundred something may be in audit.
const WORLDS: u32 = 20;
/// How many policies, endpoints and namespaces of a hundred are then.
const POLICIES: u32 = 35;
const ENDPOINTS: u32 = 12;
const NAMESPACES: u32 = 28;

fn dice(seed: u64, case: u64) -> Option<Dice> {
    let mut dice = Dice::new(seed ^ 0x0061_7564_6974, case);
    dice.chance(WORLDS).then_some(dice)
}

/// Puts some objects of a cluster in audit; the features of these objects then tell of it.
pub(crate) fn annotate(made: &mut [GeneratedObject], seed: u64, case: u64) {
    let Some(mut dice) = dice(seed, case) else {
        return;
    };
    for GeneratedObject { object, features } in made {
        let kind = object["kind"].as_str().unwrap_or_default();
        let (percent, feature) = match kind {
            "Pod" | "WorkloadEndpoint" | "HostEndpoint" => (ENDPOINTS, ENDPOINT),
            "Namespace" => (NAMESPACES, NAMESPACE),
            "Node" => (ENDPOINTS, ENDPOINT),
            kind if kind.ends_with("NetworkPolicy") => (POLICIES, POLICY),
            _ => continue,
        };
        let mode = match dice.below(100) as u32 {
            drawn if drawn < percent => "audit",
            drawn if drawn < percent + 5 => "enforce",
            _ => continue,
        };
        object["metadata"]["annotations"][ANNOTATION] = mode.into();
        if mode == "audit" {
            features.insert(feature);
        }
    }
}

/// Whether the annotations of an object put it in audit.
pub(crate) fn is_in_audit(object: &Value) -> bool {
    object["metadata"]["annotations"][ANNOTATION] == "audit"
}

/// Puts some objects of a state in audit.
pub(crate) fn mark(state: &mut State, seed: u64, case: u64) {
    let Some(mut dice) = dice(seed, case) else {
        return;
    };
    for policy in state.policies.values_mut() {
        if dice.chance(POLICIES) {
            policy.mode = PolicyMode::Audit;
        }
    }
    for endpoint in state.endpoints.values_mut() {
        endpoint.audit = dice.chance(ENDPOINTS);
    }
    for namespace in state.namespaces.values_mut() {
        namespace.audit = dice.chance(NAMESPACES);
    }
}

/// The features of a policy's mode.
pub(crate) fn policy_features(mode: PolicyMode, features: &mut Features) {
    if mode == PolicyMode::Audit {
        features.insert(POLICY);
    }
}

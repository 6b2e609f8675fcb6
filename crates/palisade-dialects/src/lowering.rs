//! Selects the dialect of an object.

use crate::calico::{CalicoDialect, restore_metadata};
use crate::cilium::CiliumDialect;
use crate::dialect::{Dialect, LoweredObject};
use crate::kubernetes::KubernetesDialect;
use crate::mode::annotated_mode;
use crate::policy_api::PolicyApiDialect;
use crate::unknown;
use palisade_manifest::RawObject;
use palisade_model::{Object, Policy};

/// Every dialect of this build.
const DIALECTS: [&dyn Dialect; 4] = [
    &KubernetesDialect,
    &PolicyApiDialect,
    &CiliumDialect,
    &CalicoDialect,
];

/// Lowers one object with its dialect.
#[must_use]
pub fn lower_object(object: &RawObject) -> LoweredObject {
    let object = &*restore_metadata(object);
    let mut dialects = DIALECTS.iter();
    let lowered = dialects.find_map(|dialect| dialect.lower(object));
    let mut lowered = lowered.unwrap_or_else(|| unknown::lower_unknown(object));
    let mode = annotated_mode(&object.field());
    for object in &mut lowered.objects {
        if let Object::Policy(policy) = object {
            policy.mode = policy.mode.max(mode);
            policy.shrink_to_fit();
        }
    }
    lowered
}

/// The isolation policies of an object that [`lower_object`] rejects and that was never valid, if its kind
/// isolates, its namespace is valid and its subject can be read.
///
/// A Kubernetes NetworkPolicy, also one with a mistyped kind or version, isolates the pods its podSelector
/// selects. There is no isolation policy if the podSelector contains any error, or if it is missing and
/// another field may be a misspelling of it; otherwise a missing podSelector selects every pod of the
/// namespace, as in a valid policy. The directions are those of policyTypes; both if policyTypes contains
/// anything unreadable or a field of the spec may be a misspelling of it; without policyTypes, ingress, and
/// egress as well if `egress` is not empty.
///
/// A cluster-wide policy of `policy.networking.k8s.io` closes each direction in which it has, or may have, a
/// rule that does not allow: everything is denied there to the pods of its subject, in its tier and at its
/// priority; before every other policy if these cannot be read. There is no isolation policy if the subject
/// contains any error or is missing.
///
/// A NetworkPolicy or GlobalNetworkPolicy of Calico isolates the workloads of its selectors at its place, in the
/// directions that it governs; it denies everything there if a rule does more than allow, or may. There is no
/// isolation policy if a selector of it contains an error.
///
/// Of a policy of Cilium, each spec isolates the pods of its endpointSelector in the directions that it names. There
/// is no isolation policy of a spec whose selector contains any error or is missing.
#[must_use]
pub fn isolate(object: &RawObject) -> Vec<Policy> {
    let object = &*restore_metadata(object);
    let unknown = !unknown::is_known(object);
    let intended = unknown.then(|| unknown::intended_kind(object)).flatten();
    let isolated = DIALECTS.iter();
    let isolated = isolated.flat_map(|dialect| dialect.isolate(object, intended));
    // What would isolate if it were enforced enforces nothing either.
    let mode = annotated_mode(&object.field());
    let with_mode = |policy: Policy| Policy {
        mode: policy.mode.max(mode),
        ..policy
    };
    isolated.map(with_mode).collect()
}

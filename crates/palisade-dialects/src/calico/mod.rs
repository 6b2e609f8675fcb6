//! Calico's dialect: the policies, tiers, profiles, network sets and endpoints of `projectcalico.org/v3`, which are
//! the same objects as those of `crd.projectcalico.org/v1`.
//!
//! Promises: every object is read with the limits and validations of Calico's API server, and every rejection names
//! field and reason; the order of tiers and policies is Calico's; what is staged decides nothing. An object of both
//! API groups is one object.
//!
//! Never: takes a Node, or a set of another dialect, for what a selector of Calico selects.

mod domain;
mod entity;
mod fields;
mod host_endpoint;
mod isolation;
mod kinds;
mod network_set;
mod policy;
mod policy_kind;
mod profile;
mod protocol;
mod rule;
pub mod selector;
mod selector_scope;
mod stored_metadata;
mod tier;
mod workload_endpoint;

use crate::dialect::{Dialect, GroupVersionKind, LoweredObject};
use crate::kind_reader::{KindReader, find_reader, reader_of};
use crate::names;
pub(crate) use fields::POLICY_KINDS;
pub(crate) use kinds::{CRD_KINDS, KINDS};
use palisade_manifest::RawObject;
use palisade_model::{ObjectKind, Policy};
use policy_kind::CalicoPolicyKind;
pub use selector_scope::{ORCHESTRATOR, calico_holders};
pub(crate) use stored_metadata::restore_metadata;

/// The API group that names of objects have, whichever they are written in.
pub(crate) const GROUP: &str = "projectcalico.org";
/// The group of the same objects as resources of the API server.
const CRD_GROUP: &str = "crd.projectcalico.org";

/// The kind in the names of the objects of an API group and kind, which is another than the written one where two groups
/// serve the same objects.
#[must_use]
pub fn object_kind(group: &str, kind: &str) -> ObjectKind {
    match group {
        CRD_GROUP => ObjectKind::new(GROUP, kind),
        group => ObjectKind::new(group, kind),
    }
}

/// Calico's dialect.
pub(crate) struct CalicoDialect;

impl Dialect for CalicoDialect {
    fn lower(&self, object: &RawObject) -> Option<LoweredObject> {
        let mut lowered = reader_of_object(object)?.lower(object);
        // What could be read is restored already.
        let error = stored_metadata::stored_metadata_error(object, &lowered.id.to_string());
        if let Some(error) = error {
            lowered.objects.clear();
            if !lowered
                .errors
                .iter()
                .any(|earlier| earlier.field == error.field)
            {
                lowered.errors.push(error);
            }
        }
        Some(lowered)
    }

    fn isolate(&self, object: &RawObject, intended: Option<GroupVersionKind>) -> Vec<Policy> {
        let intended = || {
            let kind = intended?;
            reader_of(KINDS, kind).or_else(|| reader_of(CRD_KINDS, kind))
        };
        let kind = reader_of_object(object).or_else(intended);
        let Some((kind, variant)) =
            kind.and_then(|kind| Some((kind, CalicoPolicyKind::of_kind(kind.kind)?)))
        else {
            return Vec::new();
        };
        let object = kind.interpret(object);
        let is_sound =
            !variant.is_namespaced() || names::dns_label_errors(&object.namespace()).is_empty();
        let isolated = is_sound.then(|| isolation::isolation_policy(&object, variant));
        isolated.flatten().into_iter().collect()
    }
}

fn reader_of_object(object: &RawObject) -> Option<&'static KindReader> {
    find_reader(KINDS, object).or_else(|| find_reader(CRD_KINDS, object))
}

//! Profiles: rules after the last tier, and labels for endpoints.
//!
//! The profiles of namespaces (`kns.`) and service accounts (`ksa.`) follow from these, and the profile that allows
//! everything is built in: objects of these names have no effect.

use super::rule::{CalicoRuleContext, read_list};
use crate::kind_reader::ManifestObject;
use crate::metadata;
use crate::report::ObjectReport;
use palisade_model::{Direction, Object, Profile, Str};

const KNOWN: &[&str] = &["apiVersion", "kind", "metadata", "spec", "status"];
const KNOWN_SPEC: &[&str] = &["ingress", "egress", "labelsToApply"];
const IN_SPEC: &str = "it belongs inside `spec`";
const MISPLACED: &[(&str, &str)] = &[
    ("ingress", IN_SPEC),
    ("egress", IN_SPEC),
    ("labelsToApply", IN_SPEC),
];
/// What the names of the profiles of namespaces begin with.
const NAMESPACE_PREFIX: &str = "kns.";
/// What the names of the profiles of service accounts begin with.
const ACCOUNT_PREFIX: &str = "ksa.";
/// The profile that allows everything.
const ALLOW_ALL: &str = "projectcalico-default-allow";

/// Lowers a profile.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Vec<Object> {
    let root = &object.root;
    report.check_descriptive_fields(root, KNOWN, MISPLACED);
    metadata::check(root, report);
    let mut profile = Profile {
        name: object.id.name.clone(),
        ingress: Vec::new(),
        egress: Vec::new(),
        labels_to_apply: Default::default(),
    };
    if let Some(spec) = report.object(root, "spec") {
        report.check_fields(&spec, KNOWN_SPEC, &[]);
        let [ingress, egress] = Direction::BOTH.map(|direction| {
            let context = CalicoRuleContext {
                direction,
                namespace: None,
                is_of_profile: true,
            };
            read_list(&spec, context, report)
        });
        profile.ingress = ingress;
        profile.egress = egress;
        profile.labels_to_apply = metadata::labels(&spec, "labelsToApply", report);
    }
    let reason = match &*object.id.name {
        Profile::ALLOW_ALL | ALLOW_ALL => "this profile is built in",
        name if name.starts_with(NAMESPACE_PREFIX) => {
            "the profile of a namespace follows from the Namespace"
        }
        name if name.starts_with(ACCOUNT_PREFIX) => {
            "the profile of a service account follows from the ServiceAccount"
        }
        _ => return vec![Object::Profile(profile)],
    };
    report.warn(root, format!("{reason}: this object has no effect"));
    Vec::new()
}

/// The profiles of an endpoint, by the names that it gives them: that of a namespace allows everything, that of a
/// service account has no rules.
pub(super) fn of_endpoint<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Str> {
    let profile = |name: &'a str| -> Option<Str> {
        if name == ALLOW_ALL || name.starts_with(NAMESPACE_PREFIX) {
            return Some(Profile::ALLOW_ALL.into());
        }
        (!name.starts_with(ACCOUNT_PREFIX)).then(|| name.into())
    };
    names.filter_map(profile).collect()
}

/// The namespace whose profile this is.
pub(super) fn namespace_of(name: &str) -> Option<&str> {
    name.strip_prefix(NAMESPACE_PREFIX)
}

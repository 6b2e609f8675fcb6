//! The fields of `metadata`.

use crate::mode;
use crate::names;
use crate::report::ObjectReport;
use crate::timestamp;
use palisade_manifest::{Field, quote};
use palisade_model::{Labels, Owner, Str};

/// The fields of `metadata` in the API server, and one that older servers wrote.
const KNOWN: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "clusterName",
];

/// Checks the metadata of a policy: its fields, its labels and its annotations.
pub(crate) fn check(root: &Field<'_>, report: &mut ObjectReport) {
    let Some(metadata) = report.object(root, "metadata") else {
        return;
    };
    report.check_descriptive_fields(&metadata, KNOWN, &[]);
    labels(&metadata, "labels", report);
    let Some(annotations) = report.object(&metadata, "annotations") else {
        return;
    };
    for (key, field) in annotations.entries().unwrap_or_default() {
        report.key_errors(
            &annotations,
            key,
            names::label_key_errors(&key.to_lowercase()),
        );
        if !field.node.is_null() {
            report.ok(field.as_str());
        }
        mode::check_policy(key, &field, report);
    }
}

/// Labels, or another map with label keys and values. `null` is an empty value, as in the API server.
pub(crate) fn labels(parent: &Field<'_>, key: &str, report: &mut ObjectReport) -> Labels {
    let mut labels = Labels::new();
    let Some(map) = report.object(parent, key) else {
        return labels;
    };
    for (key, field) in map.entries().unwrap_or_default() {
        report.key_errors(&map, key, names::label_key_errors(key));
        let value = if field.node.is_null() {
            Some("")
        } else {
            report.ok(field.as_str())
        };
        if let Some(value) = value {
            report.errors(&field, names::label_value_errors(value));
            labels.insert(key.into(), value.into());
        }
    }
    labels
}

/// The labels in `metadata` of an object or of a template.
pub(crate) fn metadata_labels(parent: &Field<'_>, report: &mut ObjectReport) -> Labels {
    match report.object(parent, "metadata") {
        Some(metadata) => labels(&metadata, "labels", report),
        None => Labels::new(),
    }
}

/// The same of an object whose labels have been checked.
pub(crate) fn checked_labels(parent: &Field<'_>) -> Labels {
    metadata_labels(parent, &mut ObjectReport::new(String::new()))
}

/// The creation time in seconds since 1970; 0 if it is not known.
pub(crate) fn created(root: &Field<'_>, report: &mut ObjectReport) -> u64 {
    let Some(metadata) = report.object(root, "metadata") else {
        return 0;
    };
    let Some((text, field)) = report.text(&metadata, "creationTimestamp") else {
        return 0;
    };
    timestamp::parse_rfc3339(text).unwrap_or_else(|| {
        report.warn(&field, format!("{} is not a time (RFC 3339)", quote(text)));
        0
    })
}

/// The annotation of a mirror Pod, the object of a static pod: the UID that the kubelet gave the pod, which a container
/// runtime passes on. The UID of the object is another one. Source: Kubernetes, "Well-Known Labels, Annotations and
/// Taints".
pub(crate) const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// The UID of a Pod, as a container runtime knows it. What is no text is none.
pub(crate) fn pod_uid(root: &Field<'_>) -> Option<Str> {
    let metadata = root.get("metadata").ok()??;
    let text = |parent: &Field<'_>, key| {
        let field = parent.get(key).ok()??;
        let text = field.as_str().ok()?;
        (!text.is_empty()).then(|| Str::from(text))
    };
    let annotations = metadata.get("annotations").ok().flatten();
    let mirrored = annotations.and_then(|annotations| text(&annotations, MIRROR_ANNOTATION));
    mirrored.or_else(|| text(&metadata, "uid"))
}

/// The controlling owner. `None` for a Node, which owns static pods but is not a workload.
pub(crate) fn owner(root: &Field<'_>, report: &mut ObjectReport) -> Option<Owner> {
    let metadata = report.object(root, "metadata")?;
    for reference in report.items(&metadata, "ownerReferences") {
        let controls = report.child(&reference, "controller");
        if controls.is_none_or(|field| field.node.as_bool() != Some(true)) {
            continue;
        }
        let kind: Str = report.text(&reference, "kind")?.0.into();
        let name: Str = report.text(&reference, "name")?.0.into();
        return (&*kind != "Node").then_some(Owner { kind, name });
    }
    None
}

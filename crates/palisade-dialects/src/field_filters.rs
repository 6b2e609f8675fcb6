//! The fields of each kind that the dialects read, so that other fields of a dump are not kept in memory.
//!
//! For kinds that are numerous in a cluster, every field that is read is listed. Of any other kind everything
//! is kept except `managedFields` and the numbers of its versions: unknown fields of a policy are errors, and an unknown kind may be a
//! misspelled one.

use crate::metadata::MIRROR_ANNOTATION;
use crate::mode::MODE_ANNOTATION;
use palisade_manifest::FieldFilter;
use palisade_manifest::FieldFilter::{All, AllBut, AnyOf, Nothing, Only};

const METADATA: FieldFilter = AllBut(&[
    ("managedFields", Nothing),
    (
        "annotations",
        AnyOf(&[(MODE_ANNOTATION, All), (MIRROR_ANNOTATION, All)]),
    ),
    ("resourceVersion", Nothing),
    ("generation", Nothing),
]);
const PORTS: FieldFilter = Only(&[("ports", All), ("restartPolicy", All)]);
const POD_SPEC: FieldFilter = Only(&[
    ("nodeName", All),
    ("serviceAccountName", All),
    ("serviceAccount", All),
    ("hostNetwork", All),
    ("containers", PORTS),
    ("initContainers", PORTS),
]);
const TEMPLATE: FieldFilter = Only(&[("metadata", METADATA), ("spec", POD_SPEC)]);

static POD: FieldFilter = Only(&[
    ("apiVersion", All),
    ("kind", All),
    ("metadata", METADATA),
    ("spec", POD_SPEC),
    (
        "status",
        Only(&[("phase", All), ("podIP", All), ("podIPs", All)]),
    ),
]);
static WORKLOAD: FieldFilter = Only(&[
    ("apiVersion", All),
    ("kind", All),
    ("metadata", METADATA),
    ("spec", Only(&[("template", TEMPLATE)])),
]);
static CRON_JOB: FieldFilter = Only(&[
    ("apiVersion", All),
    ("kind", All),
    ("metadata", METADATA),
    (
        "spec",
        Only(&[(
            "jobTemplate",
            Only(&[("spec", Only(&[("template", TEMPLATE)]))]),
        )]),
    ),
]);
static NODE: FieldFilter = Only(&[
    ("apiVersion", All),
    ("kind", All),
    ("metadata", METADATA),
    ("spec", Only(&[("podCIDR", All), ("podCIDRs", All)])),
    ("status", Only(&[("addresses", All)])),
]);
static ENDPOINT_SLICE: FieldFilter = Only(&[
    ("apiVersion", All),
    ("kind", All),
    ("metadata", METADATA),
    ("addressType", All),
    ("ports", All),
    (
        "endpoints",
        Only(&[
            ("addresses", All),
            ("conditions", Only(&[("ready", All), ("terminating", All)])),
        ]),
    ),
]);
static OTHER: FieldFilter = AllBut(&[(
    "metadata",
    AllBut(&[
        ("managedFields", Nothing),
        ("resourceVersion", Nothing),
        ("generation", Nothing),
    ]),
)]);

/// The fields that are read of an object of this kind. The kind alone decides: a kind of the same name in
/// another API group has the same fields, is ignored or is rejected.
#[must_use]
pub fn field_filter_of_kind(kind: Option<&str>) -> &'static FieldFilter {
    match kind {
        Some("Pod") => &POD,
        Some(
            "Deployment"
            | "StatefulSet"
            | "DaemonSet"
            | "ReplicaSet"
            | "ReplicationController"
            | "Job"
            | "Rollout"
            | "DeploymentConfig"
            | "CloneSet"
            | "BroadcastJob",
        ) => &WORKLOAD,
        Some("CronJob") => &CRON_JOB,
        Some("Node") => &NODE,
        Some("EndpointSlice") => &ENDPOINT_SLICE,
        _ => &OTHER,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lower_object;
    use palisade_manifest::{
        Limits, ObjectSink, ParsedObjects, Problem, RawObject, extract_objects, read_stream,
    };

    #[derive(Default)]
    struct CollectingSink(Vec<RawObject>);

    impl ObjectSink for CollectingSink {
        fn push_object(&mut self, object: RawObject) {
            self.0.push(object);
        }
        fn push_problem(&mut self, _: Problem) {}
        fn begin_document(&mut self) {}
        fn rollback_document(&mut self) {}
    }

    const SPEC: &str = r#"{"nodeName": "n", "serviceAccountName": "s", "serviceAccount": "t",
        "hostNetwork": false, "volumes": [{"name": "v"}],
        "containers": [{"name": "c", "env": [], "ports": [{"name": "p", "containerPort": 1}]}],
        "initContainers": [{"restartPolicy": "Always", "ports": [{"name": "q", "containerPort": 2}]},
                           {"ports": [{"name": "r", "containerPort": 3}]}]}"#;

    /// Lowering gives the same result with and without the fields that are left out.
    #[test]
    fn every_field_that_is_read_is_kept() {
        let metadata = r#"{"name": "a", "namespace": "shop", "labels": {"app": "a"}, "uid": "u",
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"x": "y", "palisade.dev/mode": "audit", "kubernetes.io/config.mirror": "m"},
            "managedFields": [{"manager": "m"}],
            "ownerReferences": [{"kind": "ReplicaSet", "name": "o", "controller": true}]}"#;
        let template = format!(r#"{{"metadata": {metadata}, "spec": {SPEC}}}"#);
        let status = r#"{"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "fd00::1"}],
            "conditions": [], "addresses": [{"type": "InternalIP", "address": "10.0.0.9"}]}"#;
        let specs = [
            ("v1", "Pod", SPEC.to_owned()),
            (
                "apps/v1",
                "Deployment",
                format!(r#"{{"template": {template}, "replicas": 2}}"#),
            ),
            (
                "apps/v1",
                "ReplicaSet",
                format!(r#"{{"template": {template}}}"#),
            ),
            ("batch/v1", "Job", format!(r#"{{"template": {template}}}"#)),
            (
                "batch/v1",
                "CronJob",
                format!(r#"{{"jobTemplate": {{"spec": {{"template": {template}}}}}}}"#),
            ),
            ("v1", "Node", r#"{"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"], "taints": []}"#
                    .to_owned()),
            (
                "v1",
                "Service",
                r#"{"selector": {"a": "b"}, "ports": [{"port": 80}]}"#.to_owned(),
            ),
            (
                "networking.k8s.io/v1",
                "NetworkPolicy",
                r#"{"podSelector": {}, "oops": 1}"#.to_owned(),
            ),
        ];
        for (version, kind, spec) in specs {
            let text = format!(
                r#"{{"items": [{{"apiVersion": "{version}", "kind": "{kind}", "metadata": {metadata},
                    "spec": {spec}, "status": {status}}}], "apiVersion": "v1", "kind": "List"}}"#
            );
            let limits = Limits::default();
            let mut collected = CollectingSink::default();
            let step = Some(64);
            read_stream(
                "f",
                &mut text.as_bytes(),
                &limits,
                step,
                field_filter_of_kind,
                &mut collected,
            )
            .unwrap();
            let whole: ParsedObjects = extract_objects(
                palisade_manifest::parse("f", text.as_bytes(), &limits),
                &limits,
            );
            let [pruned, all] = [&collected.0[0], &whole.objects[0]];
            assert_ne!(pruned.root, all.root, "{kind}");
            assert_eq!(lower_object(pruned), lower_object(all), "{kind}");
            assert!(
                !lower_object(all).objects.is_empty() || kind == "NetworkPolicy",
                "{kind}"
            );
        }
    }
}

//! Workload resources, lowered to the pods of their templates, for analysis without a cluster: those of Kubernetes
//! (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job and CronJob), and those of other
//! software that have one pod template in the same place ([`CUSTOM_WORKLOADS`]).

use super::pod;
use crate::kind_reader::ManifestObject;
use crate::report::ObjectReport;
use palisade_manifest::Field;
use palisade_model::{EndpointKind, Object};

/// The workloads of other software, by API group and kind, of any version: Argo Rollouts, OpenShift and
/// OpenKruise. Their pod template is `spec.template`.
pub(in crate::kubernetes) const CUSTOM_WORKLOADS: [(&str, &[&str]); 3] = [
    ("argoproj.io", &["Rollout"]),
    ("apps.openshift.io", &["DeploymentConfig"]),
    (
        "apps.kruise.io",
        &["BroadcastJob", "CloneSet", "DaemonSet", "StatefulSet"],
    ),
];

/// Lowers a workload: one endpoint represents all of its pods.
pub(in crate::kubernetes) fn read(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let spec = report.ok(object.root.require("spec"))?;
    let spec = if object.id.kind.name() == "CronJob" {
        report.ok(spec
            .require("jobTemplate")
            .and_then(|job| job.require("spec")))?
    } else {
        spec
    };
    let template = report.ok(spec.require("template"))?;
    endpoint(object, &template, report)
}

/// Lowers a workload of other software. One without a template, such as a Rollout that refers to a Deployment, has
/// no pods of its own.
pub(in crate::kubernetes) fn read_custom(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let template = template_of(&object.root)?;
    endpoint(object, &template, report)
}

fn endpoint(
    object: &ManifestObject<'_>,
    template: &Field<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    report.ok(template.as_map())?;
    let mut endpoint = pod::endpoint(object, template, report);
    endpoint.kind = EndpointKind::Template {
        host_network: endpoint.uses_host_network(),
    };
    Some(Object::Endpoint(endpoint))
}

/// The pod template of a workload, if there is one.
pub(super) fn template_of<'a>(root: &Field<'a>) -> Option<Field<'a>> {
    let child = |parent: &Field<'a>, key| parent.get(key).ok().flatten();
    let spec = child(root, "spec")?;
    child(&spec, "template")
        .or_else(|| child(&child(&child(&spec, "jobTemplate")?, "spec")?, "template"))
}

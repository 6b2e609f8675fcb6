//! Workload resources (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job and
//! CronJob), lowered to the pods of their templates, for analysis without a cluster.

use super::{LoweredParts, ManifestObject, pod};
use crate::report::ObjectReport;
use palisade_manifest::{Field, FieldError};

/// Lowers a workload: one endpoint represents all of its pods.
pub(super) fn read(object: &ManifestObject<'_>, report: &mut ObjectReport) -> Option<LoweredParts> {
    let template = template(object);
    let template = report.ok(template)?;
    report.ok(template.as_map())?;
    let mut endpoint = pod::endpoint(object, &template, report);
    endpoint.template = true;
    Some(pod::lower_endpoint(endpoint, &template, report))
}

fn template<'a>(object: &ManifestObject<'a>) -> Result<Field<'a>, FieldError> {
    let mut spec = object.root.require("spec")?;
    if &*object.id.kind == "CronJob" {
        spec = spec.require("jobTemplate")?.require("spec")?;
    }
    spec.require("template")
}

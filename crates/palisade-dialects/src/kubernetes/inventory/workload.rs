//! Workload resources (Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job and
//! CronJob), lowered to the pods of their templates, for analysis without a cluster.

use super::pod;
use crate::kind_reader::ManifestObject;
use crate::report::ObjectReport;
use palisade_manifest::{Field, FieldError};
use palisade_model::Object;

/// Lowers a workload: one endpoint represents all of its pods.
pub(in crate::kubernetes) fn read(
    object: &ManifestObject<'_>,
    report: &mut ObjectReport,
) -> Option<Object> {
    let template = template(object);
    let template = report.ok(template)?;
    report.ok(template.as_map())?;
    let mut endpoint = pod::endpoint(object, &template, report);
    endpoint.template = true;
    Some(Object::Endpoint(endpoint))
}

fn template<'a>(object: &ManifestObject<'a>) -> Result<Field<'a>, FieldError> {
    let mut spec = object.root.require("spec")?;
    if object.id.kind.name() == "CronJob" {
        spec = spec.require("jobTemplate")?.require("spec")?;
    }
    spec.require("template")
}

//! What makes pods: Deployment, StatefulSet, DaemonSet, ReplicaSet, ReplicationController, Job and
//! CronJob, read as the pods they would make, for analysis without a cluster.

use super::{Parts, Source, pod};
use crate::report::Report;
use palisade_manifest::{Field, FieldError};

/// Reads a workload: one endpoint that stands for its pods, however many.
pub(super) fn read(source: &Source<'_>, report: &mut Report) -> Option<Parts> {
    let template = template(source);
    let template = report.keep(template)?;
    report.keep(template.as_map())?;
    let mut endpoint = pod::endpoint(source, &template, report);
    endpoint.template = true;
    Some(pod::of(endpoint, &template, report))
}

fn template<'a>(source: &Source<'a>) -> Result<Field<'a>, FieldError> {
    let mut spec = source.root.require("spec")?;
    if &*source.id.kind == "CronJob" {
        spec = spec.require("jobTemplate")?.require("spec")?;
    }
    spec.require("template")
}

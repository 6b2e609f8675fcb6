//! `palisade agent --dry-run -o json`.

use crate::{EndpointList, Status};
use palisade_model::Str;
use serde::Serialize;

/// The result of a dry run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRunReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The status after the plan has been executed.
    pub status: Status,
    /// The endpoints.
    pub endpoints: EndpointList,
    /// The planned writes to nftables.
    pub plan: DryRunPlan,
    /// What the other subsystems would do; those that would do nothing are left out.
    pub subsystems: Vec<SubsystemPlan>,
}

/// What a subsystem would do.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubsystemPlan {
    /// Its name.
    pub name: String,
    /// The actions, in order.
    pub actions: Vec<String>,
}

/// A plan that is not executed.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DryRunPlan {
    /// The number of kernel objects and elements that would be written or deleted.
    pub writes: usize,
    /// The steps, each one a transaction in the syntax of `nft`.
    pub text: String,
}

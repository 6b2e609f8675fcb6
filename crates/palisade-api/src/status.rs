//! The agent's state in one page.

use crate::{BudgetExcess, ElementBudgetReport};
use serde::{Deserialize, Serialize};

/// How the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Not yet in sync; the kernel keeps what it had.
    Starting,
    /// Everything the source says is in the kernel.
    Ready,
    /// Something needs a person: see `reasons`.
    Degraded,
}

/// What `palisade status` shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// When this was so, RFC 3339; packets are counted as of at most a second before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub as_of: String,
    /// How the agent is.
    pub health: Health,
    /// Why it is degraded, one sentence each.
    pub reasons: Vec<String>,
    /// Palisade's version.
    pub version: String,
    /// The agent's process.
    pub pid: u32,
    /// When it started, RFC 3339.
    pub started: String,
    /// The revision of the last accepted input.
    pub revision: u64,
    /// The revision that is real in the kernel.
    pub realised: u64,
    /// Endpoints of this host.
    pub endpoints: usize,
    /// Policies in force.
    pub policies: usize,
    /// Identities in the kernel.
    pub identities: usize,
    /// Where the input comes from.
    pub source: SourceStatus,
    /// The kernel side.
    pub dataplane: DataplaneStatus,
    /// The steps of the start, in order.
    pub bootstrap: Vec<BootstrapStage>,
    /// Objects whose last valid version stays in force.
    pub kept: Vec<RetainedObjectReport>,
    /// How many more of these there are than the thousand that are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more_kept: Option<usize>,
    /// Addresses that several live objects claim.
    pub conflicts: Vec<AddressConflictReport>,
    /// How much of the kernel policy takes and may take.
    #[serde(default)]
    pub budget: ElementBudgetReport,
    /// What would take more than that, and what is enforced instead.
    #[serde(default)]
    pub over_budget: Vec<BudgetExcess>,
}

/// The source of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// What kind of source.
    pub kind: String,
    /// Where it is.
    pub location: String,
    /// Whether the first whole reading is done.
    pub in_sync: bool,
    /// Files read.
    pub files: usize,
    /// Objects in force.
    pub objects: usize,
    /// What is wrong with the input.
    pub problems: Vec<ProblemReport>,
}

/// Something wrong with the input.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ProblemReport {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// `error` or `warning`.
    pub severity: String,
    /// The object, where it could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field.
    pub field: String,
    /// Why.
    pub reason: String,
    /// If it stands for problems that are not told one by one: how many these are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
}

impl ProblemReport {
    /// How many problems it is.
    pub fn count(&self) -> usize {
        self.more.unwrap_or(1)
    }
}

/// One kernel flush.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlushReport {
    /// The revision it made real.
    pub revision: u64,
    /// Kernel objects and elements written.
    pub writes: usize,
    /// Milliseconds from the first write to the last acknowledgement.
    pub millis: f64,
}

/// One repair of what somebody else changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RepairReport {
    /// When it was done, RFC 3339.
    pub at: String,
    /// What was changed, for people.
    pub what: String,
    /// Kernel objects and elements written.
    pub writes: usize,
    /// Milliseconds from when the change was noticed to the last acknowledgement.
    pub millis: f64,
}

/// The kernel side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DataplaneStatus {
    /// Its name.
    pub name: String,
    /// The generation of established flows.
    pub generation: u32,
    /// What the start wrote: 0 on unchanged input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<FlushReport>,
    /// The last flush.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<FlushReport>,
    /// The last repairs, newest last.
    pub repairs: Vec<RepairReport>,
    /// How many there were since the start.
    pub repaired: u64,
    /// Drops that no rule decided: reason, packets, bytes.
    pub drops: Vec<(String, u64, u64)>,
    /// The last failure, if it has not been overcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// One step of the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BootstrapStage {
    /// What it did.
    pub name: String,
    /// How long it took, in milliseconds.
    pub millis: f64,
}

/// An object whose last valid version stays in force, because its current text is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetainedObjectReport {
    /// The object.
    pub object: String,
    /// When the version in force was read, RFC 3339; absent if there never was a valid one and the
    /// object isolates what it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The hash of the version in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// An address with several live claimants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AddressConflictReport {
    /// The address.
    pub address: String,
    /// Who has it.
    pub owner: String,
    /// Who else claims it.
    pub others: Vec<String>,
}

//! The state of the agent.

use crate::object::named_enum;
use crate::{
    BudgetExcess, ElementBudgetReport, NamesStatus, PacketCount, PacketReason, PolicyState,
};
use palisade_model::{Str, TierDefault};
use serde::{Deserialize, Serialize};

/// Health of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Health {
    /// Not yet in sync; the kernel keeps its previous policy.
    Starting,
    /// The state of the source is in the kernel.
    Ready,
    /// Needs attention: see `reasons`.
    Degraded,
}

/// The response of `palisade status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Time of this state, RFC 3339; counters are at most one second older.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub as_of: String,
    /// Health of the agent.
    pub health: Health,
    /// Reasons for degraded health, one sentence each.
    pub reasons: Vec<String>,
    /// Version of Palisade.
    pub version: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Start time, RFC 3339.
    pub started: String,
    /// The revision of the last accepted input.
    pub revision: u64,
    /// The revision that is in the kernel.
    pub realised: u64,
    /// Endpoints of this host.
    pub endpoints: usize,
    /// Host endpoints of this host, and the interface that each governs; that of its node if policies select nodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_endpoints: Vec<HostEndpointReport>,
    /// Connections that a policy of a host endpoint in force could cut although most hosts need them: SSH and the API
    /// server, where they are no failsafe ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing_failsafe: Vec<String>,
    /// Policies in force.
    pub policies: usize,
    /// The tiers that have policies, in order of evaluation.
    #[serde(default)]
    pub tiers: Vec<TierReport>,
    /// The number of policies in each state that is not `Accepted`.
    #[serde(default)]
    pub policy_states: Vec<PolicyStateCount>,
    /// What is in audit, and what came of it.
    #[serde(default)]
    pub audit: AuditSummary,
    /// Identities in the kernel.
    pub identities: usize,
    /// What the agent reads.
    pub source: SourceStatus,
    /// The dataplane.
    pub dataplane: DataplaneStatus,
    /// This host's node, if addresses or routes follow the cluster's nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeStatus>,
    /// The stages of the start, in order.
    pub bootstrap: Vec<BootstrapStage>,
    /// Objects whose last valid version stays in force.
    #[serde(alias = "kept")]
    pub retained_objects: Vec<RetainedObjectReport>,
    /// Number of retained objects beyond the thousand that are listed.
    #[serde(default, alias = "moreKept", skip_serializing_if = "Option::is_none")]
    pub more_retained_objects: Option<usize>,
    /// Addresses that several live objects claim.
    pub conflicts: Vec<AddressConflictReport>,
    /// Use of the element budget.
    #[serde(default)]
    pub budget: ElementBudgetReport,
    /// Policies over the element budget, and what is enforced instead.
    #[serde(default)]
    pub over_budget: Vec<BudgetExcess>,
    /// Policy by domain name; absent where there is none, and no proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<NamesStatus>,
    /// Why the state of this node cannot be written to the API server; absent if it can, or is not to be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_status_error: Option<String>,
}

/// A host endpoint of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HostEndpointReport {
    /// `HostEndpoint`, or `Node` for the endpoint that policies of nodes select.
    #[serde(default)]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The interface that it governs; `*` for every one that no other names; absent if it is not enforced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Why it is not enforced at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is in audit, and the packets judged where something in audit applies: their verdicts, and those that
/// they would have if nothing were in audit. A packet between two endpoints of this host is judged at both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuditSummary {
    /// Whether every endpoint of this host is in audit: `policy-audit-mode`.
    pub agent: bool,
    /// Policies in audit.
    pub policies: usize,
    /// Namespaces in audit.
    pub namespaces: usize,
    /// Endpoints of this host in audit: by the agent, their namespace or themselves.
    pub endpoints: usize,
    /// Packets that were denied and would be allowed.
    pub would_allow: PacketCount,
    /// Packets that were allowed and would be denied.
    pub would_deny: PacketCount,
    /// Packets whose verdict would be the same.
    pub unchanged: PacketCount,
}

impl AuditSummary {
    /// Whether anything is in audit, or was and has been counted.
    pub fn is_empty(&self) -> bool {
        *self == AuditSummary::default()
    }
}

/// A tier that has policies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TierReport {
    /// Its name.
    pub name: String,
    /// Its order among the tiers, ascending; absent where it has none and stands after those that have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<f64>,
    /// What happens to traffic that no rule of it matches: continued with the next tier, or denied for the
    /// endpoints that one of its policies isolates.
    #[cfg_attr(
        feature = "schema",
        schemars(with = "crate::schema::TierDefaultSchema")
    )]
    pub default: TierDefault,
    /// Whether no such tier exists; it is then evaluated last.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub missing: bool,
    /// Number of its policies in force; an object with denials and allowances may be several.
    pub policies: usize,
}

/// The number of policies in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PolicyStateCount {
    /// The state.
    pub state: PolicyState,
    /// Number of policies.
    pub policies: usize,
}

/// What this host takes from the Node objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// The name of this host's Node.
    pub name: String,
    /// The address pools that were taken from it.
    pub pools: Vec<String>,
    /// The routes to other nodes; absent if there are to be none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<NodeRoutesStatus>,
}

/// The routes to the pods of other nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeRoutesStatus {
    /// Number of routes.
    pub installed: usize,
    /// Networks of other nodes that have no route here, or not the intended one, and why.
    pub problems: Vec<String>,
    /// Number of such networks beyond the hundred that are listed.
    #[serde(default)]
    pub more_problems: usize,
}

/// The source of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// The name of the first source.
    pub kind: String,
    /// Its path, or where its credentials come from.
    pub location: String,
    /// Whether the first complete read of every source is done.
    pub in_sync: bool,
    /// The sources, in the order of precedence.
    #[serde(default)]
    pub sources: Vec<FollowedSource>,
    /// Files read, and objects of an API server.
    pub files: usize,
    /// Objects in force.
    pub objects: usize,
    /// Problems of the input.
    pub problems: Vec<ProblemReport>,
}

/// A source of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FollowedSource {
    /// Its name: `directory`, `kubernetes`.
    pub name: String,
    /// Its path, or where its credentials come from.
    pub location: String,
    /// Whether its first complete read is done.
    pub in_sync: bool,
    /// Since when and why changes may be missed; absent while it is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<StalenessReport>,
    /// The resources that a server does not have: policy APIs that are not installed there. They are asked for
    /// again every minute or so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub absent: Vec<String>,
}

/// Since when and why a source is not followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct StalenessReport {
    /// Since when, RFC 3339.
    pub since: String,
    /// The reason.
    pub reason: String,
}

named_enum! {
    /// How serious a problem of the input is.
    ProblemSeverity {
        /// The object, or a part of it, is invalid.
        Error = "error",
        /// A part of the object is held closed: valid, but not served or not understood.
        HeldClosed = "held closed",
        /// It is valid, but likely not intended.
        Warning = "warning",
    }
}

/// A problem of the input.
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
    /// Its severity.
    pub severity: ProblemSeverity,
    /// The object, if it could be determined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The field.
    pub field: String,
    /// What is wrong.
    pub reason: String,
    /// Number of problems that this one summarizes, if they are not listed one by one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
}

impl ProblemReport {
    /// Number of problems: 1, or the number summarized.
    pub fn count(&self) -> usize {
        self.more.unwrap_or(1)
    }
}

/// One write of a revision to the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FlushReport {
    /// The revision.
    pub revision: u64,
    /// Kernel objects and elements written.
    pub writes: usize,
    /// Milliseconds from the first write to the last acknowledgement.
    pub millis: f64,
}

/// One repair after another program changed kernel objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RepairReport {
    /// Time of the repair, RFC 3339.
    pub at: String,
    /// Description of the change.
    pub what: String,
    /// Kernel objects and elements written.
    pub writes: usize,
    /// Milliseconds from the detection of the change to the last acknowledgement.
    pub millis: f64,
}

/// State of the dataplane.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DataplaneStatus {
    /// Its name.
    pub name: String,
    /// Policy generation of established connections.
    pub generation: u32,
    /// The write at the start: 0 writes with unchanged input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<FlushReport>,
    /// The last write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last: Option<FlushReport>,
    /// The most recent repairs, oldest first.
    pub repairs: Vec<RepairReport>,
    /// Number of repairs since the start.
    pub repaired: u64,
    /// Packets dropped before policy evaluation.
    pub drops: Vec<DropCounterReport>,
    /// The last error, if it persists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it cannot do now although it is configured, and why flows cannot be recorded; policy is enforced all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<DriverConditionReport>,
    /// The fast path in eBPF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<FastPathReport>,
}

/// What the fast path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FastPathFiguresReport {
    /// Addresses of workloads whose packets it may deliver.
    pub addresses: usize,
    /// Rows of policy.
    pub rows: usize,
    /// Flows that it delivers; those that ended a moment ago may be among them.
    pub flows: u64,
    /// Flows that the stack delivers, and whose answers go by it.
    pub flows_via_stack: u64,
    /// Live flows that had to make room.
    pub evictions: u64,
}

/// The fast path in eBPF: what it needs of a host, as it was when the agent started, and what it has if it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FastPathReport {
    /// Whether the host has all that it needs.
    pub possible: bool,
    /// How programs are attached to interfaces here; absent if they cannot be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<String>,
    /// What it has; absent if it does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub figures: Option<FastPathFiguresReport>,
    /// What it has not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<MissingFeatureReport>,
}

/// Something that a host does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct MissingFeatureReport {
    /// What, as one word in upper camel case.
    pub feature: String,
    /// Why it is missing, and what to do.
    pub reason: String,
}

/// Something that the dataplane, or what follows it, cannot do now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DriverConditionReport {
    /// What cannot be done, as one word in upper camel case.
    pub kind: String,
    /// Why, in the same form.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

/// Packets dropped for one reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DropCounterReport {
    /// The reason.
    pub reason: PacketReason,
    /// Packets and bytes.
    #[serde(flatten)]
    pub count: PacketCount,
}

/// One stage of the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BootstrapStage {
    /// Name of the stage.
    pub name: String,
    /// Duration in milliseconds.
    pub millis: f64,
}

/// An object whose last valid version stays in force because its present text is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RetainedObjectReport {
    /// The object.
    pub object: String,
    /// When the version in force was read, RFC 3339; absent if there is no valid version and the pods that
    /// the object selects are isolated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Hash of the version in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// An address that several live objects claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AddressConflictReport {
    /// The address.
    pub address: String,
    /// The object that owns it.
    pub owner: String,
    /// The other claimants.
    pub others: Vec<String>,
}

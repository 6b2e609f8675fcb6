//! Every type of JSON output: of the agent's socket (HTTP over a unix socket, paths under `/v1`), and of the
//! commands with `-o json`.
//!
//! Every output carries `apiVersion`. The types are only extended: an existing field keeps its name and
//! meaning. Keys are camelCase; values of enumerations are spelled as in Kubernetes' API. This crate does no I/O.

mod bpf;
mod budget;
mod cleanup;
mod cni;
mod config;
mod connections;
mod convert;
mod dry_run;
mod endpoint;
mod error;
mod explain;
mod health;
mod identity;
mod installation;
mod ipam;
mod lint;
mod lockout;
mod monitor;
mod names;
mod node_policy_status;
mod object;
mod policy;
mod policy_status;
mod preview;
mod push;
mod recorded_flow;
#[cfg(feature = "schema")]
mod schema;
mod status;
mod validation;
mod workload;

pub use bpf::{
    BpfAddress, BpfAllowance, BpfCheckReport, BpfCounter, BpfDelivery, BpfDifference, BpfEndpoint,
    BpfEndpointList, BpfFlow, BpfFlowList, BpfFlowQuery, BpfFlowState, BpfJudgement, BpfPair,
    BpfPart, BpfPolicyList, BpfPolicyQuery, BpfUplink,
};
pub use budget::{BudgetExcess, BudgetFallback, ElementBudgetReport, RuleCostReport};
pub use cleanup::{CleanupItem, CleanupKind, CleanupReport};
pub use cni::deletion_queue as cni_queue;
pub use cni::{
    CniAddRequest, CniAddResponse, CniAddress, CniAttachment, CniCheckRequest, CniGcRequest,
    CniPrevResult, CniResponse, CniRoute,
};
pub use config::{ConfigFileReport, ConfigReport, ParameterOrigin, ParameterReport};
pub use connections::{
    AllTraffic, ConnectionEndReport, ConnectionList, ConnectionReport, DiffReport,
    ForwardedConnectionReport, HostConnectionReport, NameAddressesReport, NumberRangeList,
    ProtocolTraffic, RecordedUse, TrafficReport, WorkloadRef,
};
pub use convert::{ConvertReport, InexpressibleReport};
pub use dry_run::{DryRunPlan, DryRunReport, SubsystemPlan};
pub use endpoint::{
    AppliedPolicyReport, EndpointDetail, EndpointList, EndpointState, EndpointSummary,
};
pub use error::{ApiError, ErrorCode};
pub use explain::{
    DecisionReport, DenialAnswer, DirectionReport, ExplainQuery, Explanation, FlowEndReport,
    FlowReport, HostReport, HostStage, NearestMiss, OriginalDestination, RuleRef, StepReport,
    VerdictWord,
};
pub use health::ProbeResult;
pub use identity::{IdentityList, IdentityReport};
pub use installation::{
    CniInstallOutcome, CniInstallReport, LeftoverItem, LeftoverKind, UninstallReport,
};
pub use ipam::{
    AddressReport, IpamCheckReport, IpamFinding, IpamFindingKind, IpamReport, PoolReport,
};
pub use lint::{LintCode, LintFinding, LintReport, MAX_RELATED_RULES};
pub use lockout::{HostAccess, LockoutReport};
pub use monitor::{
    ControllerRef, FlowDecision, FlowIcmp, FlowRecord, FlowState, FlowTraffic, FlowTranslation,
    LossCause, LostEvents, MonitorEndpoint, MonitorLine, MonitorQuery, MonitorRule, MonitorVerdict,
    PacketAudit, PacketEvent, PacketReason, ServiceRef,
};
pub use names::{
    NameAddressReport, NameDetail, NameList, NameReport, NameRuleReport, NamesStatus,
    UntrustedServerReport,
};
pub use node_policy_status::{
    EnforcedInstead, NodeCondition, NodePolicyReport, NotEnforcedObject, PartlyClosedPolicy,
    StaleSource,
};
pub use object::{IpFamily, ObjectRef, ProtocolName};
pub use policy::{
    CountedAction, ManifestQuery, ManifestReport, PacketCount, PolicyDetail, PolicyList,
    PolicyModeName, PolicySummary, RuleCounterReport, RuleExcerpt,
};
pub use policy_status::{ClosedCause, ClosedPartReport, PolicyFinding, PolicyState, PolicyStatus};
pub use preview::{
    DenyingEnd, EndName, FlowSummary, PageReport, PairShare, PreviewReport, PreviewRequest,
    PreviewedFlow, RecordSummary, RefusedWorkload, SuggestionReport, UnjudgedFlow,
    WidenedConnection,
};
pub use push::PushReport;
pub use recorded_flow::{
    RecordedDecision, RecordedEnd, RecordedFlow, RecordedFlowList, RecordedFlowQuery,
};
pub use status::{
    AddressConflictReport, AuditSummary, BootstrapStage, DataplaneStatus, DriverConditionReport,
    DropCounterReport, FastPathFiguresReport, FastPathReport, FlushReport, FollowedSource, Health,
    HostEndpointReport, MissingFeatureReport, NodeRoutesStatus, NodeStatus, PolicyStateCount,
    ProblemReport, ProblemSeverity, RepairReport, RetainedObjectReport, SourceStatus,
    StalenessReport, Status, TierReport,
};
pub use validation::{CompletionScript, ValidationReport};
pub use workload::{
    WorkloadAddRequest, WorkloadAddResponse, WorkloadRemoveRequest, WorkloadRemoveResponse,
};

/// The `apiVersion` of every response.
pub const API_VERSION: &str = "palisade.io/v1";

/// Paths of the agent's API.
pub mod path {
    /// `GET`: [`crate::Status`].
    pub const STATUS: &str = "/v1/status";
    /// `GET`: [`crate::EndpointList`].
    pub const ENDPOINTS: &str = "/v1/endpoints";
    /// `GET`: [`crate::EndpointDetail`]; append `/{namespace}/{name}`.
    pub const ENDPOINT: &str = "/v1/endpoints/{namespace}/{name}";
    /// `GET`: [`crate::IdentityList`].
    pub const IDENTITIES: &str = "/v1/identities";
    /// `GET`: [`crate::PolicyList`].
    pub const POLICIES: &str = "/v1/policies";
    /// `GET`: [`crate::PolicyDetail`]; append `/{namespace}/{name}`, or `/{kind}/{name}` if it is cluster-wide.
    pub const POLICY: &str = "/v1/policies/{namespace}/{name}";
    /// `GET`: [`crate::PolicyDetail`] of a policy of this kind.
    pub const POLICY_OF_KIND: &str = "/v1/policies/{kind}/{namespace}/{name}";
    /// `GET`: [`crate::PolicyDetail`] of the only policy of this name.
    pub const POLICY_BY_NAME: &str = "/v1/policies/{name}";
    /// `GET`: [`crate::ManifestReport`]; query parameters as [`crate::ManifestQuery`].
    pub const MANIFEST: &str = "/v1/manifest";
    /// `GET`: an explanation; query parameters as the command's flags.
    pub const EXPLAIN: &str = "/v1/explain";
    /// `GET`: a stream of [`crate::MonitorLine`], one a line; query parameters as
    /// [`crate::MonitorQuery`].
    pub const MONITOR: &str = "/v1/monitor";
    /// `GET`: [`crate::RecordedFlowList`]; query parameters as [`crate::RecordedFlowQuery`].
    pub const FLOWS: &str = "/v1/flows";
    /// `POST`: [`crate::PreviewRequest`] in, [`crate::PreviewReport`] out.
    pub const PREVIEW: &str = "/v1/preview";
    /// `POST`: [`crate::WorkloadAddRequest`] in, [`crate::WorkloadAddResponse`] out; `DELETE`:
    /// [`crate::WorkloadRemoveRequest`] in, [`crate::WorkloadRemoveResponse`] out.
    pub const WORKLOADS: &str = "/v1/workloads";
    /// `POST`: [`crate::CniAddRequest`] in, [`crate::CniAddResponse`] out; `DELETE`: [`crate::CniAttachment`]
    /// in, [`crate::CniResponse`] out.
    pub const CNI: &str = "/v1/cni";
    /// `POST`: [`crate::CniCheckRequest`] in, [`crate::CniResponse`] out.
    pub const CNI_CHECK: &str = "/v1/cni/check";
    /// `POST`: [`crate::CniGcRequest`] in, [`crate::CniResponse`] out.
    pub const CNI_GC: &str = "/v1/cni/gc";
    /// `GET`: [`crate::IpamReport`].
    pub const IPAM: &str = "/v1/ipam";
    /// `GET`: [`crate::IpamCheckReport`].
    pub const IPAM_CHECK: &str = "/v1/ipam/check";
    /// `GET`: [`crate::NameList`].
    pub const NAMES: &str = "/v1/names";
    /// `GET`: [`crate::NameDetail`].
    pub const NAME_DETAIL: &str = "/v1/names/{name}";
    /// `GET`: [`crate::BpfEndpointList`].
    pub const BPF_ENDPOINTS: &str = "/v1/bpf/endpoints";
    /// `GET`: [`crate::BpfFlowList`]; query parameters as [`crate::BpfFlowQuery`].
    pub const BPF_FLOWS: &str = "/v1/bpf/flows";
    /// `GET`: [`crate::BpfPolicyList`]; query parameters as [`crate::BpfPolicyQuery`].
    pub const BPF_POLICY: &str = "/v1/bpf/policy";
    /// `GET`: [`crate::BpfCheckReport`].
    pub const BPF_CHECK: &str = "/v1/bpf/check";
    /// `GET`: [`crate::ConfigReport`].
    pub const CONFIG: &str = "/v1/config";
    /// `GET`: metrics in the Prometheus text format.
    pub const METRICS: &str = "/metrics";
    /// `GET`: [`crate::ProbeResult`]: whether the agent's core responds.
    pub const HEALTHZ: &str = "/healthz";
    /// `GET`: [`crate::ProbeResult`]: whether the kernel enforces the state of the source; 503 if not.
    pub const READYZ: &str = "/readyz";
    /// `GET`: the OpenAPI document of this API.
    pub const OPENAPI: &str = "/v1/openapi.json";
}

/// The value of `apiVersion`, for `#[serde(default)]` and constructors.
pub const fn api_version() -> palisade_model::Str {
    palisade_model::Str::new_static(API_VERSION)
}

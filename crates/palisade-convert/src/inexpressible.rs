//! Why a policy cannot be written in a dialect.
//!
//! Promises: each reason is one sentence that can stand alone after the path of a rule. Never: says where.

use crate::target::TargetDialect;
use palisade_model::{Action, Direction, ObjectId, Prefix, Protocol, SourceLine, Str};

/// A part of a policy that cannot be written, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Inexpressible {
    /// The policy.
    pub policy: ObjectId,
    /// The path of the rule, or of a part of it (`ingress[1].from[0]`); `None` if it is about the whole policy.
    pub rule: Option<String>,
    /// The reason.
    pub reason: InexpressibleReason,
    /// File and line of the rule, or of the policy, where known.
    pub line: Option<SourceLine>,
}

/// Why something cannot be written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
#[allow(
    missing_docs,
    reason = "the messages say what each is; the fields are what they name"
)]
pub enum InexpressibleReason {
    #[error("the policy has errors, so what it says is not known")]
    Invalid,
    #[error("the policy is defined more than once, so which definition counts is not known")]
    DefinedTwice,
    #[error("a part of the policy is held closed, because it is not served or not understood")]
    HeldClosed,
    #[error("it enforces nothing here, so there is nothing to write")]
    NothingEnforced,
    #[error("the input already has {0}, and two policies of one name cannot both be applied")]
    NameTaken(ObjectId),
    #[error(
        "{0} has the same priority, and which of the two comes first is decided by their kinds and names"
    )]
    SharedPriority(ObjectId),
    #[error("{target} cannot stand in the tier {tier}")]
    Tier { target: TargetDialect, tier: Str },
    #[error("{target} cannot stand {order} of its tier: it stands at order 1000")]
    Order { target: TargetDialect, order: Str },
    #[error("the priority of {target} is a whole number from 0 to 1000: this one stands {order}")]
    Priority { target: TargetDialect, order: Str },
    #[error("{target} has no rules that {action}")]
    Action {
        target: TargetDialect,
        action: Action,
    },
    #[error("what {target} denies comes before all others, but this rule stands {order}")]
    DenialPlace { target: TargetDialect, order: Str },
    #[error(
        "{target} isolates the pods that it selects, but this policy leaves {direction} open by default"
    )]
    AlwaysIsolates {
        target: TargetDialect,
        direction: Direction,
    },
    #[error(
        "{target} does not isolate the pods that it selects, but this policy denies {direction} by default"
    )]
    NeverIsolates {
        target: TargetDialect,
        direction: Direction,
    },
    #[error("{0} has no policies for untracked traffic, nor for traffic before destination NAT")]
    EarlyTraffic(TargetDialect),
    #[error("it selects pods of more than one namespace, but a NetworkPolicy is of one")]
    SeveralNamespaces,
    #[error("the subject selects no pod")]
    SubjectSelectsNothing,
    #[error("{0} cannot select by service account")]
    ServiceAccount(TargetDialect),
    #[error("label selectors of {target} cannot say `{test}`")]
    SelectorTest { target: TargetDialect, test: String },
    #[error(
        "{0} cannot test what runs a workload: of `projectcalico.org/orchestrator` only `has(…)` can be said"
    )]
    Orchestrator(TargetDialect),
    #[error("Kubernetes has no label with the key or value `{0}`")]
    NoLabel(Str),
    #[error("{target} has no port with the name {name}")]
    NoPortName { target: TargetDialect, name: Str },
    #[error("the label key {0} has another meaning in the target dialect")]
    ReservedKey(Str),
    #[error(
        "the label key {0} is too long behind the prefix that Cilium gives labels of namespaces"
    )]
    LongKey(Str),
    #[error("it selects more than pods: {0}")]
    NotOnlyPods(String),
    #[error("networks of Cilium never match pods or nodes, but {0} matches them too")]
    NetworkMatchesPods(Prefix),
    #[error("it matches the outside of the cluster only, and {0} cannot leave out what is inside")]
    OutsideOnly(TargetDialect),
    #[error("{0} cannot select nodes here")]
    Nodes(TargetDialect),
    #[error("it selects nodes with the label {0} as well; one of pods only has the source `k8s`")]
    NodesToo(Str),
    #[error("{0} cannot select the endpoints of Services here")]
    Services(TargetDialect),
    #[error("{0} cannot select groups of networks by their labels or names")]
    NetworkGroups(TargetDialect),
    #[error(
        "a selector of Calico selects host endpoints and network sets too, and {0} cannot: one of pods only tests what only workloads have, as `has(projectcalico.org/orchestrator)`"
    )]
    HoldersToo(TargetDialect),
    #[error("{0} cannot leave out what a selector selects (`notSelector`)")]
    NotSelector(TargetDialect),
    #[error("{0} cannot select by labels and networks at once")]
    SelectorAndNetworks(TargetDialect),
    #[error(
        "{0} can only leave networks out of a network: write `nets` (`0.0.0.0/0` or `::/0`) beside `notNets`"
    )]
    OnlyLeftOut(TargetDialect),
    #[error("{0} cannot select by domain name here")]
    Names(TargetDialect),
    #[error(
        "{target} cannot say the names `{pattern}`: only a name, and one with `*.` in front for all below it"
    )]
    NamePattern {
        target: TargetDialect,
        pattern: String,
    },
    #[error(
        "in Cilium the addresses of names are those of answers to queries that a rule with `dns` allows, and in other dialects of all answers: the same names would have other addresses"
    )]
    NamesLearntElsewhere,
    #[error("{0} has no rules of DNS names")]
    DnsNames(TargetDialect),
    #[error("{target} has no peer that is `{peer}`")]
    Peer { target: TargetDialect, peer: String },
    #[error("an ingress rule of a ClusterNetworkPolicy has pods as peers only")]
    IngressPodsOnly,
    #[error("a ClusterNetworkPolicy has no peer that matches every address")]
    NoPeerForAll,
    #[error("networks of a ClusterNetworkPolicy have no exceptions")]
    NoExceptions,
    #[error("the exception {0} is not strictly inside the network")]
    ExceptionOutside(Prefix),
    #[error("{0} has no test of the pod's own address")]
    OwnAddress(TargetDialect),
    #[error("{0} has no test of source ports")]
    SourcePorts(TargetDialect),
    #[error("{0} has no negated tests of ports, protocols or messages")]
    Negation(TargetDialect),
    #[error("{0} has no test of the IP version alone")]
    IpVersion(TargetDialect),
    #[error("{0} cannot name messages of ICMP")]
    Icmp(TargetDialect),
    #[error("Cilium cannot name the code of a message of ICMP")]
    IcmpCode,
    #[error("{target} cannot name the protocol {protocol}")]
    Protocol {
        target: TargetDialect,
        protocol: Protocol,
    },
    #[error("{target} cannot say all of {protocol}: it needs a port")]
    ProtocolWithoutPort {
        target: TargetDialect,
        protocol: Protocol,
    },
    #[error("{0} needs a protocol beside a port")]
    PortWithoutProtocol(TargetDialect),
    #[error("{0} cannot say port 0")]
    PortZero(TargetDialect),
    #[error("{0} has port names for all protocols together only")]
    NamedPortProtocol(TargetDialect),
    #[error("networks and nodes have no named ports in a ClusterNetworkPolicy")]
    NamedPortPeer,
    #[error("there are {count} {what}; {target} has at most {most}")]
    TooMany {
        target: TargetDialect,
        what: &'static str,
        count: usize,
        most: usize,
    },
    #[error("the text {0} cannot be quoted in a selector of Calico")]
    Unquotable(Str),
    #[error("internal check failed: what was written does not mean the same ({0})")]
    CheckFailed(String),
}

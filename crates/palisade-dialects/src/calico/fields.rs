//! The fields of Calico's policies.

use super::GROUP;
use crate::closed_part::ClosedReason;
use crate::fields::common::{CLUSTER_METADATA, METADATA, STAGED_CLUSTER_METADATA, STAGED_METADATA};
use crate::fields::{ANY_OTHER, FieldRow, PolicyKind};
use crate::kubernetes::fields as kubernetes_fields;

/// The kinds of policies of this dialect.
pub(crate) const POLICY_KINDS: &[PolicyKind] = &[
    PolicyKind {
        group: GROUP,
        version: "v3",
        kind: "NetworkPolicy",
        plural: "networkpolicies",
        short_names: &["caliconetworkpolicy", "caliconetworkpolicies"],
        is_namespaced: true,
        fields: NAMESPACED,
        notes: &[
            SAME_OBJECTS,
            "Tiers are evaluated by `order`, then name; policies of a tier by `order`, then name, then namespace; a \
             missing `order` is after every number. A tier counts for an endpoint and a direction as soon as a policy \
             of it selects the endpoint and governs the direction: what no rule of it decides gets its \
             `defaultAction`. In the tier `default`, what Cilium's policies deny comes first; NetworkPolicies of \
             Kubernetes and what Cilium's allow stand together at order 1000, after Calico's of that very order. \
             After the last tier come the profiles; pods have one that allows everything.",
            HAIRPIN,
            "A selector matches labels of the object; `projectcalico.org/namespace`, \
             `projectcalico.org/serviceaccount` and `projectcalico.org/orchestrator`; with the prefix `pcns.` those of \
             its namespace, with `pcsa.` those of its service account. Of peers it selects workloads, host endpoints \
             (by `expectedIPs`) and Calico's network sets, and nothing that has none of these; `notSelector` alone \
             also matches what is nowhere known.",
            "Tier (an error if it would change `default`, `kube-admin` or `kube-baseline`), Profile, NetworkSet, \
             GlobalNetworkSet, WorkloadEndpoint and HostEndpoint are read too. A WorkloadEndpoint is always in its \
             own namespace, with or without the profile `kns.`; one that no profile allows is denied. Policies match it \
             as a peer; they are enforced at the workloads that Palisade attaches. Profiles named \
             `kns.…` and `ksa.…` follow from Namespaces and ServiceAccounts: objects of these names have no effect.",
            "A HostEndpoint of this node with an `interfaceName` is enforced, by policies of the cluster: packets to and \
             from the host by tiers, then its profiles, and what none of them allows is denied, except to failsafe \
             ports; forwarded packets by policies with `applyOnForward` only, and allowed if none selects it. One that \
             names the interface counts before `*`, and the first by name of several; `lo` has none. One with \
             `expectedIPs` only governs the interface that has the first of these addresses that any interface has, \
             unless another names it. Palisade isolates no HostEndpoint for a policy that was \
             never valid.",
            "Of a resource of `crd.projectcalico.org`, the labels and annotations that Calico's clients store as JSON \
             in the annotation `projectcalico.org/metadata` are those of the object; one that cannot be read refuses \
             it.",
        ],
    },
    PolicyKind {
        group: GROUP,
        version: "v3",
        kind: "GlobalNetworkPolicy",
        plural: "globalnetworkpolicies",
        short_names: &["gnp"],
        is_namespaced: false,
        fields: GLOBAL,
        notes: &[
            SAME_OBJECTS,
            "It selects workloads of every namespace, and host endpoints unless it has a `namespaceSelector` or a \
             `serviceAccountSelector`. In the `namespaceSelector` of a rule, `all()` is every namespace \
             and `global()` what is in none; a negative test holds for the latter as well.",
            HAIRPIN,
        ],
    },
    PolicyKind {
        group: GROUP,
        version: "v3",
        kind: "StagedNetworkPolicy",
        plural: "stagednetworkpolicies",
        short_names: &[],
        is_namespaced: true,
        fields: STAGED_NAMESPACED,
        notes: &[SAME_OBJECTS, STAGED],
    },
    PolicyKind {
        group: GROUP,
        version: "v3",
        kind: "StagedGlobalNetworkPolicy",
        plural: "stagedglobalnetworkpolicies",
        short_names: &[],
        is_namespaced: false,
        fields: STAGED_GLOBAL,
        notes: &[SAME_OBJECTS, STAGED],
    },
    PolicyKind {
        group: GROUP,
        version: "v3",
        kind: "StagedKubernetesNetworkPolicy",
        plural: "stagedkubernetesnetworkpolicies",
        short_names: &[],
        is_namespaced: true,
        fields: STAGED_KUBERNETES,
        notes: &[
            SAME_OBJECTS,
            STAGED,
            "Its spec is that of a NetworkPolicy of Kubernetes, with `stagedAction`.",
        ],
    },
];

const HAIRPIN: &str = "What a workload sends to itself through a Service is not judged, unless the agent has \
                       `--hairpin judge`. In Calico these policies judge it together with NetworkPolicies, which by \
                       their own standard do not; alone they would deny what NetworkPolicies of the tier `default` \
                       allow.";

const SAME_OBJECTS: &str =
    "The objects of `crd.projectcalico.org/v1` are the same; one that is in both is one object.";
const STAGED: &str = "It is in audit: nothing of it is enforced, and what it would decide is counted and shown as for every policy in \
     audit. Beside an enforced policy of its name it stands after that one.";

const API_VERSION: FieldRow = FieldRow::enforced(
    "apiVersion",
    "`projectcalico.org/v3` or `crd.projectcalico.org/v1`",
);
const KIND: FieldRow = FieldRow::enforced("kind", "");
const STATUS: FieldRow = FieldRow::no_effect("status", "");

const NAMESPACED: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(METADATA),
    FieldRow::enforced("spec", "required").with(&[
        TIER, ORDER, SELECTOR, ACCOUNTS, TYPES, INGRESS, EGRESS, HINTS,
    ]),
    STATUS,
];

const STAGED_NAMESPACED: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(STAGED_METADATA),
    FieldRow::enforced("spec", "required").with(&[
        STAGED_ACTION,
        TIER,
        ORDER,
        SELECTOR,
        ACCOUNTS,
        TYPES,
        INGRESS,
        EGRESS,
        HINTS,
    ]),
    STATUS,
];

const GLOBAL: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(CLUSTER_METADATA),
    FieldRow::enforced("spec", "required").with(&[
        TIER, ORDER, SELECTOR, NAMESPACES, ACCOUNTS, TYPES, INGRESS, EGRESS, UNTRACKED, BEFORE_NAT,
        ON_FORWARD, HINTS,
    ]),
    STATUS,
];

const STAGED_GLOBAL: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(STAGED_CLUSTER_METADATA),
    FieldRow::enforced("spec", "required").with(&[
        STAGED_ACTION,
        TIER,
        ORDER,
        SELECTOR,
        NAMESPACES,
        ACCOUNTS,
        TYPES,
        INGRESS,
        EGRESS,
        UNTRACKED,
        BEFORE_NAT,
        ON_FORWARD,
        HINTS,
    ]),
    STATUS,
];

const STAGED_KUBERNETES: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(STAGED_METADATA),
    FieldRow::enforced("spec", "required").with(&[
        STAGED_ACTION,
        kubernetes_fields::POD_SELECTOR,
        kubernetes_fields::POLICY_TYPES,
        kubernetes_fields::INGRESS,
        kubernetes_fields::EGRESS,
    ]),
    STATUS,
];

const STAGED_ACTION: FieldRow = FieldRow::enforced(
    "stagedAction",
    "`Set` (the default); with `Delete`, `Learn` and `Ignore` the policy has no effect, with a warning",
);
const TIER: FieldRow = FieldRow::enforced(
    "tier",
    "`default` if it is missing; a tier that is not there is after all others, with the default action Deny",
);
const ORDER: FieldRow = FieldRow::enforced("order", "a number; missing: last");
const SELECTOR: FieldRow =
    FieldRow::enforced("selector", "the workloads; empty or missing: all of them");
const NAMESPACES: FieldRow = FieldRow::enforced(
    "namespaceSelector",
    "only workloads in these namespaces; empty or missing: of every namespace; never `global()`",
);
const ACCOUNTS: FieldRow = FieldRow::enforced(
    "serviceAccountSelector",
    "only workloads that run under these service accounts",
);
const TYPES: FieldRow = FieldRow::enforced(
    "types[]",
    "`Ingress`, `Egress`; missing: Ingress unless there are only egress rules, and Egress if there are egress rules",
);
const UNTRACKED: FieldRow = FieldRow::enforced(
    "doNotTrack",
    "`true`: the policy judges packets of host endpoints before connection tracking, and no workload; what it allows \
     is not tracked, and its answers need a rule of their own; what it does not decide goes on. Needs \
     `applyOnForward`",
);
const BEFORE_NAT: FieldRow = FieldRow::enforced(
    "preDNAT",
    "`true`: the policy judges what arrives at host endpoints by its destination before NAT, and no workload; what it \
     does not decide goes on. Ingress only; needs `applyOnForward`",
);
const ON_FORWARD: FieldRow = FieldRow::enforced(
    "applyOnForward",
    "`true`: it judges what a host endpoint forwards, too; workloads are judged all the same",
);
const HINTS: FieldRow = FieldRow::no_effect("performanceHints[]", "");

const INGRESS: FieldRow = FieldRow::enforced("ingress[]", "in order, at most 1024").with(&rule(
    SOURCE_OF_INGRESS,
    END,
    HTTP,
));
const EGRESS: FieldRow = FieldRow::enforced("egress[]", "in order, at most 1024").with(&rule(
    END,
    DESTINATION_OF_EGRESS,
    NO_HTTP,
));

/// The fields of a rule with these of its ends.
const fn rule(
    source: &'static [FieldRow],
    destination: &'static [FieldRow],
    http: FieldRow,
) -> [FieldRow; 11] {
    [
        FieldRow::enforced(
            "action",
            "required: `Allow`, `Deny`, `Pass` (on to the next tier; in a profile it denies), `Log` (and go on)",
        ),
        FieldRow::enforced("ipVersion", "4 or 6"),
        FieldRow::enforced(
            "protocol",
            "`TCP`, `UDP`, `SCTP`, `ICMP`, `ICMPv6`, `UDPLite`, or 1 to 255",
        ),
        FieldRow::enforced("notProtocol", "the same"),
        FieldRow::enforced("icmp", "needs `protocol` ICMP or ICMPv6").with(MESSAGE),
        FieldRow::enforced("notICMP", "needs `protocol` ICMP or ICMPv6").with(MESSAGE),
        FieldRow::enforced("source", "").with(source),
        FieldRow::enforced("destination", "").with(destination),
        http,
        FieldRow::no_effect("metadata", "").with(RULE_METADATA),
        FieldRow::closed(
            ANY_OTHER,
            ClosedReason::UnknownField,
            "a field that is not known, here or further inside the rule: one that allows or logs matches nothing, \
             any other denies everything",
        ),
    ]
}

const HTTP: FieldRow = FieldRow::closed(
    "http",
    ClosedReason::NotServed,
    "only with `Allow`, and with TCP or no `protocol`: the rule allows nothing",
)
.with(&[
    FieldRow::closed("methods[]", ClosedReason::NotServed, ""),
    FieldRow::closed("paths[]", ClosedReason::NotServed, "").with(&[
        FieldRow::closed("exact", ClosedReason::NotServed, "not beside `prefix`"),
        FieldRow::closed("prefix", ClosedReason::NotServed, "not beside `exact`"),
    ]),
]);
const NO_HTTP: FieldRow = FieldRow::refused("http", "only in ingress rules");

const RULE_METADATA: &[FieldRow] = &[FieldRow::no_effect("annotations", "")];

const PEER_ACCOUNTS: &[FieldRow] = &[
    FieldRow::enforced("names[]", "one of these"),
    FieldRow::enforced("selector", "beside `names`: both"),
];

const MESSAGE: &[FieldRow] = &[
    FieldRow::enforced("type", "0 to 254"),
    FieldRow::enforced("code", "0 to 255; only with `type`"),
];

const SERVICES_AS_OWN: FieldRow = FieldRow::refused("services", "not of the rule's own end");

const DOMAINS: FieldRow = FieldRow::enforced(
    "domains[]",
    "of Calico Enterprise, in rules that allow: the addresses that answers gave for the names; `*.` in front is one label \
     or several; nothing inside of the cluster. With another action, beside selectors, networks and services, in a \
     profile, and with `*` elsewhere the rule fails closed",
);
const NO_DOMAINS: FieldRow = FieldRow::closed(
    "domains[]",
    ClosedReason::NamesNotServed,
    "only of `destination` in egress rules: the rule fails closed",
);

const END: &[FieldRow] = &end(SERVICES_AS_OWN, NO_DOMAINS);
const SOURCE_OF_INGRESS: &[FieldRow] = &end(SERVICES, NO_DOMAINS);
const DESTINATION_OF_EGRESS: &[FieldRow] = &end(SERVICES, DOMAINS);

const SERVICES: FieldRow = FieldRow::enforced(
    "services",
    "the endpoints in the EndpointSlices of a Service, ready or not; of `destination` with the ports that \
     they have there, and no other; stands alone",
)
.with(&[
    FieldRow::enforced("name", "required"),
    FieldRow::enforced("namespace", "that of the policy if it is missing; required in a policy of the cluster"),
]);

/// The fields of an end of a rule.
const fn end(services: FieldRow, domains: FieldRow) -> [FieldRow; 10] {
    [
        FieldRow::enforced(
            "nets[]",
            "at most 256; a rule with networks of one family matches no packet of the other",
        ),
        FieldRow::enforced(
            "notNets[]",
            "at most 256; a rule with excluded networks of one family matches no packet of the other",
        ),
        FieldRow::enforced(
            "selector",
            "without `namespaceSelector`: of the namespace of the policy, if it has one",
        ),
        FieldRow::enforced(
            "notSelector",
            "in a policy of a namespace, without `namespaceSelector`: the other endpoints of the namespace",
        ),
        FieldRow::enforced("namespaceSelector", "`global()`: what is in no namespace"),
        FieldRow::enforced("serviceAccounts", "").with(PEER_ACCOUNTS),
        FieldRow::enforced(
            "ports[]",
            "at most 50: numbers, ranges `first:last`, names; numbers and ranges need a `protocol` with ports",
        ),
        FieldRow::enforced(
            "notPorts[]",
            "the same; of names alone without a `protocol`, also what has no ports",
        ),
        services,
        domains,
    ]
}

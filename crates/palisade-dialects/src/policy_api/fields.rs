//! The fields of ClusterNetworkPolicy, AdminNetworkPolicy and BaselineAdminNetworkPolicy.

use super::GROUP;
use crate::closed_part::ClosedReason;
use crate::fields::common::{CLUSTER_METADATA, LABEL_SELECTOR};
use crate::fields::{ANY_OTHER, FieldRow, PolicyKind};

/// The kinds of this dialect.
pub(crate) const POLICY_KINDS: &[PolicyKind] = &[
    PolicyKind {
        group: GROUP,
        version: "v1alpha2",
        kind: "ClusterNetworkPolicy",
        plural: "clusternetworkpolicies",
        short_names: &[],
        is_namespaced: false,
        fields: CLUSTER,
        notes: &[
            ORDER,
            HAIRPIN,
            "`cnp` is Cilium's short name of CiliumNetworkPolicy; this kind has none.",
        ],
    },
    PolicyKind {
        group: GROUP,
        version: "v1alpha1",
        kind: "AdminNetworkPolicy",
        plural: "adminnetworkpolicies",
        short_names: &["anp"],
        is_namespaced: false,
        fields: ADMIN,
        notes: &[ORDER, HAIRPIN],
    },
    PolicyKind {
        group: GROUP,
        version: "v1alpha1",
        kind: "BaselineAdminNetworkPolicy",
        plural: "baselineadminnetworkpolicies",
        short_names: &["banp"],
        is_namespaced: false,
        fields: BASELINE_ADMIN,
        notes: &[
            "It comes after every other policy, and there is one, named `default`.",
            HAIRPIN,
        ],
    },
];

const ORDER: &str = "Of several policies of a tier, the lowest `priority` decides first. The API leaves open which \
                     of two with an equal priority that is; here ClusterNetworkPolicy comes before \
                     AdminNetworkPolicy, then the name decides, and a warning says so.";

const HAIRPIN: &str = "What a pod sends to itself through a Service is subject to it, in both directions (the API's \
                       overview, June 2026); its own address is not. What no rule of the tier Admin decides goes on to \
                       the tier Baseline, whatever NetworkPolicies select the pod, since these do not judge it. The \
                       API does not say so of its older kinds, which are the same tiers. `--hairpin allow` opens it \
                       for every kind.";

const API_VERSION_1: FieldRow =
    FieldRow::enforced("apiVersion", "`policy.networking.k8s.io/v1alpha1`");
const KIND: FieldRow = FieldRow::enforced("kind", "");
const METADATA: FieldRow = FieldRow::enforced("metadata", "").with(CLUSTER_METADATA);
const STATUS: FieldRow = FieldRow::no_effect("status", "the agents write the condition `Accepted`");
const PRIORITY: FieldRow = FieldRow::enforced("priority", "required: 0 to 1000, the lowest first");
const SUBJECT: FieldRow = FieldRow::enforced(
    "subject",
    "required: exactly one field; never a host-network pod",
)
.with(SUBJECT_FIELDS);

const CLUSTER: &[FieldRow] = &[
    FieldRow::enforced("apiVersion", "`policy.networking.k8s.io/v1alpha2`"),
    KIND,
    METADATA,
    FieldRow::enforced("spec", "required").with(&[
        FieldRow::enforced("tier", "required: `Admin` or `Baseline`"),
        PRIORITY,
        FieldRow::enforced(
            "subject",
            "required: exactly one field; never a host-network pod",
        )
        .with(&[NAMESPACES, CLUSTER_PODS]),
        FieldRow::enforced("ingress[]", "at most 25").with(&[
            NAME,
            CLUSTER_ACTION,
            FieldRow::enforced("from[]", "required: 1 to 25").with(&[
                NAMESPACES,
                CLUSTER_PODS,
                OTHER_PEER,
            ]),
            PROTOCOLS,
            OTHER_FIELD,
        ]),
        FieldRow::enforced("egress[]", "at most 25").with(&[
            NAME,
            CLUSTER_ACTION,
            FieldRow::enforced("to[]", "required: 1 to 25").with(&[
                NAMESPACES,
                CLUSTER_PODS,
                NODES,
                NETWORKS,
                DOMAIN_NAMES,
                OTHER_PEER,
            ]),
            PROTOCOLS,
            OTHER_FIELD,
        ]),
    ]),
    STATUS,
];

const ADMIN: &[FieldRow] = &[
    API_VERSION_1,
    KIND,
    METADATA,
    FieldRow::enforced("spec", "required").with(&[
        PRIORITY,
        SUBJECT,
        FieldRow::enforced("ingress[]", "at most 100").with(&[
            NAME,
            ADMIN_ACTION,
            FROM,
            PORTS,
            OTHER_FIELD,
        ]),
        FieldRow::enforced("egress[]", "at most 100").with(&[
            NAME,
            ADMIN_ACTION,
            FieldRow::enforced("to[]", "required: 1 to 100").with(&[
                NAMESPACES,
                PODS,
                NODES,
                NETWORKS,
                DOMAIN_NAMES,
                OTHER_PEER,
            ]),
            PORTS,
            OTHER_FIELD,
        ]),
    ]),
    STATUS,
];

const BASELINE_ADMIN: &[FieldRow] = &[
    API_VERSION_1,
    KIND,
    METADATA,
    FieldRow::enforced("spec", "required").with(&[
        SUBJECT,
        FieldRow::enforced("ingress[]", "at most 100").with(&[
            NAME,
            BASELINE_ACTION,
            FROM,
            PORTS,
            OTHER_FIELD,
        ]),
        FieldRow::enforced("egress[]", "at most 100").with(&[
            NAME,
            BASELINE_ACTION,
            FieldRow::enforced("to[]", "required: 1 to 100")
                .with(&[NAMESPACES, PODS, NODES, NETWORKS, OTHER_PEER]),
            PORTS,
            OTHER_FIELD,
        ]),
    ]),
    STATUS,
];

const NAME: FieldRow = FieldRow::enforced("name", "up to 100 characters; names the rule");
const CLUSTER_ACTION: FieldRow = FieldRow::enforced("action", "required: `Accept`, `Deny`, `Pass`");
const ADMIN_ACTION: FieldRow = FieldRow::enforced("action", "required: `Allow`, `Deny`, `Pass`");
const BASELINE_ACTION: FieldRow = FieldRow::enforced("action", "required: `Allow`, `Deny`");

const FROM: FieldRow =
    FieldRow::enforced("from[]", "required: 1 to 100").with(&[NAMESPACES, PODS, OTHER_PEER]);

const SUBJECT_FIELDS: &[FieldRow] = &[NAMESPACES, PODS];

const NAMESPACES: FieldRow =
    FieldRow::enforced("namespaces", "every pod of these namespaces").with(LABEL_SELECTOR);

const PODS: FieldRow = FieldRow::enforced("pods", "").with(&[
    FieldRow::enforced("namespaceSelector", "required").with(LABEL_SELECTOR),
    FieldRow::enforced("podSelector", "required").with(LABEL_SELECTOR),
]);

const CLUSTER_PODS: FieldRow = FieldRow::enforced("pods", "").with(&[
    FieldRow::enforced("namespaceSelector", "missing: every namespace").with(LABEL_SELECTOR),
    FieldRow::enforced("podSelector", "required").with(LABEL_SELECTOR),
]);

const NODES: FieldRow =
    FieldRow::enforced("nodes", "the addresses of these nodes").with(LABEL_SELECTOR);

const NETWORKS: FieldRow = FieldRow::enforced(
    "networks[]",
    "1 to 25, none twice; match addresses of pods and nodes too",
);

const DOMAIN_NAMES: FieldRow = FieldRow::enforced(
    "domainNames[]",
    "1 to 25, none twice, in rules that allow: the addresses that answers gave for the names; `*.` in front is one label \
     or several; nothing inside of the cluster",
);

const OTHER_PEER: FieldRow = FieldRow::closed(
    ANY_OTHER,
    ClosedReason::UnknownPeer,
    "a peer that is not known, or has no field: a rule that allows matches nothing, any other denies every peer",
);

const OTHER_FIELD: FieldRow = FieldRow::closed(
    ANY_OTHER,
    ClosedReason::UnknownField,
    "a field that is not known, here or further inside the rule: a rule that allows matches nothing, any other \
     denies everything",
);

const NAMED_PORT: &str = "the port of that name of each destination, of whatever protocol; not beside `networks`, \
                          `nodes` or `domainNames`";

const PORT_NUMBER: &str = "required: 1 to 65535";

const PORTS: FieldRow =
    FieldRow::enforced("ports[]", "1 to 100; missing: everything, ICMP included").with(&[
        FieldRow::enforced("portNumber", "").with(&[
            FieldRow::enforced("protocol", "`TCP` (the default), `UDP`, `SCTP`"),
            FieldRow::enforced("port", PORT_NUMBER),
        ]),
        FieldRow::enforced("portRange", "").with(&[
            FieldRow::enforced("protocol", "`TCP` (the default), `UDP`, `SCTP`"),
            FieldRow::enforced("start", PORT_NUMBER),
            FieldRow::enforced("end", "required: above `start`; equal is a warning"),
        ]),
        FieldRow::enforced("namedPort", NAMED_PORT),
    ]);

const DESTINATION_PORT: &[FieldRow] =
    &[
        FieldRow::enforced("destinationPort", "required: exactly one field").with(&[
            FieldRow::enforced("number", "1 to 65535"),
            FieldRow::enforced("range", "").with(&[
                FieldRow::enforced("start", PORT_NUMBER),
                FieldRow::enforced("end", "required: above `start`"),
            ]),
        ]),
    ];

const PROTOCOLS: FieldRow =
    FieldRow::enforced("protocols[]", "1 to 25; missing: everything, ICMP included").with(&[
        FieldRow::enforced("tcp", "").with(DESTINATION_PORT),
        FieldRow::enforced("udp", "").with(DESTINATION_PORT),
        FieldRow::enforced("sctp", "").with(DESTINATION_PORT),
        FieldRow::enforced("destinationNamedPort", NAMED_PORT),
    ]);

//! The fields of CiliumNetworkPolicy and CiliumClusterwideNetworkPolicy.

use super::GROUP;
use crate::closed_part::ClosedReason;
use crate::fields::common::{CLUSTER_METADATA, LABEL_SELECTOR, METADATA};
use crate::fields::{ANY_OTHER, FieldRow, PolicyKind};

/// The kinds of policies of this dialect.
pub(crate) const POLICY_KINDS: &[PolicyKind] = &[
    PolicyKind {
        group: GROUP,
        version: "v2",
        kind: "CiliumNetworkPolicy",
        plural: "ciliumnetworkpolicies",
        short_names: &["ciliumnp"],
        is_namespaced: true,
        fields: NAMESPACED,
        notes: &[
            "A direction is denied by default for the pods that a spec selects as soon as the spec has rules in it, \
             unless `enableDefaultDeny` says otherwise. A rule that names neither peers nor ports (`{}`) matches nothing: it is \
             how a direction is denied; `fromEntities: [all]` matches everything. A rule that denies comes before every policy of the same tier. \
             An empty list beside a list with rules is a warning and has no effect, as in Cilium; a spec without any \
             rule is an error. Host-network pods are their node.",
            "The keys of selectors may have a source: `k8s:`, `reserved:`, `cidr:`, `cidrgroup:`, `node:`, `any:`; \
             without one, every source is meant. A selector with a label of a source that is not served (`fqdn:`, or \
             the name of a cluster) is held closed; in `endpointSelector` it is an error. The name of a cluster in a rule \
             that denies closes it to pods only, since nothing else is a member of a cluster.",
            "In `endpointSelector` a matchLabel `k8s:io.kubernetes.pod.namespace` stands for the policy's own namespace, \
             as in Cilium; every other test of the namespace is a condition that must hold too.",
            "`host` is the node of the agent (`--node-name`), whatever a Pod's `nodeName` says, and `remote-node` every \
             other node. `fromNodes` and `toNodes` are about other nodes only. Without a name of the own node, rules \
             that allow match no node by these, and rules that deny match every node.",
            "Different from Cilium, each with a warning where a manifest shows it: `enableDefaultDeny` with `true` for a \
             direction without rules denies the direction (Cilium ignores it); the ICMP type 0 is one type (in Cilium \
             every type); the label `reserved:world` is everything outside of the cluster (in a dual-stack Cilium \
             no address has it). Without a warning: an address in networks of several CiliumCIDRGroups has the labels of \
             each (in Cilium of the longest network only, where they have the same key).",
            "The addresses of names are those of the answers to queries that a rule with `rules.dns` allows, as in \
             Cilium: without such a rule no name has any. A name selects no pod, no node and no address in the networks \
             of pods. Rules of DNS stand before all others that allow, so that queries are read where another rule \
             allows them as well. In policies of nodes, and over other protocols than TCP and UDP, nobody reads \
             queries.",
            "`cnp`, the short name that kubectl has, is not taken for this kind by `palisade policy get`: it may be \
             meant for ClusterNetworkPolicy.",
            HAIRPIN,
            "CiliumCIDRGroup (v2 and v2alpha1) is read too, for `cidrGroupRef` and `cidrGroupSelector`: its \
             `metadata.name`, `metadata.labels` and `spec.externalCIDRs` are enforced, and nothing else in it has an \
             effect.",
        ],
    },
    PolicyKind {
        group: GROUP,
        version: "v2",
        kind: "CiliumClusterwideNetworkPolicy",
        plural: "ciliumclusterwidenetworkpolicies",
        short_names: &["ccnp"],
        is_namespaced: false,
        fields: CLUSTER,
        notes: &[
            HAIRPIN,
            "A selector without a namespace selects pods of every namespace, and nothing but pods.",
            "A spec with a `nodeSelector` selects the host with a Node of these labels: what the host itself sends and \
             has, at every interface that is no workload's, never what it forwards. A direction without rules is \
             open, and failsafe ports are. A HostEndpoint of Calico governs its interface as ever, and such specs \
             select it by its node, in the tier `default`. Rules about what is inside connections are an error, but \
             for names of DNS on egress: these are held closed, but with an item `matchPattern: \"*\"`, which allows \
             what the ports carry. A spec that has never been valid closes no node.",
        ],
    },
];

const HAIRPIN: &str = "What a pod sends to itself through a Service is not judged, as in Cilium, unless the agent has \
                       `--hairpin judge`.";

const API_VERSION: FieldRow = FieldRow::enforced("apiVersion", "`cilium.io/v2`");
const KIND: FieldRow = FieldRow::enforced("kind", "");
const SPECS: FieldRow = FieldRow::enforced("specs[]", "each as `spec`, with the same fields");
const STATUS: FieldRow = FieldRow::no_effect("status", "the agents write the condition `Valid`");
const SPEC_NOTE: &str = "required, or `specs`";

const NAMESPACED: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(METADATA),
    FieldRow::enforced("spec", SPEC_NOTE).with(&spec(FieldRow::refused(
        "nodeSelector",
        "only a CiliumClusterwideNetworkPolicy selects nodes",
    ))),
    SPECS,
    STATUS,
];

const CLUSTER: &[FieldRow] = &[
    API_VERSION,
    KIND,
    FieldRow::enforced("metadata", "").with(CLUSTER_METADATA),
    FieldRow::enforced("spec", SPEC_NOTE).with(&spec(
        FieldRow::enforced(
            "nodeSelector",
            "packets to and from the host itself, at every interface of the node that is no workload's; never what it \
             forwards. A node has the labels of its Node, of the source `k8s`, and `reserved:host`",
        )
        .with(LABEL_SELECTOR),
    )),
    SPECS,
    STATUS,
];

/// The fields of a spec, with this row for its selector of nodes.
const fn spec(node_selector: FieldRow) -> [FieldRow; 10] {
    [
        ENDPOINT_SELECTOR,
        node_selector,
        INGRESS,
        INGRESS_DENY,
        EGRESS,
        EGRESS_DENY,
        LABELS,
        ENABLE_DEFAULT_DENY,
        LOG,
        DESCRIPTION,
    ]
}

const ENDPOINT_SELECTOR: FieldRow = FieldRow::enforced(
    "endpointSelector",
    "required; of a CiliumNetworkPolicy, pods of its own namespace",
)
.with(LABEL_SELECTOR);

const INGRESS: FieldRow = FieldRow::enforced("ingress[]", "").with(&[
    FROM_ENDPOINTS,
    FROM_CIDR,
    FROM_CIDR_SET,
    FROM_ENTITIES,
    FROM_NODES,
    FROM_GROUPS,
    FROM_REQUIRES,
    FieldRow::enforced("toPorts[]", PORTS_NOTE).with(&[
        PORTS,
        closed("rules", RULES_NOTE).with(&[
            HTTP,
            KAFKA,
            FieldRow::refused("dns[]", "only on egress"),
            L7_PROTOCOL,
            L7,
        ]),
        TERMINATING_TLS,
        ORIGINATING_TLS,
        SERVER_NAMES,
        FieldRow::refused("listener", "only on egress"),
    ]),
    ICMPS,
    AUTHENTICATION,
    OTHER_OF_ALLOW,
]);

const INGRESS_DENY: FieldRow = FieldRow::enforced("ingressDeny[]", "").with(&[
    FROM_ENDPOINTS,
    FROM_CIDR,
    FROM_CIDR_SET,
    FROM_ENTITIES,
    FROM_NODES,
    FROM_GROUPS,
    FROM_REQUIRES,
    FieldRow::enforced("toPorts[]", PORTS_NOTE).with(&[PORTS]),
    ICMPS,
    OTHER_OF_DENY,
]);

const EGRESS: FieldRow = FieldRow::enforced("egress[]", "").with(&[
    TO_ENDPOINTS,
    TO_CIDR,
    TO_CIDR_SET,
    TO_ENTITIES,
    TO_NODES,
    TO_GROUPS,
    TO_SERVICES,
    FieldRow::enforced(
        "toFQDNs[]",
        "the addresses that answers gave for the names; nothing inside of the cluster",
    )
    .with(NAMES),
    TO_REQUIRES,
    FieldRow::enforced("toPorts[]", PORTS_NOTE).with(&[
        PORTS,
        closed("rules", "exactly one kind; only `dns` is enforced").with(&[
            HTTP,
            KAFKA,
            FieldRow::enforced(
                "dns[]",
                "the names that DNS queries over TCP and UDP may ask for; an empty list, and in policies of nodes any \
                 but `*`: held closed",
            )
            .with(NAMES),
            L7_PROTOCOL,
            L7,
        ]),
        TERMINATING_TLS,
        ORIGINATING_TLS,
        SERVER_NAMES,
        closed("listener", "").with(&[
            closed("envoyConfig", "required").with(&[
                closed(
                    "kind",
                    "`CiliumEnvoyConfig`, `CiliumClusterwideEnvoyConfig`",
                ),
                closed("name", "required"),
            ]),
            closed("name", "required"),
            closed("priority", "1 to 100"),
        ]),
    ]),
    ICMPS,
    AUTHENTICATION,
    OTHER_OF_ALLOW,
]);

const EGRESS_DENY: FieldRow = FieldRow::enforced("egressDeny[]", "").with(&[
    TO_ENDPOINTS,
    TO_CIDR,
    TO_CIDR_SET,
    TO_ENTITIES,
    TO_NODES,
    TO_GROUPS,
    TO_SERVICES,
    TO_REQUIRES,
    FieldRow::enforced("toPorts[]", PORTS_NOTE).with(&[PORTS]),
    ICMPS,
    OTHER_OF_DENY,
]);

const LABELS: FieldRow = FieldRow::no_effect("labels[]", "").with(&[
    FieldRow::no_effect("key", "required"),
    FieldRow::no_effect("value", ""),
    FieldRow::no_effect("source", ""),
]);

const ENABLE_DEFAULT_DENY: FieldRow = FieldRow::enforced(
    "enableDefaultDeny",
    "missing: a direction with rules is denied by default",
)
.with(&[
    FieldRow::enforced("ingress", ""),
    FieldRow::enforced("egress", ""),
]);

const LOG: FieldRow = FieldRow::enforced("log", "names the rules")
    .with(&[FieldRow::enforced("value", "up to 32 printable characters")]);

const DESCRIPTION: FieldRow = FieldRow::no_effect("description", "");

/// A field that is validated and not served.
const fn closed(name: &'static str, note: &'static str) -> FieldRow {
    FieldRow::closed(name, ClosedReason::NotServed, note)
}

const ENDPOINTS_NOTE: &str =
    "in the namespace of the policy unless one is named; empty list: matches nothing";
const CIDR_NOTE: &str = "networks or single addresses; match what is outside of the cluster only, and nodes if the \
                         operator says so";
const ENTITIES_NOTE: &str = "`all`, `world`, `world-ipv4`, `world-ipv6`, `cluster`, `host`, `remote-node`, \
                             `kube-apiserver`, `unmanaged`, `none`; no address is of `init`, `ingress` and `health`, \
                             with a warning";
const NODES_NOTE: &str = "the addresses of these nodes";
const GROUPS_NOTE: &str = "groups of cloud providers are not served";
const REQUIRES_NOTE: &str = "Cilium 1.19 removed it";
const PORTS_NOTE: &str = "empty or missing: everything; not beside `icmps`";
const RULES_NOTE: &str = "exactly one kind; there is no proxy that enforces it";

const FROM_ENDPOINTS: FieldRow =
    FieldRow::enforced("fromEndpoints[]", ENDPOINTS_NOTE).with(LABEL_SELECTOR);
const TO_ENDPOINTS: FieldRow =
    FieldRow::enforced("toEndpoints[]", ENDPOINTS_NOTE).with(LABEL_SELECTOR);
const FROM_CIDR: FieldRow = FieldRow::enforced("fromCIDR[]", CIDR_NOTE);
const TO_CIDR: FieldRow = FieldRow::enforced("toCIDR[]", CIDR_NOTE);
const FROM_CIDR_SET: FieldRow = FieldRow::enforced("fromCIDRSet[]", "").with(CIDR_SET);
const TO_CIDR_SET: FieldRow = FieldRow::enforced("toCIDRSet[]", "").with(CIDR_SET);
const FROM_ENTITIES: FieldRow = FieldRow::enforced("fromEntities[]", ENTITIES_NOTE);
const TO_ENTITIES: FieldRow = FieldRow::enforced("toEntities[]", ENTITIES_NOTE);
const FROM_NODES: FieldRow = FieldRow::enforced("fromNodes[]", NODES_NOTE).with(LABEL_SELECTOR);
const TO_NODES: FieldRow = FieldRow::enforced("toNodes[]", NODES_NOTE).with(LABEL_SELECTOR);
const FROM_GROUPS: FieldRow = closed("fromGroups[]", GROUPS_NOTE).with(CLOUD_GROUP);
const TO_GROUPS: FieldRow = closed("toGroups[]", GROUPS_NOTE).with(CLOUD_GROUP);
const FROM_REQUIRES: FieldRow = FieldRow::refused("fromRequires[]", REQUIRES_NOTE);
const TO_REQUIRES: FieldRow = FieldRow::refused("toRequires[]", REQUIRES_NOTE);

const CIDR_SET: &[FieldRow] = &[
    FieldRow::enforced(
        "cidr",
        "one of this, `cidrGroupRef` and `cidrGroupSelector`",
    ),
    FieldRow::enforced("except[]", "each inside `cidr`; not beside a group"),
    FieldRow::enforced("cidrGroupRef", "the name of a CiliumCIDRGroup"),
    FieldRow::enforced("cidrGroupSelector", "CiliumCIDRGroups by their labels")
        .with(LABEL_SELECTOR),
];

const CLOUD_GROUP: &[FieldRow] = &[closed("aws", "").with(&[
    closed("labels", ""),
    closed("securityGroupsIds[]", ""),
    closed("securityGroupsNames[]", ""),
    closed("region", ""),
])];

const TO_SERVICES: FieldRow =
    FieldRow::enforced("toServices[]", "the addresses of their EndpointSlices").with(&[
        FieldRow::enforced("k8sService", "this or `k8sServiceSelector`").with(&[
            FieldRow::enforced("serviceName", "required"),
            FieldRow::enforced("namespace", "missing: every namespace"),
        ]),
        FieldRow::enforced("k8sServiceSelector", "").with(&[
            FieldRow::enforced("selector", "required").with(LABEL_SELECTOR),
            FieldRow::enforced("namespace", "missing: every namespace"),
        ]),
    ]);

const NAMES: &[FieldRow] = &[
    FieldRow::enforced(
        "matchName",
        "this or `matchPattern`; in any case, with or without a dot at the end",
    ),
    FieldRow::enforced(
        "matchPattern",
        "`*`: characters of one label, or none; `*` alone: every name; `**.` in front: one label or several",
    ),
];

const PORTS: FieldRow = FieldRow::enforced("ports[]", "up to 40; none: matches nothing").with(&[
    FieldRow::enforced(
        "port",
        "required: 0 to 65535, or the name of a port of each destination; 0: every port",
    ),
    FieldRow::enforced("endPort", "at least `port`, which must be a number above 0"),
    FieldRow::enforced(
        "protocol",
        "`TCP`, `UDP`, `SCTP`, `ANY` (the default: these three), `VRRP`, `IGMP`",
    ),
]);

const ICMPS: FieldRow =
    FieldRow::enforced("icmps[]", "not beside `toPorts`").with(&[FieldRow::enforced(
        "fields[]",
        "up to 40; none: matches nothing",
    )
    .with(&[
        FieldRow::enforced("family", "`IPv4` (the default), `IPv6`"),
        FieldRow::enforced("type", "required: 0 to 255, or the name of a type"),
    ])]);

const AUTHENTICATION: FieldRow = closed("authentication", "").with(&[closed(
    "mode",
    "required: `required` and `test-always-fail` are held closed; `disabled` has no effect",
)]);

const HTTP: FieldRow = closed("http[]", "").with(&[
    closed("path", ""),
    closed("method", ""),
    closed("host", ""),
    closed("headers[]", ""),
    closed("headerMatches[]", "").with(&[
        closed("mismatch", "`LOG`, `ADD`, `DELETE`, `REPLACE`"),
        closed("name", "required"),
        closed("secret", "").with(SECRET),
        closed("value", ""),
    ]),
]);

const KAFKA: FieldRow = closed("kafka[]", "").with(&[
    closed("role", "`produce`, `consume`"),
    closed("apiKey", ""),
    closed("apiVersion", ""),
    closed("clientID", ""),
    closed("topic", "up to 255 characters"),
]);

const L7_PROTOCOL: FieldRow = closed("l7proto", "");
const L7: FieldRow = closed("l7[]", "only with `l7proto`");

const TERMINATING_TLS: FieldRow = closed("terminatingTLS", "").with(TLS_CONTEXT);
const ORIGINATING_TLS: FieldRow = closed("originatingTLS", "").with(TLS_CONTEXT);
const SERVER_NAMES: FieldRow = closed("serverNames[]", "at least one, none twice");

const TLS_CONTEXT: &[FieldRow] = &[
    closed("secret", "required").with(SECRET),
    closed("trustedCA", ""),
    closed("certificate", ""),
    closed("privateKey", ""),
];

const SECRET: &[FieldRow] = &[closed("name", "required"), closed("namespace", "")];

const OTHER_OF_ALLOW: FieldRow = FieldRow::closed(
    ANY_OTHER,
    ClosedReason::UnknownField,
    "a field that is not known, here or further inside the rule: the rule allows nothing",
);

const OTHER_OF_DENY: FieldRow = FieldRow::closed(
    ANY_OTHER,
    ClosedReason::UnknownField,
    "a field that is not known, here or further inside the rule: the rule denies everything",
);

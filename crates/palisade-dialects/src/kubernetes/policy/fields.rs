//! The fields of NetworkPolicy.

use crate::closed_part::ClosedReason;
use crate::fields::common::{LABEL_SELECTOR, METADATA};
use crate::fields::{ANY_OTHER, FieldRow, PolicyKind};

/// NetworkPolicy.
pub(in crate::kubernetes) const NETWORK_POLICY: PolicyKind = PolicyKind {
    group: "networking.k8s.io",
    version: "v1",
    kind: "NetworkPolicy",
    plural: "networkpolicies",
    short_names: &["netpol"],
    is_namespaced: true,
    fields: FIELDS,
    notes: &[
        "A pod is isolated in a direction as soon as one policy selects it there; the policies are a union, and both \
         ends must allow. Host-network pods are their node: never subjects, and peers only by `ipBlock`.",
        "A pod that reaches itself through a Service is not isolated from itself: no NetworkPolicy judges it, unless the \
         agent has `--hairpin judge`.",
        "A peer whose selectors match no pod, a `namespaceSelector` without a namespace and a port name that no \
         destination has match nothing, and are warnings of `palisade validate`.",
    ],
};

const FIELDS: &[FieldRow] = &[
    FieldRow::enforced("apiVersion", "`networking.k8s.io/v1`"),
    FieldRow::enforced("kind", ""),
    FieldRow::enforced("metadata", "").with(METADATA),
    FieldRow::enforced(
        "spec",
        "without it, every pod of the namespace is isolated from ingress, with a warning",
    )
    .with(SPEC),
    FieldRow::no_effect("status", ""),
];

const SPEC: &[FieldRow] = &[POD_SELECTOR, POLICY_TYPES, INGRESS, EGRESS];

pub(crate) const POD_SELECTOR: FieldRow = FieldRow::enforced(
    "podSelector",
    "empty or missing: every pod of the namespace",
)
.with(LABEL_SELECTOR);
pub(crate) const POLICY_TYPES: FieldRow = FieldRow::enforced(
    "policyTypes[]",
    "`Ingress`, `Egress`; missing: Ingress, and Egress if there are egress rules",
);
pub(crate) const INGRESS: FieldRow =
    FieldRow::enforced("ingress[]", "empty: allows nothing").with(&[
        FieldRow::enforced("from[]", "empty or missing: every peer").with(PEER),
        FieldRow::enforced("ports[]", "empty or missing: everything, ICMP included").with(PORT),
        OTHER,
    ]);
pub(crate) const EGRESS: FieldRow =
    FieldRow::enforced("egress[]", "empty: allows nothing").with(&[
        FieldRow::enforced("to[]", "empty or missing: every peer").with(PEER),
        FieldRow::enforced("ports[]", "empty or missing: everything, ICMP included").with(PORT),
        OTHER,
    ]);

const PEER: &[FieldRow] = &[
    FieldRow::enforced("podSelector", "alone: pods of the namespace of the policy")
        .with(LABEL_SELECTOR),
    FieldRow::enforced("namespaceSelector", "beside `podSelector`: both must match")
        .with(LABEL_SELECTOR),
    FieldRow::enforced(
        "ipBlock",
        "stands alone; matches addresses of pods and nodes too",
    )
    .with(&[
        FieldRow::enforced("cidr", "required"),
        FieldRow::enforced("except[]", "each strictly inside `cidr`"),
    ]),
];

const PORT: &[FieldRow] = &[
    FieldRow::enforced("protocol", "`TCP` (the default), `UDP`, `SCTP`"),
    FieldRow::enforced(
        "port",
        "a number, or a name, which stands for the port of that name of each destination; missing: every port",
    ),
    FieldRow::enforced("endPort", "at least `port`, which must be a number"),
];

const OTHER: FieldRow = FieldRow::closed(
    ANY_OTHER,
    ClosedReason::UnknownField,
    "a field that is not known, here or further inside the rule: the rule allows nothing",
);

//! Rows that several kinds have: metadata, label selectors.

use super::FieldRow;

/// The label selectors of Kubernetes.
pub(crate) const LABEL_SELECTOR: &[FieldRow] = &[
    FieldRow::enforced("matchLabels", ""),
    FieldRow::enforced("matchExpressions[]", "").with(&[
        FieldRow::enforced("key", "required"),
        FieldRow::enforced(
            "operator",
            "required: `In`, `NotIn` (also without the label), `Exists`, `DoesNotExist`",
        ),
        FieldRow::enforced(
            "values[]",
            "required with `In` and `NotIn`, not allowed with the others",
        ),
    ]),
];

/// The metadata of an object in a namespace.
pub(crate) const METADATA: &[FieldRow] = &metadata(FieldRow::enforced(
    "namespace",
    "`default` if it is missing",
));

/// The metadata of a cluster-wide object.
pub(crate) const CLUSTER_METADATA: &[FieldRow] = &metadata(FieldRow::no_effect(
    "namespace",
    "a warning: the kind is cluster-wide",
));

/// The metadata of an object with this row for its namespace.
const fn metadata(namespace: FieldRow) -> [FieldRow; 16] {
    [
        FieldRow::enforced("name", "names the policy"),
        namespace,
        FieldRow::no_effect("labels", ""),
        FieldRow::enforced(
            "annotations",
            "`palisade.dev/mode: audit`: the policy is reported and not enforced; `enforce` is the default; any \
             other annotation has no effect",
        ),
        FieldRow::no_effect("generateName", ""),
        FieldRow::no_effect("selfLink", ""),
        FieldRow::no_effect("uid", ""),
        FieldRow::no_effect("resourceVersion", ""),
        FieldRow::no_effect("generation", ""),
        FieldRow::no_effect("creationTimestamp", ""),
        FieldRow::no_effect("deletionTimestamp", ""),
        FieldRow::no_effect("deletionGracePeriodSeconds", ""),
        FieldRow::no_effect("ownerReferences[]", ""),
        FieldRow::no_effect("finalizers[]", ""),
        FieldRow::no_effect("managedFields[]", ""),
        FieldRow::no_effect("clusterName", ""),
    ]
}

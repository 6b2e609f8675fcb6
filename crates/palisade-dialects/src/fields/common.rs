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
pub(crate) const METADATA: &[FieldRow] = &metadata(NAMESPACE, ANNOTATIONS);
/// The metadata of a cluster-wide object.
pub(crate) const CLUSTER_METADATA: &[FieldRow] = &metadata(NO_NAMESPACE, ANNOTATIONS);
/// The metadata of an object in a namespace that is always in audit.
pub(crate) const STAGED_METADATA: &[FieldRow] = &metadata(NAMESPACE, STAGED_ANNOTATIONS);
/// The metadata of a cluster-wide object that is always in audit.
pub(crate) const STAGED_CLUSTER_METADATA: &[FieldRow] = &metadata(NO_NAMESPACE, STAGED_ANNOTATIONS);

const NAMESPACE: FieldRow = FieldRow::enforced("namespace", "`default` if it is missing");
const NO_NAMESPACE: FieldRow =
    FieldRow::no_effect("namespace", "a warning: the kind is cluster-wide");
const ANNOTATIONS: FieldRow = FieldRow::enforced(
    "annotations",
    "`palisade.dev/mode: audit`: the policy is reported and not enforced; `enforce` is the default; any \
     other annotation has no effect",
);
const STAGED_ANNOTATIONS: FieldRow = FieldRow::no_effect(
    "annotations",
    "it is in audit whatever `palisade.dev/mode` says",
);

/// The metadata of an object with these rows.
const fn metadata(namespace: FieldRow, annotations: FieldRow) -> [FieldRow; 16] {
    [
        FieldRow::enforced("name", "names the policy"),
        namespace,
        FieldRow::no_effect("labels", ""),
        annotations,
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

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
pub(crate) const METADATA: &[FieldRow] = &[
    FieldRow::enforced("name", "names the policy"),
    FieldRow::enforced("namespace", "`default` if it is missing"),
    METADATA_REST[0],
    METADATA_REST[1],
    METADATA_REST[2],
    METADATA_REST[3],
    METADATA_REST[4],
    METADATA_REST[5],
    METADATA_REST[6],
    METADATA_REST[7],
    METADATA_REST[8],
    METADATA_REST[9],
    METADATA_REST[10],
    METADATA_REST[11],
    METADATA_REST[12],
    METADATA_REST[13],
];

/// The metadata of a cluster-wide object.
pub(crate) const CLUSTER_METADATA: &[FieldRow] = &[
    FieldRow::enforced("name", "names the policy"),
    FieldRow::no_effect("namespace", "a warning: the kind is cluster-wide"),
    METADATA_REST[0],
    METADATA_REST[1],
    METADATA_REST[2],
    METADATA_REST[3],
    METADATA_REST[4],
    METADATA_REST[5],
    METADATA_REST[6],
    METADATA_REST[7],
    METADATA_REST[8],
    METADATA_REST[9],
    METADATA_REST[10],
    METADATA_REST[11],
    METADATA_REST[12],
    METADATA_REST[13],
];

const METADATA_REST: [FieldRow; 14] = [
    FieldRow::no_effect("labels", ""),
    FieldRow::no_effect("annotations", ""),
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
];

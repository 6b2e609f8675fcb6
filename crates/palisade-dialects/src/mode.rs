//! The annotation `palisade.dev/mode`, which puts a policy, a pod or the pods of a namespace in audit.
//!
//! Promises: without the annotation, or with a value that cannot be read, everything is enforced; on a policy
//! such a value is an error, elsewhere a warning. Never: knows the fields of a dialect.

use crate::report::ObjectReport;
use crate::suggest::nearest;
use palisade_manifest::{Field, quote};
use palisade_model::PolicyMode;

/// The name of the annotation.
pub const MODE_ANNOTATION: &str = "palisade.dev/mode";

/// The domain of the annotations that Palisade reads.
const DOMAIN: &str = "palisade.dev/";

/// Its values.
const MODES: [(&str, PolicyMode); 2] = [
    ("enforce", PolicyMode::Enforce),
    ("audit", PolicyMode::Audit),
];

/// The mode that the annotations of an object give; [`PolicyMode::Enforce`] if they cannot be read.
pub(crate) fn annotated_mode(root: &Field<'_>) -> PolicyMode {
    let mut node = Some(root.node);
    for key in ["metadata", "annotations", MODE_ANNOTATION] {
        node = node.and_then(|node| node.get(key));
    }
    let mode = node.and_then(|node| parse(node.as_str()?));
    mode.unwrap_or_default()
}

fn parse(text: &str) -> Option<PolicyMode> {
    let mode_row = MODES.iter().find(|(word, _)| *word == text);
    mode_row.map(|(_, mode)| *mode)
}

/// Reports an annotation of a policy that is not a mode, and unknown annotations of the domain.
pub(crate) fn check_policy(key: &str, value: &Field<'_>, report: &mut ObjectReport) {
    let Some(name) = key.strip_prefix(DOMAIN) else {
        return;
    };
    if key != MODE_ANNOTATION {
        let hint = match nearest(name, &["mode"]) {
            Some(word) => format!("; did you mean {DOMAIN}{word}?"),
            None => String::new(),
        };
        report.warn(
            value,
            format!("{} is not an annotation of Palisade{hint}", quote(key)),
        );
        return;
    }
    if let Some(text) = report.ok(value.as_str())
        && parse(text).is_none()
    {
        report.error(
            value,
            format!("{} is not a mode: use audit or enforce", quote(text)),
        );
    }
}

/// Whether the annotations under `of` put a pod, the pods of a namespace or a node in audit.
pub(crate) fn is_in_audit(parent: &Field<'_>, report: &mut ObjectReport) -> bool {
    let metadata = report.object(parent, "metadata");
    let annotations = metadata.and_then(|metadata| report.object(&metadata, "annotations"));
    let value = annotations.and_then(|annotations| annotations.get(MODE_ANNOTATION).ok()?);
    let Some(value) = value else {
        return false;
    };
    let mode = value.as_str().ok().and_then(parse);
    if mode.is_none() {
        let text = value.node.as_str().map_or_else(|| value.describe(), quote);
        report.warn(
            &value,
            format!("{text} is not a mode: use audit or enforce; policy is enforced"),
        );
    }
    mode == Some(PolicyMode::Audit)
}

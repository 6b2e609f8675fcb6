//! `GET /v1/manifest`: the text of a policy as it was written.
//!
//! Never runs on the core's thread, and shows no other object of a file.

use palisade_api::{ManifestReport, ObjectRef, RuleExcerpt};
use palisade_model::Policy;
use palisade_source::{PolicyManifestError, RuleLines, read_policy_manifest};
use std::path::Path;

/// The text of the object whose policies in force are `parts`.
pub(super) fn manifest_report(
    parts: &[Policy],
    state_dir: &Path,
) -> Result<ManifestReport, PolicyManifestError> {
    let manifest = read_policy_manifest(parts, state_dir)?;
    let excerpt = |rule: RuleLines| RuleExcerpt {
        direction: rule.direction,
        index: rule.index,
        first: rule.first,
        last: rule.last,
    };
    Ok(ManifestReport {
        api_version: palisade_api::api_version(),
        policy: ObjectRef::new(&manifest.id, Some(&manifest.line)),
        text: manifest.text,
        first_line: manifest.first_line,
        in_force: manifest.is_in_force,
        rules: manifest.rules.into_iter().map(excerpt).collect(),
    })
}

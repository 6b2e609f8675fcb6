//! `palisade validate -o json` and `palisade completion -o json`.

use crate::ProblemReport;
use palisade_model::Str;
use serde::Serialize;
use std::collections::BTreeMap;

/// The problems of manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ValidationReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Whether there is no error.
    pub valid: bool,
    /// Number of files.
    pub files: usize,
    /// Number of valid objects.
    pub objects: usize,
    /// Errors and warnings.
    pub problems: Vec<ProblemReport>,
    /// Policies of other software, which Palisade does not enforce, by kind.
    pub not_enforced: BTreeMap<String, usize>,
    /// Objects that are not related to policy, by kind.
    pub ignored: BTreeMap<String, usize>,
}

/// The completion script of a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompletionScript {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// The shell: `bash`, `zsh` or `fish`.
    pub shell: String,
    /// The script.
    pub script: String,
}

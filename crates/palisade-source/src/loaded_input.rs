//! What a command gets from its files.

use palisade_effective::Diagnostic;
use palisade_model::{ObjectId, State};
use std::collections::BTreeMap;

/// An object and its manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedManifest {
    /// Its name, with the default namespace applied.
    pub id: ObjectId,
    /// The manifest, with all of its fields.
    pub manifest: serde_json::Value,
}

/// The content of a set of files and folders.
#[derive(Clone, Debug, Default)]
pub struct LoadedInput {
    /// The valid objects and the isolation policies of invalid ones.
    pub state: State,
    /// Every object with its manifest, in the order of reading; only if manifests were asked for.
    pub manifests: Vec<LoadedManifest>,
    /// Errors and warnings by location, with counts of those not listed.
    pub diagnostics: Vec<Diagnostic>,
    /// The number of files read.
    pub files: usize,
    /// The number of valid objects.
    pub objects: usize,
    /// The number of objects of ignored kinds, by kind.
    pub ignored: BTreeMap<String, usize>,
}

impl LoadedInput {
    /// Whether there are errors (warnings do not count).
    pub fn has_errors(&self) -> bool {
        self.diagnostics
            .iter()
            .any(|diagnostic| diagnostic.is_error())
    }
}

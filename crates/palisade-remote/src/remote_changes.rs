//! What events of a server change: definitions, diagnostics, and the snapshot.

use palisade_effective::DefinitionChange;
use std::collections::BTreeMap;

/// What events change. `K` identifies a definition.
#[derive(Debug)]
pub struct RemoteChanges<K> {
    /// The last change of each definition.
    pub definitions: BTreeMap<K, DefinitionChange>,
    /// Whether errors, warnings or ignored kinds changed.
    pub has_new_diagnostics: bool,
    /// The same for the snapshot, if there is one.
    pub stored: Option<Vec<StoredChange>>,
}

/// A change of an entry of the snapshot.
#[derive(Debug)]
pub struct StoredChange {
    /// The key of the entry.
    pub key: String,
    /// Its version, which may be empty, and its text; `None` if it is gone.
    pub value: Option<(Box<str>, String)>,
}

impl<K> Default for RemoteChanges<K> {
    fn default() -> Self {
        RemoteChanges {
            definitions: BTreeMap::new(),
            has_new_diagnostics: false,
            stored: None,
        }
    }
}

impl<K> RemoteChanges<K> {
    /// No changes yet, for a source with or without a snapshot.
    #[must_use]
    pub fn new(has_snapshot: bool) -> Self {
        RemoteChanges {
            stored: has_snapshot.then(Vec::new),
            ..RemoteChanges::default()
        }
    }

    /// The number of changed definitions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.definitions.len()
    }

    /// Whether no definition changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.definitions.is_empty()
    }

    /// Adds a change of the snapshot, if there is one.
    pub fn store(&mut self, change: impl FnOnce() -> StoredChange) {
        if let Some(stored) = &mut self.stored {
            stored.push(change());
        }
    }

    /// The changes of definitions, removals first.
    #[must_use]
    pub fn into_definitions(self) -> Vec<DefinitionChange> {
        let is_removal = |change: &DefinitionChange| {
            use DefinitionChange::{Delete, Gone};
            matches!(change, Gone(_) | Delete { .. })
        };
        let changes = self.definitions.into_values();
        let (mut removals, others): (Vec<_>, Vec<_>) = changes.partition(is_removal);
        removals.extend(others);
        removals
    }
}

//! `palisade push -o json`.

use palisade_model::Str;
use serde::Serialize;
use std::collections::BTreeMap;

/// What a push changed. Objects are named by the ends of their keys, `GROUP/KIND/NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PushReport {
    /// [`crate::API_VERSION`].
    pub api_version: Str,
    /// Whether nothing was written.
    pub dry_run: bool,
    /// The endpoints and the prefix.
    pub location: String,
    /// The revision of etcd at which the objects were read back, or compared.
    pub revision: i64,
    /// Objects that were not there.
    pub created: Vec<String>,
    /// Objects with another content.
    pub changed: Vec<String>,
    /// Objects that are not in the folder.
    pub deleted: Vec<String>,
    /// The number of objects that stay as they are.
    pub unchanged: usize,
    /// Policies of other software, which Palisade does not enforce and which were not written, by kind.
    pub not_enforced: BTreeMap<String, usize>,
    /// Objects that are not related to policy and were not written, by kind.
    pub ignored: BTreeMap<String, usize>,
}

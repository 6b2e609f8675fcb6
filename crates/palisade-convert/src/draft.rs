//! An object that a writer made, before it has its name. Never: knows a dialect.

use palisade_model::Str;
use serde_json::{Map, Value};

/// An object before it has its name.
pub(crate) struct Draft {
    /// `apiVersion`.
    pub(crate) api_version: &'static str,
    /// Its kind.
    pub(crate) kind: &'static str,
    /// Its namespace.
    pub(crate) namespace: Option<Str>,
    /// What its name has beside the name of the source.
    pub(crate) affix: NameAffix,
    /// Its spec, or the fields beside `metadata`.
    pub(crate) fields: Map<String, Value>,
}

/// What a name has beside the name of the source.
#[derive(Clone, Debug, Default)]
pub(crate) struct NameAffix {
    /// In front.
    pub(crate) prefix: String,
    /// Behind.
    pub(crate) suffix: String,
}

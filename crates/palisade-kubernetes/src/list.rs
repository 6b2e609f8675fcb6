//! The JSON of lists, watch events and errors, without the objects.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// A page of a list.
#[derive(Deserialize)]
pub(crate) struct ListPage<'t> {
    pub(crate) metadata: ListMetadata,
    #[serde(borrow, default)]
    pub(crate) items: Option<Vec<&'t RawValue>>,
}

/// `metadata` of a list.
#[derive(Deserialize)]
pub(crate) struct ListMetadata {
    /// The version of the whole list.
    #[serde(rename = "resourceVersion", default)]
    pub(crate) resource_version: String,
    /// Requests the next page; empty on the last.
    #[serde(rename = "continue", default)]
    pub(crate) continue_token: String,
}

/// A line of a watch.
#[derive(Deserialize)]
pub(crate) struct WatchLine<'t> {
    #[serde(rename = "type", borrow)]
    pub(crate) kind: Cow<'t, str>,
    #[serde(borrow)]
    pub(crate) object: &'t RawValue,
}

/// What identifies an object and its version, as far as it can be read: also a malformed object fails by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectIdentity {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
    pub(crate) resource_version: String,
    /// Whether a bookmark ends the first events of a watch.
    pub(crate) ends_initial_events: bool,
}

impl ObjectIdentity {
    /// The identity in the JSON of an object.
    pub(crate) fn of(text: &str) -> Self {
        #[derive(Deserialize)]
        struct ObjectHeader {
            #[serde(default)]
            metadata: Option<Metadata>,
        }
        #[derive(Default, Deserialize)]
        struct Metadata {
            #[serde(default)]
            namespace: Value,
            #[serde(default)]
            name: Value,
            #[serde(rename = "resourceVersion", default)]
            resource_version: Value,
            #[serde(default)]
            annotations: Value,
        }
        let object: Option<ObjectHeader> = serde_json::from_str(text).ok();
        let metadata = object
            .and_then(|object| object.metadata)
            .unwrap_or_default();
        let text = |value: Value| match value {
            Value::String(text) => text,
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let ends = &metadata.annotations["k8s.io/initial-events-end"];
        ObjectIdentity {
            ends_initial_events: ends == "true",
            namespace: Some(text(metadata.namespace)).filter(|text| !text.is_empty()),
            name: text(metadata.name),
            resource_version: text(metadata.resource_version),
        }
    }
}

/// A `Status` object: the answer to a request that failed, or the last event of a watch.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ApiServerStatus {
    pub(crate) code: u16,
    pub(crate) message: String,
}

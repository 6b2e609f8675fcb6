//! Converts a value to JSON without locations.

use crate::node::{ManifestNode, ManifestValue};

/// The value for `serde_json`, with fields in the order of the file.
#[must_use]
pub fn to_json(node: &ManifestNode) -> serde_json::Value {
    match &node.value {
        ManifestValue::Null => serde_json::Value::Null,
        ManifestValue::Bool(value) => serde_json::Value::Bool(*value),
        ManifestValue::Int(value) => serde_json::Value::from(*value),
        ManifestValue::Float(value) => serde_json::Value::from(*value),
        ManifestValue::String(text) => serde_json::Value::String(text.to_string()),
        ManifestValue::List(items) => serde_json::Value::Array(items.iter().map(to_json).collect()),
        ManifestValue::Map(map) => serde_json::Value::Object(
            map.iter()
                .map(|entry| (entry.key.to_string(), to_json(&entry.value)))
                .collect(),
        ),
    }
}

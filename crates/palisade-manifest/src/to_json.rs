//! A value without its places, as JSON.

use crate::node::{Node, Value};

/// The value as `serde_json` has it, fields in the order of the file.
#[must_use]
pub fn to_json(node: &Node) -> serde_json::Value {
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => serde_json::Value::Bool(*value),
        Value::Int(value) => serde_json::Value::from(*value),
        Value::Float(value) => serde_json::Value::from(*value),
        Value::String(text) => serde_json::Value::String(text.to_string()),
        Value::List(items) => serde_json::Value::Array(items.iter().map(to_json).collect()),
        Value::Map(map) => serde_json::Value::Object(
            map.iter()
                .map(|entry| (entry.key.to_string(), to_json(&entry.value)))
                .collect(),
        ),
    }
}

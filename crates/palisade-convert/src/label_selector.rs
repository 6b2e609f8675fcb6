//! Writes label selectors of Kubernetes: `matchLabels` and `matchExpressions`.

use crate::pods::{KeyTest, ValueTest};
use palisade_model::Str;
use serde_json::{Map, Value, json};

/// A label selector of these tests: single values in `matchLabels`, the rest in `matchExpressions`.
pub(crate) fn label_selector(tests: &[KeyTest]) -> Value {
    let mut labels = Map::new();
    let mut expressions = Vec::new();
    for KeyTest { key, test } in tests {
        if let ValueTest::In(values) = test
            && let [only] = &values[..]
            && !labels.contains_key(&**key)
        {
            labels.insert(key.to_string(), json!(only));
            continue;
        }
        expressions.push(match test {
            ValueTest::In(values) => expression(key, "In", Some(values)),
            ValueTest::NotIn(values) => expression(key, "NotIn", Some(values)),
            ValueTest::Exists => expression(key, "Exists", None),
            ValueTest::DoesNotExist => expression(key, "DoesNotExist", None),
        });
    }
    let mut selector = Map::new();
    if !labels.is_empty() {
        selector.insert("matchLabels".to_owned(), Value::Object(labels));
    }
    if !expressions.is_empty() {
        selector.insert("matchExpressions".to_owned(), Value::Array(expressions));
    }
    Value::Object(selector)
}

fn expression(key: &Str, operator: &str, values: Option<&Vec<Str>>) -> Value {
    match values {
        Some(values) => json!({ "key": key, "operator": operator, "values": values }),
        None => json!({ "key": key, "operator": operator }),
    }
}

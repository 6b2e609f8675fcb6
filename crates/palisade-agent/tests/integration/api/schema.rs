//! A simple validator for JSON Schema: it supports what the document uses, and panics on anything else,
//! so that no rule is ignored. It is stricter than the standard: an object may only have fields that
//! the schema names.

use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The violations, as a path and a reason; empty if the value is valid.
pub(crate) fn check(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    fits(root, schema, value, "$", &mut wrong);
    wrong
}

/// Checks one value; unnamed fields are errors.
fn fits(root: &Value, schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let named = look(root, schema, value, at, wrong);
    for key in value.as_object().into_iter().flat_map(Map::keys) {
        if !named.contains(key) {
            wrong.push(format!("{at}.{key} is not in the document"));
        }
    }
}

/// Checks all keywords of a schema against a value; returns the fields it names.
fn look(
    root: &Value,
    schema: &Value,
    value: &Value,
    at: &str,
    wrong: &mut Vec<String>,
) -> BTreeSet<String> {
    let all = || -> BTreeSet<String> {
        let keys = value.as_object().into_iter().flat_map(Map::keys);
        keys.cloned().collect()
    };
    let schema = match schema {
        Value::Bool(true) => return all(),
        Value::Object(schema) => schema,
        other => panic!("{other} is no schema"),
    };
    let mut named = BTreeSet::new();
    for (word, says) in schema {
        match word.as_str() {
            "description" | "title" | "format" | "default" | "examples" => {}
            "$ref" => {
                let path = says.as_str().unwrap().strip_prefix('#').unwrap();
                let target = root.pointer(path).unwrap_or_else(|| panic!("no {path}"));
                named.extend(look(root, target, value, at, wrong));
            }
            "type" => {
                let is = |kind: &Value| match kind.as_str().unwrap() {
                    "null" => value.is_null(),
                    "boolean" => value.is_boolean(),
                    "string" => value.is_string(),
                    "integer" => value.is_i64() || value.is_u64(),
                    "number" => value.is_number(),
                    "array" => value.is_array(),
                    "object" => value.is_object(),
                    other => panic!("type {other}"),
                };
                let kinds = match says {
                    Value::Array(kinds) => kinds.clone(),
                    kind => vec![kind.clone()],
                };
                if !kinds.iter().any(is) {
                    wrong.push(format!("{at} is no {says}"));
                }
            }
            "const" if says != value => wrong.push(format!("{at} is not {says}")),
            "enum" if !says.as_array().unwrap().contains(value) => {
                wrong.push(format!("{at} is none of {says}"));
            }
            "const" | "enum" => {}
            "minimum" | "maximum" => {
                let (number, bound) = (value.as_f64(), says.as_f64().unwrap());
                let out = |n| {
                    if word == "minimum" {
                        n < bound
                    } else {
                        n > bound
                    }
                };
                if number.is_some_and(out) {
                    wrong.push(format!("{at} is beyond {word} {bound}"));
                }
            }
            "minItems" | "maxItems" => {
                let (length, bound) = (value.as_array().map(Vec::len), says.as_u64().unwrap());
                let out = |n| {
                    if word == "minItems" {
                        n < bound
                    } else {
                        n > bound
                    }
                };
                if length.is_some_and(|n| out(n as u64)) {
                    wrong.push(format!("{at} is beyond {word} {bound}"));
                }
            }
            "required" => {
                for key in says.as_array().unwrap() {
                    if value.is_object() && value.get(key.as_str().unwrap()).is_none() {
                        wrong.push(format!("{at}.{} is missing", key.as_str().unwrap()));
                    }
                }
            }
            "properties" => {
                for (key, of) in says.as_object().unwrap() {
                    if let Some(inner) = value.get(key) {
                        named.insert(key.clone());
                        fits(root, of, inner, &format!("{at}.{key}"), wrong);
                    }
                }
            }
            "additionalProperties" => {
                let known = schema.get("properties").and_then(Value::as_object);
                for (key, inner) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(key)) {
                        continue;
                    }
                    if *says == Value::Bool(false) {
                        wrong.push(format!("{at}.{key} is not allowed"));
                    } else {
                        fits(root, says, inner, &format!("{at}.{key}"), wrong);
                    }
                    named.insert(key.clone());
                }
            }
            "items" => {
                for (index, inner) in value.as_array().into_iter().flatten().enumerate() {
                    fits(root, says, inner, &format!("{at}[{index}]"), wrong);
                }
            }
            "prefixItems" => {
                let inner = value.as_array().into_iter().flatten();
                for (index, (of, inner)) in says.as_array().unwrap().iter().zip(inner).enumerate() {
                    fits(root, of, inner, &format!("{at}[{index}]"), wrong);
                }
            }
            "allOf" => {
                for part in says.as_array().unwrap() {
                    named.extend(look(root, part, value, at, wrong));
                }
            }
            "anyOf" | "oneOf" => {
                let tried = says.as_array().unwrap().iter().map(|branch| {
                    let mut complaints = Vec::new();
                    let named = look(root, branch, value, at, &mut complaints);
                    (complaints, named)
                });
                let (fitting, not): (Vec<_>, Vec<_>) =
                    tried.partition(|(complaints, _)| complaints.is_empty());
                match fitting.len() {
                    0 => wrong.push(format!("{at} fits no branch: {not:?}")),
                    1 => {}
                    many if word == "oneOf" => wrong.push(format!("{at} fits {many} branches")),
                    _ => {}
                }
                named.extend(fitting.into_iter().flat_map(|(_, named)| named));
            }
            other => panic!("{at}: the word {other} is not known here"),
        }
    }
    named
}

#[test]
fn what_does_not_fit_is_found() {
    let schema = serde_json::json!({
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer", "minimum": 0},
            "state": {"oneOf": [{"const": "a"}, {"const": "b"}]},
        },
        "required": ["name"],
    });
    let wrong = |value: Value| check(&schema, &schema, &value);
    assert_eq!(wrong(serde_json::json!({"name": "x", "count": 1})), [""; 0]);
    for (value, says) in [
        (serde_json::json!({}), "$.name is missing"),
        (serde_json::json!({"name": 1}), "$.name is no \"string\""),
        (
            serde_json::json!({"name": "x", "count": -1}),
            "$.count is beyond minimum 0",
        ),
        (
            serde_json::json!({"name": "x", "more": 1}),
            "$.more is not in the document",
        ),
    ] {
        assert_eq!(wrong(value), [says]);
    }
    assert_eq!(
        wrong(serde_json::json!({"name": "x", "state": "c"})).len(),
        1
    );
}

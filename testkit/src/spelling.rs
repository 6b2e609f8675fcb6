//! The house rule of JSON output: keys are camelCase, values of enumerations are spelled as in Kubernetes' API.
//!
//! It judges values and schemas; it never says what a key should be called.

use serde_json::Value;

/// Keys whose objects are data: their keys are written by users.
const MAPS: [&str; 2] = ["labels", "ignored"];

/// The paths of all keys of a value that are not camelCase.
#[must_use]
pub fn misspelled_keys(value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(value, "", &mut found);
    found
}

fn collect(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                let path = format!("{path}/{key}");
                if !is_camel_case(key) {
                    found.push(path.clone());
                }
                if !MAPS.contains(&key.as_str()) {
                    collect(field, &path, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, path, found)),
        _ => {}
    }
}

/// Whether a key is camelCase: letters and digits, the first a small letter.
#[must_use]
pub fn is_camel_case(key: &str) -> bool {
    key.starts_with(|first: char| first.is_ascii_lowercase())
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether the value of an enumeration is spelled as in Kubernetes' API: `DefaultDeny`, `TCP`, `IPv4`.
#[must_use]
pub fn is_enum_value(value: &str) -> bool {
    value.starts_with(|first: char| first.is_ascii_uppercase())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn other_spellings_are_found_and_labels_are_data() {
        let value = json!({
            "apiVersion": "v1",
            "decided_by": [{"nearest-miss": 1, "labels": {"a.b/c_d": "x"}}],
            "Kind": {"port": 1},
        });
        assert_eq!(
            misspelled_keys(&value),
            ["/decided_by", "/decided_by/nearest-miss", "/Kind"]
        );
        assert!(is_enum_value("DefaultDeny") && is_enum_value("TCP") && is_enum_value("IPv4"));
        assert!(!is_enum_value("default-deny") && !is_enum_value("allow"));
    }
}

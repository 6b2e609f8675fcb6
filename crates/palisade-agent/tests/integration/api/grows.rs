//! API compatibility: the present document keeps all promises of the recorded one.
//!
//! `recorded.json` is the document of the last release, or of a break that was decided (as for the spelling of
//! keys and values). It is replaced only then, never to make this test pass.

use super::document::document;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The incompatibilities of the new document with the old one.
fn broken(old: &Value, new: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let no = Map::new();
    for (path, of) in old["paths"].as_object().unwrap_or(&no) {
        for (method, was) in of.as_object().unwrap_or(&no) {
            let at = format!("{method} {path}");
            let now = &new["paths"][path][method];
            if now.is_null() {
                out.push(format!("{at} is gone"));
                continue;
            }
            let listed = |of: &Value| of["parameters"].as_array().cloned().unwrap_or_default();
            let find =
                |of: &Value, name: &Value| listed(of).into_iter().find(|p| p["name"] == *name);
            for was in listed(was) {
                match find(now, &was["name"]) {
                    None => out.push(format!("{at}: parameter {} is gone", was["name"])),
                    Some(now) => keeps(&was["schema"], &now["schema"], true, &at, &mut out),
                }
            }
            for now in listed(now).iter().filter(|now| now["required"] == true) {
                if find(was, &now["name"]).is_none_or(|was| was["required"] == false) {
                    out.push(format!("{at}: parameter {} is now required", now["name"]));
                }
            }
            let taken = "/requestBody/content/application~1json/schema";
            if was.pointer(taken) != now.pointer(taken) {
                out.push(format!("{at} takes another body"));
            }
            for (kind, of) in was["responses"]["200"]["content"]
                .as_object()
                .unwrap_or(&no)
            {
                if now["responses"]["200"]["content"][kind]["schema"] != of["schema"] {
                    out.push(format!("{at} gives another body"));
                }
            }
        }
    }
    let inputs = inputs(old);
    for (name, was) in old["components"]["schemas"].as_object().unwrap_or(&no) {
        match &new["components"]["schemas"][name] {
            Value::Null => out.push(format!("{name} is gone")),
            now => keeps(was, now, inputs.contains(name), name, &mut out),
        }
    }
    out
}

/// The names of the types used in requests.
fn inputs(document: &Value) -> BTreeSet<String> {
    fn references(value: &Value, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                    out.extend(name.rsplit('/').next().map(str::to_owned));
                }
                map.values().for_each(|value| references(value, out));
            }
            Value::Array(list) => list.iter().for_each(|value| references(value, out)),
            _ => {}
        }
    }
    let mut waiting = Vec::new();
    for path in document["paths"]
        .as_object()
        .into_iter()
        .flat_map(Map::values)
    {
        for operation in path.as_object().into_iter().flat_map(Map::values) {
            references(&operation["requestBody"], &mut waiting);
        }
    }
    let mut found = BTreeSet::new();
    while let Some(name) = waiting.pop() {
        references(&document["components"]["schemas"][&name], &mut waiting);
        if !found.insert(name) && waiting.len() > 1_000 {
            break;
        }
    }
    found
}

fn keeps(old: &Value, new: &Value, input: bool, at: &str, out: &mut Vec<String>) {
    let words = |of: &Value, word: &str| -> BTreeSet<String> {
        let list = of[word].as_array().into_iter().flatten();
        list.map(ToString::to_string).collect()
    };
    for word in ["type", "$ref", "const"] {
        if old[word] != new[word] {
            out.push(format!("{at}: {word} was {}, is {}", old[word], new[word]));
        }
    }
    let (was, is) = (words(old, "required"), words(new, "required"));
    // Clients send what was required, and read what was promised.
    let changed = if input {
        is.difference(&was)
    } else {
        was.difference(&is)
    };
    for name in changed {
        let how = if input {
            "is now required"
        } else {
            "may now be absent"
        };
        out.push(format!("{at}: {name} {how}"));
    }
    for gone in words(old, "enum").difference(&words(new, "enum")) {
        out.push(format!("{at}: the value {gone} is gone"));
    }
    for (name, was) in old["properties"].as_object().into_iter().flatten() {
        match &new["properties"][name] {
            Value::Null => out.push(format!("{at}.{name} is gone")),
            now => keeps(was, now, input, &format!("{at}.{name}"), out),
        }
    }
    for word in ["items", "additionalProperties"] {
        if old[word].is_object() {
            keeps(&old[word], &new[word], input, &format!("{at}/{word}"), out);
        }
    }
    for word in ["oneOf", "anyOf", "allOf", "prefixItems"] {
        for was in old[word].as_array().into_iter().flatten() {
            let kept = new[word].as_array().into_iter().flatten().any(|now| {
                let mut wrong = Vec::new();
                keeps(was, now, input, at, &mut wrong);
                wrong.is_empty()
            });
            if !kept {
                out.push(format!("{at}: a variant is gone or changed: {was}"));
            }
        }
    }
}

#[test]
fn nothing_that_was_promised_is_gone() {
    let recorded: Value = serde_json::from_str(include_str!("recorded.json")).unwrap();
    assert_eq!(broken(&recorded, &document()), [""; 0]);
}

#[test]
fn what_breaks_clients_is_found() {
    let now = document();
    let after = |change: &dyn Fn(&mut Value)| {
        let mut new = now.clone();
        change(&mut new);
        assert_ne!(new, now, "the change changes something");
        broken(&now, &new)
    };
    type Change<'a> = (&'a str, &'a dyn Fn(&mut Value), bool);
    let at = |new: &mut Value, pointer: &str, put: &dyn Fn(&mut Value)| {
        put(new
            .pointer_mut(&format!("/components/schemas/{pointer}"))
            .unwrap());
    };
    let remove = |key: &'static str| {
        move |map: &mut Value| {
            map.as_object_mut().unwrap().remove(key).unwrap();
        }
    };
    let changes: [Change<'_>; 8] = [
        (
            "a field goes",
            &|new| at(new, "Status/properties", &remove("health")),
            true,
        ),
        (
            "a field comes",
            &|new| {
                at(new, "Status/properties", &|m| {
                    m["new"] = json!({"type": "string"})
                })
            },
            false,
        ),
        (
            "a field gets another type",
            &|new| {
                at(new, "Status/properties/pid", &|m| {
                    m["type"] = json!("string")
                })
            },
            true,
        ),
        (
            "an answer's field may be absent",
            &|new| {
                at(new, "Status/required", &|m| {
                    m.as_array_mut().unwrap().truncate(3)
                })
            },
            true,
        ),
        (
            "a request needs more",
            &|new| {
                at(new, "WorkloadAddRequest/required", &|m| {
                    m.as_array_mut().unwrap().push(json!("labels"))
                })
            },
            true,
        ),
        (
            "an operation goes",
            &|new| remove("/v1/config")(&mut new["paths"]),
            true,
        ),
        (
            "an operation comes",
            &|new| new["paths"]["/v1/new"] = json!({"get": {}}),
            false,
        ),
        (
            "a state goes",
            &|new| {
                at(new, "EndpointState", &|m| {
                    let key = if m["oneOf"].is_array() {
                        "oneOf"
                    } else {
                        "enum"
                    };
                    m[key].as_array_mut().unwrap().truncate(1);
                })
            },
            true,
        ),
    ];
    for (what, change, breaks) in changes {
        let found = after(change);
        assert_eq!(!found.is_empty(), breaks, "{what}: {found:?}");
    }
}

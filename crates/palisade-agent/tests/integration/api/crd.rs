//! The custom resource definition of `NodePolicyStatus`: made from the API types, and compared with the file
//! that the chart installs. After an intended change run with `PALISADE_BLESS=1` and review the difference.

use palisade_api::{
    EnforcedInstead, NodeCondition, NodePolicyReport, NotEnforcedObject, PartlyClosedPolicy,
    StaleSource,
};
use palisade_kubernetes::{STATUS_API_VERSION, STATUS_KIND, STATUS_PATH};
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::path::Path;

const FILE: &str = "../../deploy/helm/palisade/crds/nodepolicystatuses.yaml";

/// The schema of the status, in the form that the API server accepts: without references, one type each.
fn status_schema() -> Value {
    let mut settings = SchemaSettings::openapi3();
    settings.inline_subschemas = true;
    let generator = settings.into_generator();
    let mut schema = generator
        .into_root_schema_for::<NodePolicyReport>()
        .to_value();
    make_structural(&mut schema);
    schema
}

fn make_structural(schema: &mut Value) {
    let Value::Object(fields) = schema else {
        return;
    };
    for unknown in ["$schema", "title", "default", "components"] {
        fields.remove(unknown);
    }
    // Values of an enumeration, each with its description.
    if let Some(Value::Array(variants)) = fields.remove("oneOf") {
        let values = variants.iter().flat_map(|variant| match &variant["const"] {
            Value::Null => variant["enum"].as_array().cloned().unwrap_or_default(),
            value => vec![value.clone()],
        });
        let values: Vec<Value> = values.collect();
        assert!(values.iter().all(Value::is_string), "{variants:?}");
        fields.insert("type".to_owned(), "string".into());
        fields.insert("enum".to_owned(), values.into());
    }
    if fields.get("type") == Some(&json!("integer")) {
        fields.insert("format".to_owned(), "int64".into());
    }
    if let Some(Value::Object(properties)) = fields.get_mut("properties") {
        properties.values_mut().for_each(make_structural);
    }
    if let Some(items) = fields.get_mut("items") {
        make_structural(items);
    }
}

fn definition() -> Value {
    let (group, version) = STATUS_API_VERSION.split_once('/').unwrap();
    let plural = STATUS_PATH.rsplit('/').next().unwrap();
    let column = |name: &str, kind: &str, path: &str, priority: u32| json!({"name": name, "type": kind, "jsonPath": path, "priority": priority});
    let condition = |name: &str| {
        let path = format!(".status.conditions[?(@.type==\"{name}\")].status");
        column(name, "string", &path, 0)
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {
                "kind": STATUS_KIND,
                "listKind": format!("{STATUS_KIND}List"),
                "plural": plural,
                "singular": STATUS_KIND.to_lowercase(),
                "shortNames": ["nps"],
            },
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "additionalPrinterColumns": [
                    condition("Ready"),
                    condition("Stale"),
                    column("Policies", "integer", ".status.policies", 0),
                    column("Not enforced", "integer", ".status.notEnforcedCount", 0),
                    column("Revision", "integer", ".status.realisedRevision", 0),
                    column("Updated", "date", ".status.updated", 0),
                    column("Version", "string", ".status.agentVersion", 0),
                    column("Endpoints", "integer", ".status.endpoints", 1),
                    column("Driver", "string", ".status.driver", 1),
                ],
                "schema": {"openAPIV3Schema": {
                    "description": "The policy of one node, written by the agent there: what it enforces, \
                                    and what it does not. It has the name of the Node, and goes with it.",
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string"},
                        "kind": {"type": "string"},
                        "metadata": {"type": "object"},
                        "status": status_schema(),
                    },
                }},
            }],
        },
    })
}

/// A value as YAML; text is quoted as in JSON, which YAML contains.
fn write_yaml(value: &Value, indent: usize, out: &mut String) {
    let is_nested = |value: &Value| match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    let margin = " ".repeat(indent);
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if is_nested(value) {
                    writeln!(out, "{margin}{key}:").unwrap();
                    write_yaml(value, indent + 2, out);
                } else {
                    writeln!(out, "{margin}{key}: {value}").unwrap()
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut text = String::new();
                if is_nested(item) {
                    write_yaml(item, indent + 2, &mut text)
                } else {
                    writeln!(text, "{margin}  {item}").unwrap()
                }
                writeln!(out, "{margin}- {}", text.trim()).unwrap();
            }
        }
        _ => unreachable!("only nested values are written as blocks"),
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "make docs writes the file through this test"
)]
fn the_document_that_defines_the_status_is_made_from_the_types() {
    let mut text = String::from(
        "# Made from the types in crates/palisade-api/src/node_policy_status.rs; a test holds them equal.\n",
    );
    write_yaml(&definition(), 0, &mut text);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        return;
    }
    let present = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        present == text,
        "{FILE} differs: run this with PALISADE_BLESS=1"
    );
    // As a reader of YAML sees it.
    let limits = palisade_manifest::Limits::default();
    let read = palisade_manifest::parse("crd.yaml", text.as_bytes(), &limits);
    let root = palisade_manifest::to_json(&read.documents[0].root);
    assert_eq!(root, definition());
}

/// A report in which every field has a value.
fn full_report() -> NodePolicyReport {
    let text = || "text".to_owned();
    let object = |enforced: &EnforcedInstead| NotEnforcedObject {
        kind: text(),
        name: text(),
        enforced: *enforced,
        field: text(),
        reason: text(),
    };
    NodePolicyReport {
        agent_version: text(),
        driver: text(),
        updated: text(),
        revision: 1,
        realised_revision: 1,
        endpoints: 1,
        policies: 1,
        identities: 1,
        stale_sources: vec![StaleSource {
            name: text(),
            since: text(),
            reason: text(),
        }],
        not_enforced_count: 4,
        not_enforced: EnforcedInstead::ALL.iter().map(object).collect(),
        partly_closed_count: 1,
        partly_closed: vec![PartlyClosedPolicy {
            kind: text(),
            name: text(),
            field: text(),
            reason: text(),
            parts: 2,
        }],
        conditions: vec![NodeCondition {
            kind: text(),
            status: text(),
            reason: text(),
            message: text(),
            last_transition_time: text(),
        }],
    }
}

/// What a server would refuse, or drop without a word.
fn complaints(schema: &Value, value: &Value, at: &str, out: &mut Vec<String>) {
    let kind = match value {
        Value::Object(_) => "object",
        Value::Array(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "integer",
        Value::Bool(_) => "boolean",
        Value::Null => "null",
    };
    if schema["type"] != kind {
        out.push(format!("{at} is {kind}, not {}", schema["type"]));
    }
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    for (key, value) in value.as_object().unwrap_or(&none) {
        match properties.get(key) {
            Some(schema) => complaints(schema, value, &format!("{at}.{key}"), out),
            None => out.push(format!("{at}.{key} is unknown")),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            out.push(format!("{at}.{required} is missing"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        complaints(&schema["items"], item, &format!("{at}[]"), out);
    }
    let allowed = schema["enum"].as_array();
    if allowed.is_some_and(|allowed| !allowed.contains(value)) {
        out.push(format!("{at} must not be {value}"));
    }
}

#[test]
fn what_an_agent_writes_is_valid() {
    let schema = status_schema();
    let check = |status: &Value| {
        let mut out = Vec::new();
        complaints(&schema, status, "status", &mut out);
        out
    };
    let full = serde_json::to_value(full_report()).unwrap();
    assert_eq!(check(&full), [""; 0]);
    let empty = serde_json::to_value(NodePolicyReport::default()).unwrap();
    assert_eq!(check(&empty), [""; 0]);
    let mut wrong = full;
    wrong["revision"] = json!("1");
    wrong["new"] = json!(1);
    wrong["notEnforced"][0]["enforced"] = json!("Maybe");
    wrong["conditions"][0]
        .as_object_mut()
        .unwrap()
        .remove("type");
    assert_eq!(check(&wrong).len(), 4, "{:?}", check(&wrong));
    // Every column finds its field.
    let columns = &definition()["spec"]["versions"][0]["additionalPrinterColumns"];
    for column in columns.as_array().unwrap() {
        let path = column["jsonPath"].as_str().unwrap();
        let field = path.strip_prefix(".status.").unwrap();
        let field = field.split(['.', '[']).next().unwrap();
        assert!(schema["properties"][field].is_object(), "{path}");
    }
}

//! The OpenAPI document: generated from the list of operations and the API types, and compared with
//! `docs/openapi.json`. After an intended change run with `PALISADE_BLESS=1` and review the difference.

use palisade_agent::http::{OPENAPI, Operation, OperationInput, OperationOutput, operations};
use palisade_api as api;
use palisade_testkit::spelling::{is_camel_case, is_enum_value};
use palisade_workloads::access::OperationClass;
use schemars::generate::{Contract, SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::path::Path;

const TITLE: &str = "Palisade's agent";
const ABOUT: &str = "HTTP over a unix socket, by default /run/palisade/palisade.sock. Every JSON body \
carries apiVersion. The API only grows: a field keeps its name and meaning, clients ignore fields and \
values that they do not know. Anyone who can open the socket may read; changing something is for root, \
the agent's own user and the members of the API's group.";

/// The schema of an API type by name.
fn schema(types: &mut SchemaGenerator, name: &str) -> Value {
    macro_rules! named {
        ($($kind:path as $name:literal),* $(,)?) => {
            match name {
                $($name => types.subschema_for::<$kind>(),)*
                other => panic!("{other} has no schema here"),
            }
        };
    }
    let schema = named! {
        api::ApiError as "ApiError",
        api::CniAddRequest as "CniAdd",
        api::CniAddResponse as "CniAdded",
        api::CniAttachment as "CniAttachment",
        api::CniCheckRequest as "CniCheck",
        api::CniResponse as "CniDone",
        api::CniGcRequest as "CniGc",
        api::IpamReport as "IpamReport",
        api::IpamCheckReport as "IpamCheck",
        api::NameList as "NameList",
        api::NameDetail as "NameDetail",
        api::BpfEndpointList as "BpfEndpointList",
        api::BpfFlowQuery as "BpfFlowQuery",
        api::BpfFlowList as "BpfFlowList",
        api::BpfPolicyQuery as "BpfPolicyQuery",
        api::BpfPolicyList as "BpfPolicyList",
        api::BpfCheckReport as "BpfCheck",
        api::ConfigReport as "ConfigReport",
        api::EndpointDetail as "EndpointDetail",
        api::EndpointList as "EndpointList",
        api::Explanation as "Explanation",
        api::ExplainQuery as "ExplainQuery",
        api::IdentityList as "IdentityList",
        api::MonitorLine as "MonitorLine",
        api::MonitorQuery as "MonitorQuery",
        api::RecordedFlowList as "RecordedFlowList",
        api::RecordedFlowQuery as "RecordedFlowQuery",
        api::PreviewRequest as "PreviewRequest",
        api::PreviewReport as "PreviewReport",
        api::ProbeResult as "Probe",
        api::PolicyDetail as "PolicyDetail",
        api::ManifestQuery as "ManifestQuery",
        api::ManifestReport as "ManifestReport",
        api::PolicyList as "PolicyList",
        api::Status as "Status",
        api::WorkloadAddRequest as "WorkloadAdd",
        api::WorkloadAddResponse as "WorkloadAdded",
        api::WorkloadRemoveRequest as "WorkloadRemove",
        api::WorkloadRemoveResponse as "WorkloadRemoved",
    };
    schema.to_value()
}

fn generator(contract: Contract) -> SchemaGenerator {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.contract = contract;
    settings.into_generator()
}

/// Generates the document from the code.
pub(crate) fn document() -> Value {
    let mut given = generator(Contract::Serialize);
    let mut taken = generator(Contract::Deserialize);
    let mut paths = Map::new();
    for operation in operations() {
        let path = paths
            .entry(operation.path.to_owned())
            .or_insert_with(|| json!({}));
        path[operation.method.to_lowercase()] = entry(&operation, &mut given, &mut taken);
    }
    let mut schemas = given.take_definitions(true);
    for (name, schema) in taken.take_definitions(true) {
        // Query parameters are listed with their operation.
        if name.ends_with("Query") {
            continue;
        }
        // Responses may gain fields; unknown fields in requests are rejected.
        let open = |schema: &Value| {
            let mut schema = schema.clone();
            schema["additionalProperties"] = json!(true);
            schema
        };
        match schemas.get(&name) {
            None => drop(schemas.insert(name, schema)),
            Some(given) => assert_eq!(
                open(given),
                open(&schema),
                "{name} is taken and given in different forms: name them apart"
            ),
        }
    }
    schemas.sort_keys();
    json!({
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": "v1", "description": ABOUT},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn entry(operation: &Operation, given: &mut SchemaGenerator, taken: &mut SchemaGenerator) -> Value {
    let mut entry = json!({"operationId": operation.id, "summary": operation.summary});
    entry["description"] = json!(match operation.class {
        OperationClass::Probe | OperationClass::Read => "Anyone who can open the socket.",
        OperationClass::Change => "Root, the agent's own user, and the members of the API's group.",
        OperationClass::Runtime =>
            "Root, the agent's own user, and the members of the API's group; with an allowance of its own.",
    });
    match operation.input {
        OperationInput::Nothing => {}
        OperationInput::Path(parts) => {
            let parameter = |name: &&str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
            entry["parameters"] = parts.iter().map(parameter).collect();
        }
        OperationInput::Query(name) => {
            let reference = schema(taken, name);
            let reference = reference["$ref"].as_str().unwrap().to_owned();
            let name = reference.rsplit('/').next().unwrap();
            let of = taken.definitions()[name].clone();
            let required = of["required"].as_array().cloned().unwrap_or_default();
            let parameters = of["properties"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, says)| {
                    let mut says = says.clone();
                    let about = says.as_object_mut().unwrap().shift_remove("description");
                    json!({
                        "name": name,
                        "in": "query",
                        "required": required.contains(&json!(name)),
                        "description": about,
                        "schema": says,
                    })
                });
            entry["parameters"] = parameters.collect();
        }
        OperationInput::Body(name) => {
            let schema = schema(taken, name);
            entry["requestBody"] =
                json!({"required": true, "content": {"application/json": {"schema": schema}}});
        }
    }
    let (kind, says) = match operation.output {
        OperationOutput::Json(name) => ("application/json", schema(given, name)),
        OperationOutput::Lines(name) => ("application/x-ndjson", schema(given, name)),
        OperationOutput::Text(_) => ("text/plain", json!({"type": "string"})),
        OperationOutput::Object => ("application/json", json!({"type": "object"})),
    };
    let refusal = schema(given, "ApiError");
    entry["responses"] = json!({
        "200": {"description": "Done.", "content": {kind: {"schema": says}}},
        "default": {
            "description": "A refusal.",
            "content": {"application/json": {"schema": refusal}},
        },
    });
    entry
}

#[test]
#[allow(clippy::disallowed_methods, reason = "enables writing the golden file")]
fn the_document_is_the_code() {
    let text = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::write(file, text).unwrap();
        return;
    }
    assert!(
        OPENAPI == text,
        "docs/openapi.json differs: run this with PALISADE_BLESS=1 and read the difference"
    );
}

/// Every key of every object, and every value of an enumeration, that the document names.
fn spelled(of: &Value, keys: &mut Vec<String>, values: &mut Vec<String>) {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Value::Object(fields) = of {
        let properties = fields.get("properties").and_then(Value::as_object);
        keys.extend(properties.into_iter().flat_map(Map::keys).cloned());
        if fields.get("in") == Some(&json!("query")) {
            keys.extend(text(&fields["name"]));
        }
        values.extend(fields.get("const").and_then(text));
        let listed = fields.get("enum").and_then(Value::as_array);
        values.extend(listed.into_iter().flatten().filter_map(text));
        fields.values().for_each(|of| spelled(of, keys, values));
    }
    if let Value::Array(items) = of {
        items.iter().for_each(|of| spelled(of, keys, values));
    }
}

#[test]
fn keys_are_camel_case_and_values_are_spelled_as_in_kubernetes() {
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    spelled(&document(), &mut keys, &mut values);
    assert!(keys.len() > 100 && values.len() > 50, "{keys:?} {values:?}");
    keys.retain(|key| !is_camel_case(key));
    values.retain(|value| !is_enum_value(value));
    assert_eq!((keys, values), (vec![], vec![]));
}

/// The schemas of the model's enumerations name the values that are written.
#[test]
fn schemas_of_the_model_are_the_model() {
    use palisade_model::{Action, Direction, Encapsulation, TierDefault};
    let document = document();
    let values = |name: &str| {
        let mut values = Vec::new();
        spelled(
            &document["components"]["schemas"][name],
            &mut Vec::new(),
            &mut values,
        );
        json!(values)
    };
    assert_eq!(values("Direction"), json!(Direction::BOTH));
    let actions = [Action::Allow, Action::Deny, Action::Pass, Action::Log];
    assert_eq!(values("Action"), json!(actions));
    assert_eq!(
        values("TierDefault"),
        json!([TierDefault::Deny, TierDefault::Pass])
    );
    assert_eq!(values("Encapsulation"), json!(Encapsulation::ALL));
}

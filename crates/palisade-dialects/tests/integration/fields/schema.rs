//! The schemas that the projects publish, and an evaluation of them: what an API server refuses by schema.
//!
//! Validations in CEL are evaluated by functions of their own here, found by the text of the rule.

use super::samples::file_name;
use palisade_dialects::{FieldRow, FieldSupport, PolicyKind, policy_kinds};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

/// The published schema of a kind. Those of Calico's staged kinds are not in the version that is used here: they are
/// made as its API defines these, from the schema of the kind that is staged and `stagedAction`.
pub(crate) fn of_kind(kind: &PolicyKind) -> Value {
    let name = file_name(kind);
    let staged = match kind.kind {
        "StagedNetworkPolicy" => "calico-networkpolicy",
        "StagedGlobalNetworkPolicy" => "calico-globalnetworkpolicy",
        "StagedKubernetesNetworkPolicy" => "networkpolicy",
        _ => return of_file(&name),
    };
    let mut schema = of_file(staged);
    let spec = &mut schema["properties"]["spec"]["properties"];
    spec["stagedAction"] = serde_json::json!({"type": "string"});
    schema
}

fn of_file(name: &str) -> Value {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/schemas/{name}.json"));
    let text = std::fs::read_to_string(&path).expect("the schema of the kind");
    let mut file: Value = serde_json::from_str(&text).unwrap();
    assert!(
        file["source"]
            .as_str()
            .is_some_and(|source| source.contains(" v"))
    );
    let mut schema = file["schema"].take();
    // The only reference that is left: what is the same as the spec.
    let spec = schema["properties"]["spec"].clone();
    if let Some(items) = schema.pointer_mut("/properties/specs/items") {
        assert_eq!(items["$ref"], "#/properties/spec");
        *items = spec;
    }
    schema
}

/// A validation in CEL.
type Validation = fn(&Value) -> bool;

/// The validations of these schemas, by the text of the rule.
const VALIDATIONS: &[(&str, Validation)] = &[
    ("isCIDR(self)", |value| value.as_str().is_some_and(is_cidr)),
    ("self.start < self.end", |value| {
        value["start"].as_i64() < value["end"].as_i64()
    }),
    ("self.metadata.name == 'default'", |value| {
        value["metadata"]["name"] == "default"
    }),
    (
        "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.protocols) && self.protocols.exists(protocol, has(protocol.destinationNamedPort)))",
        |rule| {
            !has_item(rule, "to", &["networks", "nodes", "domainNames"])
                || !has_item(rule, "protocols", &["destinationNamedPort"])
        },
    ),
    (
        "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes) || has(peer.domainNames)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",
        |rule| {
            !has_item(rule, "to", &["networks", "nodes", "domainNames"])
                || !has_item(rule, "ports", &["namedPort"])
        },
    ),
    (
        "!(self.to.exists(peer, has(peer.networks) || has(peer.nodes)) && has(self.ports) && self.ports.exists(port, has(port.namedPort)))",
        |rule| {
            !has_item(rule, "to", &["networks", "nodes"])
                || !has_item(rule, "ports", &["namedPort"])
        },
    ),
];

/// Validations of these schemas that are not evaluated here.
const NOT_EVALUATED: &[&str] = &[];

/// Whether a text matches a pattern.
type PatternTest = fn(&str) -> bool;

/// Patterns of these schemas, by their text.
const PATTERNS: &[(&str, PatternTest)] = &[
    (
        "^(\\*\\.)?([a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\\.)+[a-zA-z0-9]([-a-zA-Z0-9_]*[a-zA-Z0-9])?\\.?$",
        is_domain_name,
    ),
    ("^.*", |_| true),
    ("^([-a-zA-Z0-9_]+[.]?)+$", |text| is_dotted(text, "-_")),
    ("^([-a-zA-Z0-9_*]+[.]?)+$", |text| is_dotted(text, "-_*")),
    ("^(\\*?\\*\\.)?([-a-zA-Z0-9_]+\\.?)+$", |text| {
        let name = text.strip_prefix("**.").or_else(|| text.strip_prefix("*."));
        is_dotted(name.unwrap_or(text), "-_")
    }),
    (
        "^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        |text| {
            let is_end = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
            text.split('.').all(|part| match part.as_bytes() {
                [] => false,
                [first, ..] => {
                    is_end(*first)
                        && part.bytes().last().is_some_and(is_end)
                        && part.bytes().all(|b| is_end(b) || b == b'-')
                }
            })
        },
    ),
    ("^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$", |text| {
        let is_end = |c: char| c.is_ascii_alphanumeric();
        let is_inside = |c: char| is_end(c) || "-_.".contains(c);
        text.is_empty()
            || text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(is_inside)
    }),
    // Every character but those of the category "other", of which the tests have control characters only.
    ("^\\PC*$", |text| !text.contains(char::is_control)),
    (
        "^(6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})|([a-zA-Z0-9]-?)*[a-zA-Z](-?[a-zA-Z0-9])*$",
        is_port_of_pattern,
    ),
    (ICMP_TYPE, |text| {
        let words = ICMP_TYPE.trim_start_matches("^(").trim_end_matches(")$");
        let mut words = words.split('|').skip(5);
        text.parse::<u8>()
            .is_ok_and(|number| number.to_string() == text)
            || words.any(|word| word == text)
    }),
];

/// The pattern of a type of ICMP: five for the numbers, then the names.
const ICMP_TYPE: &str = "^([0-9]|[1-9][0-9]|1[0-9]{2}|2[0-4][0-9]|25[0-5]|EchoReply|DestinationUnreachable|Redirect|Echo|RouterAdvertisement|RouterSelection|TimeExceeded|ParameterProblem|Timestamp|TimestampReply|Photuris|ExtendedEchoRequest|ExtendedEcho Reply|PacketTooBig|ParameterProblem|EchoRequest|MulticastListenerQuery|MulticastListenerReport|MulticastListenerDone|RouterSolicitation|RouterAdvertisement|NeighborSolicitation|NeighborAdvertisement|RedirectMessage|RouterRenumbering|ICMPNodeInformationQuery|ICMPNodeInformationResponse|InverseNeighborDiscoverySolicitation|InverseNeighborDiscoveryAdvertisement|HomeAgentAddressDiscoveryRequest|HomeAgentAddressDiscoveryReply|MobilePrefixSolicitation|MobilePrefixAdvertisement|DuplicateAddressRequestCodeSuffix|DuplicateAddressConfirmationCodeSuffix)$";

/// Parts of letters, digits and these characters, with one dot between two of them, and maybe one at the end.
fn is_dotted(text: &str, others: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    let text = text.strip_suffix('.').unwrap_or(text);
    let mut parts = text.split('.');
    parts.all(|part| !part.is_empty() && part.chars().all(is_inside))
}

/// The alternatives of the pattern are bound to one end each: what begins with a digit matches, and what ends with
/// letters, digits and single dashes of which one is a letter.
fn is_port_of_pattern(text: &str) -> bool {
    let mut after_dash = true;
    for b in text.bytes().rev() {
        match b {
            b'0'..=b'9' => after_dash = false,
            b'-' if !after_dash => after_dash = true,
            b if b.is_ascii_alphabetic() => return true,
            _ => break,
        }
    }
    text.bytes().next().is_some_and(|b| b.is_ascii_digit())
}

/// As the format `cidr` of the API server, which takes leading zeros too.
fn is_cidr_format(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let plain = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    let address = if address.contains(':') {
        address.to_owned()
    } else {
        address.split('.').map(plain).collect::<Vec<_>>().join(".")
    };
    let Ok(address) = address.parse::<IpAddr>() else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let is_number = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    is_number && length.parse::<u8>().is_ok_and(|bits| bits <= most)
}

fn has_item(of: &Value, list: &str, keys: &[&str]) -> bool {
    let items = of[list].as_array().map_or(&[][..], Vec::as_slice);
    items
        .iter()
        .any(|item| keys.iter().any(|key| item.get(key).is_some()))
}

/// As the library of CEL in the API server: no leading zeros, no IPv4 written as IPv6.
fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else {
        return false;
    };
    let (Ok(address), Ok(bits)) = (address.parse::<IpAddr>(), length.parse::<u8>()) else {
        return false;
    };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    bits.to_string() == length && bits <= most && !mapped
}

fn is_domain_name(text: &str) -> bool {
    let name = text.strip_prefix("*.").unwrap_or(text);
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_first = |b: u8| b.is_ascii_digit() || (b'A'..=b'z').contains(&b);
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let inner = |b: &u8| b.is_ascii_alphanumeric() || b"-_".contains(b);
        match bytes {
            [] => false,
            [only] => is_first(*only),
            [first, middle @ .., last] => {
                is_first(*first) && middle.iter().all(inner) && last.is_ascii_alphanumeric()
            }
        }
    };
    name.split('.').count() >= 2 && name.split('.').all(is_label)
}

/// What a schema refuses of a value, with the paths.
pub(crate) fn violations(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", &mut found);
    found
}

fn number(schema: &Value, key: &str) -> Option<i64> {
    schema[key].as_i64()
}

fn check(schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
    let mut refuse = |reason: String| found.push(format!("{path}: {reason}"));
    if schema["x-kubernetes-int-or-string"] == true {
        if !value.is_i64() && !value.is_string() {
            refuse("neither a whole number nor text".to_owned());
        } else if let Some(text) = value.as_str() {
            check_pattern(schema, text, &mut refuse);
        }
        return;
    }
    let is_of_type = match schema["type"].as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        other => panic!("the type {other} is not known here"),
    };
    if !is_of_type {
        refuse(format!("not of type {}", schema["type"]));
        return;
    }
    match value {
        Value::Object(fields) => check_object(schema, fields, path, found),
        Value::Array(items) => check_list(schema, items, path, found),
        Value::String(text) => {
            let length = i64::try_from(text.chars().count()).unwrap();
            if number(schema, "minLength").is_some_and(|least| length < least)
                || number(schema, "maxLength").is_some_and(|most| length > most)
            {
                refuse(format!("{length} characters"));
            }
            let allowed = schema["enum"].as_array();
            if allowed.is_some_and(|allowed| !allowed.contains(value)) {
                refuse(format!("{text:?} is not one of the values"));
            }
            check_pattern(schema, text, &mut refuse);
            if schema["format"] == "cidr" && !is_cidr_format(text) {
                refuse(format!("{text:?} is not of the format cidr"));
            }
        }
        Value::Number(_) if schema["type"] == "integer" => {
            let is = value.as_i64().unwrap();
            let is_out = number(schema, "minimum").is_some_and(|least| is < least)
                || number(schema, "maximum").is_some_and(|most| is > most)
                || schema["format"] == "int32" && i32::try_from(is).is_err();
            if is_out {
                refuse(format!("{is} is out of range"));
            }
        }
        _ => {}
    }
    for rule in schema["x-kubernetes-validations"]
        .as_array()
        .unwrap_or(&Vec::new())
    {
        let rule = rule.as_str().unwrap();
        if NOT_EVALUATED.contains(&rule) {
            continue;
        }
        let known = VALIDATIONS.iter().find(|(known, _)| *known == rule);
        let (_, holds) = known.unwrap_or_else(|| panic!("the validation {rule} is not known here"));
        if !holds(value) {
            found.push(format!("{path}: {rule}"));
        }
    }
}

fn check_pattern(schema: &Value, text: &str, refuse: &mut impl FnMut(String)) {
    let Some(pattern) = schema["pattern"].as_str() else {
        return;
    };
    let known = PATTERNS.iter().find(|(known, _)| *known == pattern);
    let (_, matches) = known.unwrap_or_else(|| panic!("the pattern {pattern} is not known here"));
    if !matches(text) {
        refuse(format!("{text:?} does not match the pattern"));
    }
}

/// The number of alternatives that hold; each requires fields.
fn count_alternatives(of: &Value, fields: &Map<String, Value>) -> usize {
    let has = |key: &Value| fields.contains_key(key.as_str().unwrap());
    let holds = |alternative: &&Value| alternative["required"].as_array().unwrap().iter().all(has);
    of.as_array().unwrap().iter().filter(holds).count()
}

fn check_object(schema: &Value, fields: &Map<String, Value>, path: &str, found: &mut Vec<String>) {
    let known = schema["properties"].as_object();
    // An unknown field is removed before the others are looked at.
    let is_known = |key: &str| known.is_none_or(|known| known.contains_key(key));
    let count = i64::try_from(fields.keys().filter(|key| is_known(key)).count()).unwrap();
    if number(schema, "minProperties").is_some_and(|least| count < least)
        || number(schema, "maxProperties").is_some_and(|most| count > most)
    {
        found.push(format!("{path}: {count} fields"));
    }
    if let Some(alternatives) = schema.get("anyOf")
        && count_alternatives(alternatives, fields) == 0
    {
        found.push(format!("{path}: none of the fields of anyOf"));
    }
    if let Some(alternatives) = schema.get("oneOf")
        && count_alternatives(alternatives, fields) != 1
    {
        found.push(format!("{path}: not exactly one of the fields of oneOf"));
    }
    for required in schema["required"].as_array().unwrap_or(&Vec::new()) {
        // Defaults come before validation.
        let has_default =
            |key: &str| known.is_some_and(|known| known[key].get("default").is_some());
        let key = required.as_str().unwrap();
        if !fields.contains_key(key) && !has_default(key) {
            found.push(format!("{path}: {required} is missing"));
        }
    }
    for (key, value) in fields {
        let of_field = known.and_then(|known| known.get(key));
        let of_field = of_field.or_else(|| schema.get("additionalProperties"));
        if let Some(of_field) = of_field.filter(|schema| schema.is_object()) {
            check(of_field, value, &format!("{path}.{key}"), found);
        }
    }
}

fn check_list(schema: &Value, items: &[Value], path: &str, found: &mut Vec<String>) {
    let count = i64::try_from(items.len()).unwrap();
    if number(schema, "minItems").is_some_and(|least| count < least)
        || number(schema, "maxItems").is_some_and(|most| count > most)
    {
        found.push(format!("{path}: {count} items"));
    }
    if schema["x-kubernetes-list-type"] == "set" {
        let distinct: BTreeSet<String> = items.iter().map(ToString::to_string).collect();
        if distinct.len() != items.len() {
            found.push(format!("{path}: an item twice"));
        }
    }
    for (index, item) in items.iter().enumerate() {
        check(&schema["items"], item, &format!("{path}[{index}]"), found);
    }
}

/// Every field of a schema with its path, as the tables of fields write it.
pub(crate) fn fields(schema: &Value) -> Vec<String> {
    let mut all = Vec::new();
    add_fields(schema, "", &mut all);
    all
}

fn add_fields(schema: &Value, of: &str, all: &mut Vec<String>) {
    for (key, field) in schema["properties"].as_object().into_iter().flatten() {
        let list = if field["type"] == "array" { "[]" } else { "" };
        let path = match of {
            "" => format!("{key}{list}"),
            of => format!("{of}.{key}{list}"),
        };
        all.push(path.clone());
        let inner = if list.is_empty() {
            field
        } else {
            &field["items"]
        };
        add_fields(inner, &path, all);
    }
}

#[test]
fn every_field_of_the_published_schemas_has_a_row() {
    for kind in policy_kinds() {
        let rows: BTreeMap<String, &FieldRow> = kind.rows().into_iter().collect();
        let schema = of_kind(kind);
        let fields = fields(&schema);
        assert!(fields.len() > 50, "{}: {}", kind.kind, fields.len());
        // What is inside a field that is refused needs no row; nor does what is inside `specs`, which is as in `spec`.
        let is_in_refused = |path: &String| {
            let mut all = rows.iter();
            all.any(|(of, row)| {
                row.support == FieldSupport::Refused && path.starts_with(&format!("{of}."))
            })
        };
        let specs = &schema["properties"]["specs"];
        assert!(specs.is_null() || specs["items"] == schema["properties"]["spec"]);
        let missing: Vec<&String> = fields
            .iter()
            .filter(|path| !rows.contains_key(*path) && !is_in_refused(path))
            .filter(|path| !path.starts_with("specs[]."))
            .collect();
        assert!(
            missing.is_empty(),
            "{}: without a row: {missing:?}",
            kind.kind
        );
    }
}

#[test]
fn every_validation_that_is_not_evaluated_is_in_a_schema() {
    let all: String = policy_kinds()
        .map(|kind| of_kind(kind).to_string())
        .collect();
    let quoted = |text: &str| Value::from(text).to_string();
    for rule in NOT_EVALUATED
        .iter()
        .chain(VALIDATIONS.iter().map(|(rule, _)| rule))
    {
        assert!(all.contains(&quoted(rule)), "{rule}");
    }
    for (pattern, _) in PATTERNS {
        assert!(all.contains(&quoted(pattern)), "{pattern}");
    }
}

//! What Palisade refuses against what the published schemas refuse: objects with every field, with one or two of their
//! parts changed so that a schema may refuse them.
//!
//! What the schema refuses is refused, and what it accepts is accepted, but for the differences named here. Each of
//! them occurs.

use super::json_path::{self, Step};
use super::samples::{Samples, lower, qualified};
use super::schema::{of_kind, violations};
use palisade_dialects::{PolicyKind, policy_kinds};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Objects with one change, for each valid object.
const EACH: usize = 10;
/// Objects with two changes, for each kind.
const PAIRS: usize = 500;

/// A difference: the kind of which this is true (or the beginning of several; empty: of all), why, and parts of messages.
type Difference = (&'static str, &'static str, &'static [&'static str]);

/// Reasons for which Palisade refuses what the schema alone accepts.
const STRICTER: &[Difference] = &[
    (
        "",
        "no object has such a label; of NetworkPolicy the API server refuses it too",
        &["label key", "label value", "are too long"],
    ),
    (
        "",
        "the API of label selectors",
        &[
            "is not a selector operator",
            "`values` is required with operator",
            "`values` must not be given with operator",
        ],
    ),
    ("", "the API of ports", &["is not a supported protocol"]),
    (
        "",
        "which of the two is meant is open, and the API allows one only",
        &["found zzz and"],
    ),
    (
        "",
        "no port has an empty name",
        &["a port name must not be empty"],
    ),
    (
        "AdminNetworkPolicy",
        "the documentation: start is less than end",
        &["is not below end"],
    ),
    (
        "AdminNetworkPolicy",
        "the documentation: domain names in rules that allow",
        &["can have domain names"],
    ),
    (
        "ClusterNetworkPolicy",
        "the documentation: domain names in rules that allow",
        &["can have domain names"],
    ),
    (
        "BaselineAdminNetworkPolicy",
        "the documentation: start is less than end",
        &["is not below end"],
    ),
    ("NetworkPolicy", "code of the API server", KUBERNETES_CODE),
    (
        "NetworkPolicy",
        "code of the API server",
        &["is not a port name"],
    ),
    (
        "CalicoStagedKubernetesNetworkPolicy",
        "what is proposed is a NetworkPolicy of Kubernetes, which refuses it",
        KUBERNETES_CODE,
    ),
    (
        "Calico",
        "code of Calico's API server",
        &[
            "is not an action: ",
            "is not a type: use Ingress or Egress",
            "is there twice",
            "is not a protocol: ",
            "not a selector, at byte",
            "is not an IP address",
            "is not a CIDR",
            "is not a port: 1 to 65535",
            "is not a port: a number, first:last",
            "rules with ports must name",
            "is out of range: 0 to 25",
            "a code needs a type",
            "rules with `icmp` must name",
            "is not a version of IP",
            "which is of version",
            "is not allowed beside `services`",
            "a rule cannot name a Service as its own end",
            "`name` is required, but missing",
            "`namespace` is required in what is cluster-wide",
            ".http.paths[",
            "requests of HTTP are only for",
            "doNotTrack and preDNAT need",
            "a policy with preDNAT",
        ],
    ),
    (
        "Calico",
        "as `icmp`: without the protocol it would say nothing of other packets",
        &["rules with `notICMP` must name"],
    ),
    (
        "Calico",
        "it would deny everything to all workloads",
        &["`spec` is required, but missing"],
    ),
    (
        "Calico",
        "no service account and no Service has such a name",
        &["is not a DNS subdomain", "is not a DNS label"],
    ),
    (
        "Cilium",
        "code of Cilium's agent",
        &[
            "`spec` or `specs` must be provided",
            "a rule must have at least one of ingress",
            "is not inside cidr",
            "a listener is not allowed",
            "is not a port name",
        ],
    ),
    (
        "Cilium",
        "no message has such a type",
        &["is not a type of ICMP"],
    ),
    (
        "Cilium",
        "nothing is in such a range",
        &["is below port", "`endPort` needs a port number"],
    ),
    (
        "Cilium",
        "the documentation: beside `cidr` only",
        &["`except` is only beside `cidr`"],
    ),
    (
        "Cilium",
        "no Service is meant, or two things are",
        &["one of k8sService and k8sServiceSelector"],
    ),
    (
        "Cilium",
        "no Service is meant",
        &["`serviceName` is required"],
    ),
    (
        "Cilium",
        "no Service has such a name",
        &["is not a DNS label"],
    ),
    (
        "Cilium",
        "no namespace has such a name",
        &["must not contain dots"],
    ),
    (
        "Cilium",
        "gone since Cilium 1.19",
        &["Cilium 1.19 removed it"],
    ),
    (
        "Cilium",
        "programs read it in different ways",
        &["has leading zeros", "is an IPv4 network written as IPv6"],
    ),
];

/// What the API server of Kubernetes refuses of a NetworkPolicy beyond the schema.
const KUBERNETES_CODE: &[&str] = &[
    "is not a policy type",
    "at most two policyTypes",
    "is not a port: 1 to 65535",
    "endPort",
    "has only digits",
    "ipBlock must not be combined",
    "a peer must have podSelector",
    "is not a CIDR",
    "is not an IP address",
    "strictly inside",
    "must both be written as IPv4",
    "but cidr",
];

/// What Palisade accepts although the schema refuses it.
const LAXER: &[Difference] = &[
    (
        "",
        "a peer, or a protocol, of a newer API, of which the schema knows no field, is held closed",
        &["]: 0 fields"],
    ),
    (
        "Cilium",
        "Cilium's agent takes an address without a length",
        &[": \"10.0.0.0\" is not of the format cidr"],
    ),
    (
        "Cilium",
        "Cilium's agent takes lower case, and an empty text for any protocol",
        &[".protocol: "],
    ),
    (
        "Cilium",
        "Cilium's agent takes an empty text for the default",
        &[".family: \"\" is not"],
    ),
];

/// Each part of a message, with its kind and reason.
fn each(
    differences: &'static [Difference],
) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let parts =
        |(kinds, why, parts): &'static Difference| parts.iter().map(|part| (*kinds, *why, *part));
    differences.iter().flat_map(parts)
}

/// Changes of a value for which a schema has a word; `None` removes it.
fn changes(schema: &Value, value: &Value) -> Vec<Value> {
    let all = [
        json!("text"),
        json!(7),
        json!({}),
        json!([]),
        json!(true),
        json!(1.5),
    ];
    let mut changed: Vec<Value> = all.into_iter().filter(|other| other != value).collect();
    let integers = |schema: &Value| {
        let limits = [schema["minimum"].as_i64(), schema["maximum"].as_i64()];
        let around = limits.into_iter().flatten();
        let around = around.flat_map(|limit| [limit - 1, limit, limit + 1]);
        let fixed = [-1, 0, 1, 65_535, 65_536, 2_147_483_648, 1 << 40];
        around.chain(fixed).map(Value::from).collect::<Vec<_>>()
    };
    if schema["x-kubernetes-int-or-string"] == true {
        changed.extend(integers(schema));
        changed.extend(["http", "", "80", "HTTP", "a-name-too-long-for-a-port"].map(Value::from));
    }
    match schema["type"].as_str() {
        Some("integer") => changed.extend(integers(schema)),
        Some("string") => {
            let listed = schema["enum"].as_array().cloned().unwrap_or_default();
            changed.extend(listed);
            changed.extend(TEXTS.iter().map(|text| Value::from(*text)));
            if let Some(most) = schema["maxLength"].as_u64() {
                let most = usize::try_from(most).unwrap();
                changed.extend([most, most + 1].map(|count| Value::from("a".repeat(count))));
                changed.extend([most, most + 1].map(|count| Value::from("ü".repeat(count))));
            }
        }
        Some("array") => changed.extend(lists(schema, value)),
        Some("object") if value.is_object() => {
            let no_fields = serde_json::Map::new();
            for (key, field) in schema["properties"].as_object().unwrap_or(&no_fields) {
                if value.get(key).is_none() {
                    let at = [Step::Key(key.clone())];
                    changed.push(json_path::with(value, &at, Some(least(field))));
                }
            }
        }
        _ => {}
    }
    changed
}

const TEXTS: &[&str] = &[
    "",
    "zzz",
    "TCP",
    "tcp",
    "SCTP",
    "In",
    "Exists",
    "Ingress",
    "a b",
    "-a",
    "10.0.0.0/8",
    "10.0.0.1/8",
    "010.0.0.0/8",
    "10.0.0.0/08",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0",
    "::/0",
    "fd00::/8",
    "fd00::/129",
    "::ffff:10.0.0.0/104",
    "fe80::1%eth0/64",
    "*.example.com",
    "*",
    "a.*.com",
    "localhost",
    "example.com.",
    "a_b.example.com",
    "^.example.com",
    "bücher.example",
];

/// Lists of other lengths, and one with an item twice.
fn lists(schema: &Value, value: &Value) -> Vec<Value> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let mut all = Vec::new();
    if let Some(first) = items.first() {
        all.push(Value::from(items[1..].to_vec()));
        all.push(json!([first, first]));
        all.push(json!([first, first, first]));
        if let Some(most) = schema["maxItems"].as_u64() {
            for count in [most, most + 1] {
                let distinct = |number: u64| match first.as_str() {
                    Some(text) if text.contains('/') => json!(format!("10.{number}.0.0/16")),
                    Some(_) => json!(format!("a{number}.example.com")),
                    None => first.clone(),
                };
                all.push((0..count).map(distinct).collect());
            }
        }
    }
    all
}

/// A value that a schema accepts, with as little as possible.
fn least(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("integer") => json!(schema["minimum"].as_i64().unwrap_or(1)),
        Some("string") => schema["enum"].get(0).cloned().unwrap_or_else(|| json!("a")),
        Some("array") => match schema["minItems"].as_u64() {
            Some(1..) => json!([least(&schema["items"])]),
            _ => json!([]),
        },
        Some("object") => {
            let mut value = json!({});
            let no_list = Vec::new();
            for key in schema["required"].as_array().unwrap_or(&no_list) {
                let key = key.as_str().unwrap();
                value[key] = least(&schema["properties"][key]);
            }
            value
        }
        _ => json!(80),
    }
}

/// Every place of a value that its schema knows, with the schema there.
fn places<'s>(
    schema: &'s Value,
    value: &Value,
    at: &[Step],
    all: &mut Vec<(Vec<Step>, &'s Value)>,
) {
    if !at.is_empty() {
        all.push((at.to_vec(), schema));
    }
    let mut inside = |step: Step, schema: &'s Value, value: &Value| {
        let mut at = at.to_vec();
        at.push(step);
        places(schema, value, &at, all);
    };
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if let Some(of) = schema["properties"].get(key) {
                    inside(Step::Key(key.clone()), of, value);
                } else if let Some(of) = schema
                    .get("additionalProperties")
                    .filter(|of| of.is_object())
                {
                    inside(Step::Key(key.clone()), of, value);
                }
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                inside(Step::Index(index), &schema["items"], value);
            }
        }
        _ => {}
    }
}

/// The places of the spec that a schema knows.
fn places_of_spec<'s>(schema: &'s Value, object: &Value) -> Vec<(Vec<Step>, &'s Value)> {
    let mut all = Vec::new();
    places(schema, object, &[], &mut all);
    all.retain(|(place, _)| place[0] == Step::Key("spec".to_owned()));
    all
}

/// The values that may take the place of one.
fn replacements(schema: &Value, object: &Value, place: &[Step]) -> Vec<Option<Value>> {
    let value = json_path::get(object, place).unwrap();
    let changed = changes(schema, value).into_iter().map(Some);
    std::iter::once(None).chain(changed).collect()
}

/// One of the objects that differ from one in one part of the spec.
fn changed_object(schema: &Value, object: &Value, sequence: &mut Sequence) -> Option<Value> {
    let places = places_of_spec(schema, object);
    if places.is_empty() {
        return None;
    }
    let (place, schema) = &places[sequence.below(places.len())];
    let mut values = replacements(schema, object, place);
    let value = values.swap_remove(sequence.below(values.len()));
    Some(json_path::with(object, place, value))
}

/// The numbers of a sequence that is the same in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }
}

/// The valid objects of the samples of a kind.
fn valid_objects(kind: &PolicyKind) -> Vec<Value> {
    let samples = Samples::of(kind);
    let of_rows = samples
        .rows
        .iter()
        .filter(|sample| sample.row.starts_with("spec.") && sample.row != sample.at);
    let objects = of_rows.flat_map(|sample| sample.objects(&samples.base));
    let mut all: Vec<Value> = objects.map(|(object, _)| object).collect();
    all.push(samples.base);
    let mut seen = BTreeSet::new();
    all.retain(|object| lower(object).errors.is_empty() && seen.insert(object.to_string()));
    all
}

#[test]
fn what_the_published_schema_refuses_is_refused_and_what_it_accepts_is_accepted() {
    let mut used: BTreeMap<(&str, &str, &str), usize> = BTreeMap::new();
    let mut wrong: BTreeMap<String, String> = BTreeMap::new();
    let (mut accepted, mut refused) = (0, 0);
    for kind in policy_kinds() {
        let schema = of_kind(kind);
        let valid = valid_objects(kind);
        let base = valid.last().unwrap();
        assert_eq!(
            violations(&schema, base),
            Vec::<String>::new(),
            "{}",
            kind.kind
        );
        let mut objects = Vec::new();
        let mut sequence = Sequence(1);
        // Every place of the base at least once, and some of the values there.
        for (place, schema) in places_of_spec(&schema, base) {
            let values = replacements(schema, base, &place);
            for (index, value) in values.into_iter().enumerate() {
                if index < 2 || sequence.below(4) == 0 {
                    objects.push(json_path::with(base, &place, value));
                }
            }
        }
        // The other valid objects differ in their subject or in a peer.
        for object in &valid {
            // Words that decide what else is allowed, and peers of an unknown kind.
            for (place, schema) in places_of_spec(&schema, object) {
                let is_word = matches!(place.last(), Some(Step::Key(key)) if key == "action" || key == "start");
                let value = json_path::get(object, &place).unwrap();
                if is_word || value.get("zzz").is_some() {
                    let values = replacements(schema, object, &place).into_iter();
                    objects.extend(values.map(|value| json_path::with(object, &place, value)));
                }
            }
            for _ in 0..EACH {
                objects.extend(changed_object(&schema, object, &mut sequence));
            }
        }
        for _ in 0..PAIRS {
            let first = objects[sequence.below(objects.len())].clone();
            objects.extend(changed_object(&schema, &first, &mut sequence));
        }
        for object in &objects {
            let by_schema = violations(&schema, object);
            let lowered = lower(object);
            if by_schema.is_empty() {
                accepted += 1
            } else {
                refused += 1
            }
            if by_schema.is_empty() == lowered.errors.is_empty() {
                continue;
            }
            let reasons: Vec<String> = if by_schema.is_empty() {
                lowered
                    .errors
                    .iter()
                    .map(|error| format!("{}: {}", error.field, error.reason))
                    .collect()
            } else {
                by_schema.clone()
            };
            let allowed = if by_schema.is_empty() {
                STRICTER
            } else {
                LAXER
            };
            for reason in reasons {
                let is_named = |(kinds, _, part): &(&str, &str, &str)| {
                    qualified(kind).starts_with(kinds) && reason.contains(part)
                };
                if let Some(named) = each(allowed).find(is_named) {
                    *used.entry(named).or_default() += 1;
                } else {
                    let who = if by_schema.is_empty() {
                        "the schema"
                    } else {
                        "Palisade"
                    };
                    // Once for each reason, with any value.
                    let texts = reason.split('"').step_by(2).collect::<Vec<_>>().join("…");
                    let example = format!("{reason}\n    {}", object["spec"]);
                    wrong
                        .entry(format!(
                            "{}: {who} accepts it, but {texts}",
                            qualified(kind)
                        ))
                        .or_insert(example);
                }
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} differences\n{:#?}",
        wrong.len(),
        wrong.keys()
    );
    let all = each(STRICTER).chain(each(LAXER));
    let unused: Vec<_> = all.filter(|named| !used.contains_key(named)).collect();
    assert!(unused.is_empty(), "never seen: {unused:?}");
    assert!(
        accepted > 500 && refused > 1_500,
        "{accepted} accepted, {refused} refused"
    );
}

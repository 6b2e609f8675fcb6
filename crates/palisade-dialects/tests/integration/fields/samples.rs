//! Samples of every field: a valid object of each kind with all of its fields, and for each row of the table values
//! that show what becomes of it.
//!
//! `samples/KIND.txt` (`calico-KIND.txt` for those of Calico) begins with `base:` and the object. Then each line is `ROW: A -> B` for a field that is enforced or
//! has no effect, and `ROW: A` for one that is held closed or refused; `ROW at PATH: ...` sets the values at another
//! path, above the field. `(absent)` is no value.

use super::json_path::{self, Step};
use crate::common;
use palisade_dialects::{LoweredObject, PolicyKind, lower_object};
use serde_json::Value;
use std::path::Path;

/// The values of one row.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) row: String,
    /// Where they are set.
    pub(crate) at: String,
    pub(crate) values: Vec<Option<Value>>,
}

/// The samples of a kind.
#[derive(Debug)]
pub(crate) struct Samples {
    pub(crate) base: Value,
    pub(crate) rows: Vec<Sample>,
}

/// The value in a text, as YAML.
fn value(text: &str) -> Option<Value> {
    if text == "(absent)" {
        return None;
    }
    let text = format!("{{apiVersion: v1, kind: A, metadata: {{name: a}}, value: {text}}}");
    let object = common::raw("sample", &text).remove(0);
    let json = palisade_manifest::to_json(&object.root);
    Some(json["value"].clone())
}

/// The name of a kind, which Calico's kinds begin with `Calico`: one of them has the name of Kubernetes' policy.
pub(crate) fn qualified(kind: &PolicyKind) -> String {
    match kind.group {
        "projectcalico.org" => format!("Calico{}", kind.kind),
        _ => kind.kind.to_owned(),
    }
}

/// The name of a kind in names of files.
pub(crate) fn file_name(kind: &PolicyKind) -> String {
    let name = qualified(kind).to_lowercase();
    match name.strip_prefix("calico") {
        Some(name) => format!("calico-{name}"),
        None => name,
    }
}

impl Samples {
    /// The samples of a kind.
    pub(crate) fn of(kind: &PolicyKind) -> Self {
        let name = file_name(kind);
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("tests/integration/fields/samples/{name}.txt"));
        let text = std::fs::read_to_string(&path).expect("samples of the kind");
        let text = text.replace("\n  ", " ");
        let mut base = None;
        let mut rows = Vec::new();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (head, values) = line.split_once(": ").unwrap();
            if head == "base" {
                base = value(values);
                continue;
            }
            let (row, at) = head.split_once(" at ").unwrap_or((head, head));
            rows.push(Sample {
                row: row.to_owned(),
                at: at.trim_end_matches("[]").to_owned(),
                values: values.split(" -> ").map(value).collect(),
            });
        }
        Samples {
            base: base.unwrap(),
            rows,
        }
    }
}

impl Sample {
    /// The object with each value of the sample, and where it was set.
    pub(crate) fn objects(&self, base: &Value) -> Vec<(Value, Vec<Step>)> {
        let at = json_path::parse(&self.at.replace('*', "zzz"));
        let place = json_path::place(base, &at).unwrap_or_else(|| panic!("{}: no place", self.at));
        let with = |value: &Option<Value>| json_path::with(base, &place, value.clone());
        let objects = self.values.iter().map(with);
        objects.map(|object| (object, place.clone())).collect()
    }
}

/// What an object is lowered to.
pub(crate) fn lower(object: &Value) -> LoweredObject {
    let raw = common::raw("f", &object.to_string());
    assert_eq!(raw.len(), 1, "{object}");
    lower_object(&raw[0])
}

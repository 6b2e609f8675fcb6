//! The configuration file: `parameter: value` lines, each with its place.
//!
//! A key that is no parameter is refused, with the one that was probably meant. Every problem of the
//! file is told, not the first alone. It never looks at what a value means.

use super::{Kind, PARAMETERS, Parameter, Problem};
use palisade_manifest::{Limits, Location, Node, Value};
use std::collections::BTreeMap;

/// What the file says of each parameter, and where.
pub(super) type Lines = BTreeMap<&'static str, (String, Location)>;

/// Reads a file of this name. What cannot be read is left out, and told.
pub(super) fn read(name: &str, text: &[u8]) -> (Lines, Vec<Problem>) {
    let reading = palisade_manifest::read(name, text, &Limits::default());
    let mut problems: Vec<Problem> = reading
        .problems
        .iter()
        .map(|problem| refuse(&problem.location, problem.reason.clone()))
        .collect();
    let mut lines = Lines::new();
    for (number, document) in reading.documents.iter().enumerate() {
        let root = &document.root;
        match &root.value {
            _ if number > 0 => {
                let reason = "the file has one document; this begins another";
                problems.push(refuse(&root.location, reason));
            }
            Value::Null => {}
            Value::Map(map) => {
                for entry in map.iter() {
                    match line(&entry.key, &entry.location, &entry.value) {
                        Ok(None) => {}
                        Ok(Some((parameter, text))) => {
                            lines.insert(parameter.name, (text, entry.location.clone()));
                        }
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            _ => problems.push(refuse(&root.location, "expected `parameter: value` lines")),
        }
    }
    (lines, problems)
}

fn line(
    key: &str,
    place: &Location,
    value: &Node,
) -> Result<Option<(&'static Parameter, String)>, Problem> {
    let Some(parameter) = Parameter::named(key) else {
        let known: Vec<&str> = PARAMETERS.iter().map(|p| p.name).collect();
        let meant = palisade_dialects::nearest(key, &known);
        let hint = meant.map_or_else(String::new, |name| format!("; is {name} meant?"));
        return Err(refuse(
            place,
            format!("there is no parameter {key:?}{hint}"),
        ));
    };
    let text = match &value.value {
        Value::Null => return Ok(None),
        Value::List(items) if parameter.kind.is_list() => {
            let texts: Result<Vec<_>, _> = items.iter().map(|item| text(parameter, item)).collect();
            texts?.join(",")
        }
        _ => text(parameter, value)?,
    };
    Ok(Some((parameter, text)))
}

fn text(parameter: &Parameter, node: &Node) -> Result<String, Problem> {
    // `off` is a boolean to YAML, and `0xff` a number; what counts is the word that was written.
    let written = node.source_text.as_deref();
    match &node.value {
        Value::String(text) => Ok(text.to_string()),
        Value::Bool(value) if parameter.kind == Kind::Switch => Ok(value.to_string()),
        Value::Bool(value) => Ok(written.map_or_else(|| value.to_string(), str::to_owned)),
        Value::Int(value) => Ok(written.map_or_else(|| value.to_string(), str::to_owned)),
        Value::Float(value) => Ok(written.map_or_else(|| value.to_string(), str::to_owned)),
        Value::Null | Value::List(_) | Value::Map(_) => {
            Err(refuse(&node.location, "expected one value"))
        }
    }
}

fn refuse(place: &Location, reason: impl Into<String>) -> Problem {
    Problem::File {
        place: place.to_string(),
        reason: reason.into(),
    }
}

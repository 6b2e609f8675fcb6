//! The configuration file: `parameter: value` lines, each with its location.
//!
//! An unknown key is rejected with a suggestion of the nearest parameter, a removed one with what replaces it.
//! All problems of the file are reported, not only the first. Values are not parsed here.

use crate::error::ConfigProblem;
use crate::kind::ParameterKind;
use crate::parameter::Parameter;
use crate::removed::find_removed_parameter;
use crate::sections::{find_parameter, parameters};
use palisade_manifest::{Limits, Location, ManifestNode, ManifestValue};
use std::collections::BTreeMap;

/// The text of each parameter in the file, with its location.
pub(crate) type FileParameters = BTreeMap<&'static str, (String, Location)>;

/// Parses the file with this name. Invalid entries are skipped and reported.
pub(crate) fn parse_file(name: &str, text: &[u8]) -> (FileParameters, Vec<ConfigProblem>) {
    let reading = palisade_manifest::parse(name, text, &Limits::default());
    let mut problems: Vec<ConfigProblem> = reading
        .problems
        .iter()
        .map(|problem| file_problem(&problem.location, problem.reason.clone()))
        .collect();
    let mut parameters = FileParameters::new();
    for (number, document) in reading.documents.iter().enumerate() {
        let root = &document.root;
        match &root.value {
            _ if number > 0 => {
                let reason = "the file must contain one YAML document; a second one begins here";
                problems.push(file_problem(&root.location, reason));
            }
            ManifestValue::Null => {}
            ManifestValue::Map(map) => {
                for entry in map.iter() {
                    match parse_entry(&entry.key, &entry.location, &entry.value) {
                        Ok(None) => {}
                        Ok(Some((parameter, text))) => {
                            parameters.insert(parameter.name, (text, entry.location.clone()));
                        }
                        Err(problem) => problems.push(problem),
                    }
                }
            }
            _ => problems.push(file_problem(
                &root.location,
                "expected `parameter: value` lines",
            )),
        }
    }
    (parameters, problems)
}

fn parse_entry(
    key: &str,
    location: &Location,
    value: &ManifestNode,
) -> Result<Option<(&'static Parameter, String)>, ConfigProblem> {
    let Some(parameter) = find_parameter(key) else {
        return Err(unknown_parameter(key, location));
    };
    let text = match &value.value {
        ManifestValue::Null => return Ok(None),
        ManifestValue::List(items) if parameter.kind.is_list() => {
            let texts: Result<Vec<_>, _> = items
                .iter()
                .map(|item| scalar_text(parameter, item))
                .collect();
            texts?.join(",")
        }
        _ => scalar_text(parameter, value)?,
    };
    Ok(Some((parameter, text)))
}

fn unknown_parameter(key: &str, location: &Location) -> ConfigProblem {
    if let Some(removed) = find_removed_parameter(key) {
        return ConfigProblem::Removed {
            name: removed.name,
            given_by: location.to_string(),
            replacement: removed.replacement,
        };
    }
    let names: Vec<&str> = parameters().map(|parameter| parameter.name).collect();
    let nearest = palisade_dialects::nearest(key, &names);
    let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name}?"));
    file_problem(location, format!("unknown parameter {key:?}{hint}"))
}

fn scalar_text(parameter: &Parameter, node: &ManifestNode) -> Result<String, ConfigProblem> {
    // YAML reads `off` as a boolean and `0xff` as a number; the source text counts.
    let written = node.source_text.as_deref();
    match &node.value {
        ManifestValue::String(text) => Ok(text.to_string()),
        ManifestValue::Bool(value) if parameter.kind == ParameterKind::Bool => {
            Ok(value.to_string())
        }
        ManifestValue::Bool(value) => Ok(written.map_or_else(|| value.to_string(), str::to_owned)),
        ManifestValue::Int(value) => Ok(written.map_or_else(|| value.to_string(), str::to_owned)),
        ManifestValue::Float(value) => Ok(written.map_or_else(|| value.to_string(), str::to_owned)),
        ManifestValue::Null | ManifestValue::List(_) | ManifestValue::Map(_) => {
            Err(file_problem(&node.location, "expected one value"))
        }
    }
}

fn file_problem(location: &Location, reason: impl Into<String>) -> ConfigProblem {
    ConfigProblem::File {
        location: location.to_string(),
        reason: reason.into(),
    }
}

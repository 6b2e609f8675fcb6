//! Writes objects as people and tools write them.
//!
//! The same objects appear as block YAML, flow YAML, JSON, several to a file, in a `List`, or in a
//! typed list whose items carry no kind. What is written means exactly the objects it was given.

use super::Dice;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io;
use std::path::Path;

/// A file of a manifest directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenderedFile {
    /// Its path below the directory.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// The objects, spread over files of different styles.
#[must_use]
pub fn render(dice: &mut Dice, objects: &[Value]) -> Vec<RenderedFile> {
    let count = dice.between(1, 3);
    let mut groups: Vec<Vec<Value>> = vec![Vec::new(); count];
    for object in objects {
        groups[dice.below(count)].push(object.clone());
    }
    groups
        .into_iter()
        .enumerate()
        .filter(|(_, group)| !group.is_empty())
        .map(|(n, group)| file(dice, n, group))
        .collect()
}

/// The objects in one file of plain block YAML, as a person would read them best.
#[must_use]
pub fn render_plain(objects: &[Value]) -> Vec<RenderedFile> {
    let mut text = String::new();
    for object in objects {
        text.push_str("---\n");
        block(&mut YamlStyle::default(), object, 0, &mut text);
    }
    vec![RenderedFile {
        path: "all.yaml".to_owned(),
        text,
    }]
}

/// Writes the files below a directory that exists.
///
/// # Errors
/// What the file system refuses.
pub fn write(directory: &Path, files: &[RenderedFile]) -> io::Result<()> {
    for file in files {
        let path = directory.join(&file.path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "a directory of a test's own, read only after it is whole"
        )]
        std::fs::write(path, &file.text)?;
    }
    Ok(())
}

fn file(dice: &mut Dice, n: usize, group: Vec<Value>) -> RenderedFile {
    let place = if dice.chance(20) { "more/" } else { "" };
    let (extension, text) = match dice.below(100) {
        0..12 => ("json", format!("{:#}", list(group))),
        12..24 => ("yaml", format!("{:#}\n", list(group))),
        24..36 => ("yml", documents(dice, &[list(dump(group))])),
        36..50 => ("yaml", documents(dice, &typed_lists(dump(group)))),
        _ => ("yaml", documents(dice, &group)),
    };
    RenderedFile {
        path: format!("{place}{n}.{extension}"),
        text,
    }
}

fn documents(dice: &mut Dice, values: &[Value]) -> String {
    let mut text = String::new();
    let mut style = YamlStyle {
        dice: Some(dice.clone()),
        indented_lists: dice.chance(50),
        flow: if dice.chance(25) { 8 } else { 0 },
        anchored: Vec::new(),
    };
    if dice.chance(30) {
        text.push_str("# written by hand\n");
    }
    for (n, value) in values.iter().enumerate() {
        if n > 0 || dice.chance(50) {
            text.push_str("---\n");
        }
        // An anchor ends with its document.
        style.anchored.clear();
        if dice.chance(10) {
            text.push_str("# the next document is empty\n---\n");
        }
        if dice.chance(15) {
            flow(&mut style, value, &mut text);
            text.push('\n');
        } else {
            block(&mut style, value, 0, &mut text);
        }
    }
    if dice.chance(15) {
        text.push_str("...\n");
    }
    text
}

fn list(items: Vec<Value>) -> Value {
    json!({ "apiVersion": "v1", "items": items, "kind": "List",
            "metadata": { "resourceVersion": "" } })
}

/// One list a kind, items without kind and version, as `kubectl get --raw` has them.
fn typed_lists(group: Vec<Value>) -> Vec<Value> {
    let mut lists: Vec<(Value, Value, Vec<Value>)> = Vec::new();
    for mut object in group {
        let Some(fields) = object.as_object_mut() else {
            continue;
        };
        let version = fields.shift_remove("apiVersion").unwrap_or_default();
        let kind = fields.shift_remove("kind").unwrap_or_default();
        match lists.iter_mut().find(|l| l.0 == version && l.1 == kind) {
            Some((_, _, items)) => items.push(object),
            None => lists.push((version, kind, vec![object])),
        }
    }
    lists
        .into_iter()
        .map(|(version, kind, items)| {
            let kind = format!("{}List", kind.as_str().unwrap_or(""));
            json!({ "kind": kind, "apiVersion": version,
                    "metadata": { "resourceVersion": "4711" }, "items": items })
        })
        .collect()
}

/// What a cluster adds to objects that it gives out.
fn dump(mut group: Vec<Value>) -> Vec<Value> {
    for (n, object) in group.iter_mut().enumerate() {
        let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
            continue;
        };
        meta.insert("uid".into(), format!("0b1c-{n}").into());
        meta.insert("resourceVersion".into(), format!("{}", 100 + n).into());
        meta.insert("generation".into(), 1.into());
        meta.insert(
            "managedFields".into(),
            json!([{ "manager": "kubectl", "operation": "Update", "fieldsType": "FieldsV1",
                     "fieldsV1": { "f:spec": { "f:podSelector": {} } } }]),
        );
    }
    group
}

/// How a document is laid out.
#[derive(Default)]
struct YamlStyle {
    /// Draws for quotes and the like; without, the plainest form.
    dice: Option<Dice>,
    /// Whether the dashes of a list stand further in than its key.
    indented_lists: bool,
    /// In how many of a hundred places a collection is written inline.
    flow: u32,
    /// The collections of this document that have an anchor: the first is `&a0`.
    anchored: Vec<Value>,
}

impl YamlStyle {
    fn chance(&mut self, percent: u32) -> bool {
        self.dice.as_mut().is_some_and(|dice| dice.chance(percent))
    }

    /// An alias of an equal collection that has an anchor already.
    fn alias(&mut self, value: &Value) -> Option<String> {
        let number = self
            .anchored
            .iter()
            .position(|anchored| anchored == value)?;
        self.chance(50).then(|| format!("*a{number}"))
    }

    /// An anchor for a collection that may come again.
    fn anchor(&mut self, value: &Value) -> Option<String> {
        if self.anchored.contains(value) || !self.chance(12) {
            return None;
        }
        self.anchored.push(value.clone());
        Some(format!("&a{}", self.anchored.len() - 1))
    }
}

/// Whether a folded block can hold a text as it is: one line that begins and ends with a letter.
fn can_be_folded(text: &str) -> bool {
    let edges = [text.chars().next(), text.chars().last()];
    let solid = |edge: Option<char>| edge.is_some_and(|c| !c.is_whitespace());
    edges.into_iter().all(solid) && text.chars().all(|c| !c.is_control())
}

fn block(style: &mut YamlStyle, value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                pad(indent, out);
                member(style, name, field, indent, out);
            }
        }
        Value::Array(items) => {
            for item in items {
                pad(indent, out);
                out.push_str("- ");
                match item {
                    Value::Object(fields) if !fields.is_empty() => {
                        for (n, (name, field)) in fields.iter().enumerate() {
                            if n > 0 {
                                pad(indent + 2, out);
                            }
                            member(style, name, field, indent + 2, out);
                        }
                    }
                    Value::Array(items) if !items.is_empty() => {
                        flow(style, item, out);
                        out.push('\n');
                    }
                    _ => {
                        flow(style, item, out);
                        out.push('\n');
                    }
                }
            }
        }
        scalar => {
            flow(style, scalar, out);
            out.push('\n');
        }
    }
}

fn member(style: &mut YamlStyle, name: &str, field: &Value, indent: usize, out: &mut String) {
    string(style, name, out);
    out.push(':');
    let inline = match field {
        Value::Object(fields) => fields.is_empty() || style.chance(style.flow),
        Value::Array(items) => items.is_empty() || style.chance(style.flow),
        _ => true,
    };
    let collection = match field {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    };
    if collection {
        if let Some(alias) = style.alias(field) {
            let _ = writeln!(out, " {alias}");
            return;
        }
        if let Some(anchor) = style.anchor(field) {
            let _ = write!(out, " {anchor}");
        }
    }
    match field {
        Value::String(text) if can_be_folded(text) && style.chance(4) => {
            out.push_str(" >-\n");
            // Spaces between words are where a line may be folded.
            let mut words = text.split(' ').peekable();
            pad(indent + 2, out);
            while let Some(word) = words.next() {
                out.push_str(word);
                match words.peek() {
                    Some(next) if !word.is_empty() && !next.is_empty() => {
                        out.push('\n');
                        pad(indent + 2, out);
                    }
                    Some(_) => out.push(' '),
                    None => out.push('\n'),
                }
            }
        }
        Value::String(text) if text.ends_with('\n') && !text.starts_with(' ') => {
            out.push_str(" |\n");
            for line in text.lines() {
                pad(indent + 2, out);
                out.push_str(line);
                out.push('\n');
            }
        }
        _ if inline => {
            out.push(' ');
            flow(style, field, out);
            if style.chance(4) {
                out.push_str("  # checked");
            }
            out.push('\n');
        }
        Value::Array(_) => {
            out.push('\n');
            block(
                style,
                field,
                indent + if style.indented_lists { 2 } else { 0 },
                out,
            );
        }
        _ => {
            out.push('\n');
            block(style, field, indent + 2, out);
        }
    }
}

fn flow(style: &mut YamlStyle, value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            out.push('{');
            members(style, fields, out);
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (n, item) in items.iter().enumerate() {
                if n > 0 {
                    out.push_str(", ");
                }
                flow(style, item, out);
            }
            out.push(']');
        }
        Value::String(text) => string(style, text, out),
        Value::Null if style.chance(50) => out.push('~'),
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

fn members(style: &mut YamlStyle, fields: &Map<String, Value>, out: &mut String) {
    for (n, (name, field)) in fields.iter().enumerate() {
        out.push_str(if n > 0 { ", " } else { " " });
        string(style, name, out);
        out.push_str(": ");
        flow(style, field, out);
    }
    if !fields.is_empty() {
        out.push(' ');
    }
}

fn string(style: &mut YamlStyle, text: &str, out: &mut String) {
    let simple = text.chars().all(|c| c != '\'' && !c.is_control());
    if is_plain_scalar(text) && !style.chance(20) {
        out.push_str(text);
    } else if simple && style.chance(40) {
        let _ = write!(out, "'{text}'");
    } else {
        let _ = write!(out, "{}", Value::from(text));
    }
}

/// Whether a text without quotes is still that text, to every reader of YAML.
fn is_plain_scalar(text: &str) -> bool {
    const WORDS: [&str; 10] = [
        "true", "false", "yes", "no", "on", "off", "null", "y", "n", "nan",
    ];
    let word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
    // Dotted quads, with or without a length: no number looks like them.
    let quad = text.matches('.').count() == 3
        && text.chars().all(|c| c.is_ascii_digit() || "./".contains(c));
    let known = WORDS.contains(&text.to_ascii_lowercase().as_str());
    (word || quad) && !known
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_yaml() {
        let files = render_plain(&[
            json!({ "kind": "Pod", "metadata": { "labels": { "a": "true" } },
            "spec": { "ports": [{ "port": 80, "name": "web" }, {}], "none": [], "ip": "10.0.0.1",
                      "text": "a\nb\n", "many": [["x"]] } }),
        ]);
        assert_eq!(
            files[0].text,
            r#"---
kind: Pod
metadata:
  labels:
    a: "true"
spec:
  ports:
  - port: 80
    name: web
  - {}
  none: []
  ip: 10.0.0.1
  text: |
    a
    b
  many:
  - [x]
"#
        );
    }

    #[test]
    fn what_needs_quotes() {
        for text in [
            "",
            "1",
            "true",
            "No",
            "~",
            "fd00::1",
            "a: b",
            "- x",
            "1.5",
            "0x1",
            "2026-01-01",
        ] {
            assert!(!is_plain_scalar(text), "{text}");
        }
        for text in [
            "web",
            "10.0.0.0/8",
            "networking.k8s.io/v1",
            "kubernetes.io/metadata.name",
        ] {
            assert!(is_plain_scalar(text), "{text}");
        }
    }
}

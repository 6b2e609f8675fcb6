//! The text of a policy in force as it was written, and the lines of its rules.
//!
//! Promises: whether the text is still what is in force is found by reading it again, not by its place; no other object of
//! a file is in the text (an object that shares its lines is written as YAML); an object of a server is the text of its
//! fields that policy needs, as YAML. Never: keeps a text, or decides what is in force.

use crate::snapshot_store::{SnapshotError, SnapshotStore};
use palisade_dialects::{ContentHash, lower_object};
use palisade_manifest::{
    FieldFilter, Limits, ObjectSink, Problem, RawObject, parse, read_stream, to_json, to_yaml,
};
use palisade_model::{Direction, Object, ObjectId, Policy, Rule, SourceLine};
use palisade_sys::plain_file::{self, FileError};
use std::io::{self, Read};
use std::path::Path;

/// The maximum length of the text of a policy, in bytes.
const MAX_TEXT: usize = 1 << 20;

/// The text of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyManifest {
    /// The object.
    pub id: ObjectId,
    /// The line of the text with which it begins, and its file, or the resource of a server.
    pub line: SourceLine,
    /// The text.
    pub text: String,
    /// The number of its first line in its file; 1 of a text that is not that of a file.
    pub first_line: u32,
    /// Whether it says what is in force: a file may have been changed since.
    pub is_in_force: bool,
    /// Its rules.
    pub rules: Vec<RuleLines>,
}

/// The lines of a rule, counted as those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleLines {
    /// The direction.
    pub direction: Direction,
    /// The index in the object's list of the direction.
    pub index: u32,
    /// The first line.
    pub first: u32,
    /// The last line.
    pub last: u32,
}

/// Why the text of a policy cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum PolicyManifestError {
    /// Nothing is known about its place.
    #[error("it is not known where {policy} was written")]
    NoPlace {
        /// The policy.
        policy: String,
    },
    /// Its file cannot be read.
    #[error("the file of {policy} cannot be read")]
    File {
        /// The policy.
        policy: String,
        /// The file, and the cause.
        source: FileError,
    },
    /// The snapshot of its server cannot be read.
    #[error("the snapshot with {policy} cannot be read")]
    Snapshot {
        /// The policy.
        policy: String,
        /// The cause.
        source: SnapshotError,
    },
    /// It is not there any more.
    #[error("{place} does not have {policy} any more; the version read before is in force")]
    Gone {
        /// The policy.
        policy: String,
        /// The file, or the resource of a server.
        place: String,
    },
    /// The text is too long.
    #[error("{policy} has more than {MAX_TEXT} bytes")]
    TooLong {
        /// The policy.
        policy: String,
    },
}

/// The text of the object whose policies in force are `parts`, from its file or from the snapshot of its server in the
/// state directory.
///
/// # Errors
/// If it is not known where it was written, or it cannot be read or found there.
pub fn read_policy_manifest(
    parts: &[Policy],
    state_dir: &Path,
) -> Result<PolicyManifest, PolicyManifestError> {
    let first = parts.first();
    let policy = first.map_or_else(String::new, |first| first.id.object.to_string());
    let Some((first, line)) = first.and_then(|first| Some((first, first.line.as_ref()?))) else {
        return Err(PolicyManifestError::NoPlace { policy });
    };
    let text = if line.line == 0 {
        server_text(first, line, state_dir).map_err(|source| PolicyManifestError::Snapshot {
            policy: policy.clone(),
            source,
        })?
    } else {
        let text = file_text(Path::new(&*line.file));
        Some(text.map_err(|source| PolicyManifestError::File {
            policy: policy.clone(),
            source,
        })?)
    };
    let found = text.and_then(|text| find_object(parts, line, &text));
    let Some(found) = found else {
        let place = line.file.to_string();
        return Err(PolicyManifestError::Gone { policy, place });
    };
    if found.text.len() > MAX_TEXT {
        return Err(PolicyManifestError::TooLong { policy });
    }
    Ok(found)
}

/// The text of a manifest file, as far as one may be long.
fn file_text(path: &Path) -> Result<String, FileError> {
    let read = || {
        let file = plain_file::open(path)?;
        let mut bytes = Vec::new();
        let limit = Limits::default().file_bytes as u64;
        file.take(limit).read_to_end(&mut bytes)?;
        String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    };
    read().map_err(FileError::of("reading", path))
}

/// The text of an object of a server: Kubernetes names versions, etcd has keys.
fn server_text(
    policy: &Policy,
    line: &SourceLine,
    state_dir: &Path,
) -> Result<Option<String>, SnapshotError> {
    let id = &policy.id.object;
    let (source, key) = match line.version {
        Some(_) => {
            let namespace = id.namespace.as_deref().unwrap_or_default();
            let key = format!("{}/{namespace}/{}", line.file, id.name);
            ("kubernetes", key)
        }
        None => ("etcd", line.file.to_string()),
    };
    let text = SnapshotStore::new(state_dir, source, "").find(&key)?;
    // As it was written, if it is no JSON.
    Ok(text.map(|text| match serde_json::from_str(&text) {
        Ok(value) => to_yaml(&value),
        Err(_) => text,
    }))
}

/// The object in a text, that which is in force if it is defined several times.
fn find_object(parts: &[Policy], line: &SourceLine, text: &str) -> Option<PolicyManifest> {
    let id = &parts.first()?.id.object;
    let lines: Vec<&str> = text.lines().collect();
    let defined = objects_named(id, &line.file, text).into_iter();
    let mut defined: Vec<PolicyManifest> = defined
        .filter_map(|raw| {
            if has_own_lines(&raw, &lines) {
                return manifest((id, line), &lines, &raw, parts);
            }
            // Its lines have more than the object: only that is shown.
            let text = object_yaml(&raw);
            let lines: Vec<&str> = text.lines().collect();
            let raw = objects_named(id, &line.file, &text).pop()?;
            manifest((id, line), &lines, &raw, parts)
        })
        .collect();
    let in_force = defined.iter().position(|found| found.is_in_force);
    (!defined.is_empty()).then(|| defined.swap_remove(in_force.unwrap_or(0)))
}

/// The objects of this name and kind in a text.
fn objects_named(id: &ObjectId, file: &str, text: &str) -> Vec<RawObject> {
    struct NamedObjects<'i>(&'i ObjectId, Vec<RawObject>);

    impl ObjectSink for NamedObjects<'_> {
        fn push_object(&mut self, object: RawObject) {
            if *object.name == *self.0.name && lower_object(&object).id == *self.0 {
                self.1.push(object);
            }
        }

        fn push_problem(&mut self, _: Problem) {}

        fn begin_document(&mut self) {}

        fn rollback_document(&mut self) {}
    }

    let mut named = NamedObjects(id, Vec::new());
    let all = |_: Option<&str>| -> &'static FieldFilter { &FieldFilter::All };
    let limits = Limits::default();
    // A text in memory has no errors of reading.
    let _ = read_stream(file, &mut text.as_bytes(), &limits, None, all, &mut named);
    named.1
}

/// Whether the lines of an object have it and nothing else: they are read again.
fn has_own_lines(raw: &RawObject, lines: &[&str]) -> bool {
    let first = raw.location.line;
    let excerpt = excerpt(lines, first, last_line(lines, first));
    let Some((begin, rest)) = excerpt.and_then(<[&str]>::split_first) else {
        return false;
    };
    // Before it are indentation and dashes of lists alone.
    let column = raw.location.column.saturating_sub(1) as usize;
    let Some((before, begin)) = begin.split_at_checked(column) else {
        return false;
    };
    if before.contains(|c| c != ' ' && c != '-') {
        return false;
    }
    let begin = " ".repeat(column) + begin;
    let text = [&[&*begin], rest].concat().join("\n");
    let text = text.strip_suffix(',').unwrap_or(&text);
    let read = parse("", text.as_bytes(), &Limits::default());
    match &read.documents[..] {
        [document] => {
            let is_same = ContentHash::of(&document.root) == ContentHash::of(&raw.root);
            is_same && read.problems.is_empty()
        }
        _ => false,
    }
}

fn excerpt<'t>(lines: &'t [&'t str], first: u32, last: u32) -> Option<&'t [&'t str]> {
    let index = |line: u32| line.saturating_sub(1) as usize;
    lines.get(index(first)..=index(last))
}

/// An object as YAML, with the type that it may have from its list.
fn object_yaml(raw: &RawObject) -> String {
    let mut value = to_json(&raw.root);
    if let Some(fields) = value.as_object_mut() {
        for (name, text) in [("apiVersion", &raw.api_version), ("kind", &raw.kind)] {
            fields.entry(name).or_insert_with(|| text.as_str().into());
        }
    }
    to_yaml(&value)
}

fn policy_of(object: Object) -> Option<Policy> {
    match object {
        Object::Policy(policy) => Some(policy),
        _ => None,
    }
}

/// The object of these lines, with its policies in force.
fn manifest(
    (id, line): (&ObjectId, &SourceLine),
    lines: &[&str],
    raw: &RawObject,
    in_force: &[Policy],
) -> Option<PolicyManifest> {
    let first_line = raw.location.line;
    let text = excerpt(lines, first_line, last_line(lines, first_line))?;
    let lowered = lower_object(raw).objects.into_iter();
    let written: Vec<Policy> = lowered.filter_map(policy_of).collect();
    let mut rules = Vec::new();
    for (policy, direction) in written
        .iter()
        .flat_map(|policy| Direction::BOTH.map(|direction| (policy, direction)))
    {
        for rule in policy.rules(direction).iter().flat_map(|list| &list.rules) {
            let line = rule.origin.line.as_ref().map_or(0, |line| line.line);
            if line > first_line {
                rules.push(RuleLines {
                    direction,
                    index: rule.origin.index,
                    first: line,
                    last: last_line(lines, line),
                });
            }
        }
    }
    rules.sort_unstable_by_key(|rule| (rule.direction, rule.index, rule.first));
    rules.dedup();
    Some(PolicyManifest {
        id: id.clone(),
        line: line.clone(),
        text: text.join("\n") + "\n",
        first_line,
        is_in_force: is_same(in_force, &written),
        rules,
    })
}

/// Whether both have the same policies: what they select, and their rules, by their hashes.
fn is_same(in_force: &[Policy], written: &[Policy]) -> bool {
    let is_same_list = |one: &Policy, other: &Policy, direction| {
        let hashes = |policy: &Policy| {
            let rules = &policy.rules(direction)?.rules;
            let hash = |rule: &Rule| (rule.origin.index, rule.origin.fingerprint);
            Some(rules.iter().map(hash).collect::<Vec<_>>())
        };
        hashes(one) == hashes(other)
    };
    in_force.len() == written.len()
        && in_force.iter().all(|policy| {
            let written = written.iter().find(|written| written.id == policy.id);
            written.is_some_and(|written| {
                written.subject == policy.subject
                    && Direction::BOTH
                        .into_iter()
                        .all(|direction| is_same_list(written, policy, direction))
            })
        })
}

/// The last line of the value that begins on a line: of block YAML by its indentation, of JSON by the closing bracket.
fn last_line(lines: &[&str], first: u32) -> u32 {
    let start = first.saturating_sub(1) as usize;
    let Some(begin) = lines.get(start) else {
        return first;
    };
    let column = begin
        .find(|c: char| c != ' ' && c != '-')
        .unwrap_or(begin.len());
    let is_bracket = begin
        .get(column..)
        .is_some_and(|rest| rest.starts_with(['{', '[']));
    let mut last = start;
    for (at, line) in lines.iter().enumerate().skip(start + 1) {
        let content = line.trim_start_matches(' ');
        let indent = line.len() - content.len();
        if content.is_empty() {
            continue;
        }
        let ends_document =
            indent == 0 && (content.starts_with("---") || content.starts_with("..."));
        let closes = is_bracket && indent == column && content.starts_with(['}', ']']);
        let is_inside = indent > column || (indent == column && !is_bracket);
        if closes {
            last = at;
        }
        if ends_document || closes || !is_inside {
            break;
        }
        last = at;
    }
    u32::try_from(last + 1).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SnapshotEntry;
    use palisade_manifest::extract_objects;

    const POLICIES: &str = "\
# Who may reach the database.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from:
    - podSelector: {matchLabels: {app: web}}

    # Of the database.
    ports: [{port: 5432}]
  - from: [{podSelector: {matchLabels: {app: backup}}}]
---
apiVersion: v1
kind: List
items:
- apiVersion: networking.k8s.io/v1
  kind: NetworkPolicy
  metadata: {name: web, namespace: shop}
  spec:
    podSelector: {}
    egress:
    - {}
- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

    /// The policies of an object of a text.
    fn policies(file: &str, text: &str, name: &str) -> Vec<Policy> {
        let limits = Limits::default();
        let objects = extract_objects(parse(file, text.as_bytes(), &limits), &limits).objects;
        let raw = objects.iter().find(|raw| &*raw.name == name).unwrap();
        let lowered = lower_object(raw).objects;
        lowered.into_iter().filter_map(policy_of).collect()
    }

    fn lines(found: &PolicyManifest) -> Vec<(Direction, u32, u32, u32)> {
        let rules = found.rules.iter();
        rules
            .map(|rule| (rule.direction, rule.index, rule.first, rule.last))
            .collect()
    }

    #[test]
    fn the_object_and_the_lines_of_its_rules_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("shop.yaml");
        std::fs::File::create(&file)
            .and_then(|mut file| io::Write::write_all(&mut file, POLICIES.as_bytes()))
            .unwrap();
        let manifest_of = |name| {
            let parts = policies(file.to_str().unwrap(), POLICIES, name);
            read_policy_manifest(&parts, dir.path()).unwrap()
        };
        let db = manifest_of("db");
        let all: Vec<&str> = POLICIES.lines().collect();
        assert_eq!((db.first_line, db.is_in_force), (2, true));
        assert_eq!(db.text, all[1..13].join("\n") + "\n");
        let ingress = Direction::Ingress;
        assert_eq!(lines(&db), [(ingress, 0, 8, 12), (ingress, 1, 13, 13)]);
        let web = manifest_of("web");
        assert_eq!((web.first_line, web.is_in_force), (18, true));
        assert_eq!(web.text, all[17..24].join("\n") + "\n");
        assert_eq!(lines(&web), [(Direction::Egress, 0, 24, 24)]);
    }

    #[test]
    fn json_ends_with_its_brackets() {
        let text = r#"{
  "apiVersion": "networking.k8s.io/v1",
  "kind": "NetworkPolicy",
  "metadata": {"name": "db", "namespace": "shop"},
  "spec": {
    "podSelector": {},
    "ingress": [
      {
        "ports": [{"port": 1}]
      },
      {
        "ports": [
          {"port": 2}
        ]
      }
    ]
  }
}
"#;
        let parts = policies("db.json", text, "db");
        let found = find_object(&parts, &SourceLine::new("db.json", 1), text).unwrap();
        assert_eq!(found.text, text);
        let ingress = Direction::Ingress;
        assert_eq!(lines(&found), [(ingress, 0, 8, 10), (ingress, 1, 11, 15)]);
    }

    #[test]
    fn no_other_object_is_in_the_text() {
        let policy = |name: &str| {
            format!(
                r#"{{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{{"name":"{name}","namespace":"shop"}},"spec":{{"podSelector":{{}},"ingress":[{{"ports":[{{"port":1}}]}},{{}}]}}}}"#
            )
        };
        let (db, web) = (policy("db"), policy("web"));
        let secret = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"password":"eA=="}}"#;
        let untyped = db.replace(
            r#""apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","#,
            "",
        );
        let indented = db.replace("\"spec\":{", "\"spec\":{\n");
        for (what, text) in [
            ("alone", db.clone()),
            (
                "one line",
                format!(r#"{{"apiVersion":"v1","kind":"List","items":[{secret},{db},{web}]}}"#),
            ),
            ("a line each", format!("{secret}\n{db}\n{web}\n")),
            ("on one line", format!("{secret}{db}{web}")),
            (
                "items of a line",
                format!(
                    "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[\n{secret},\n{db},\n{web}]}}"
                ),
            ),
            (
                "brackets on a line",
                format!(
                    "{{\"apiVersion\":\"v1\",\"kind\":\"List\",\"items\":[{secret},\n{indented}, {web}]}}"
                ),
            ),
            (
                "typed list",
                format!(
                    r#"{{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicyList","items":[{untyped}]}}"#
                ),
            ),
            (
                "flow in a list",
                format!("apiVersion: v1\nkind: List\nitems:\n- {secret}\n- {db}\n- {web}\n"),
            ),
        ] {
            let parts = policies("all.json", &text, "db");
            let found = find_object(&parts, &SourceLine::new("all.json", 1), &text).unwrap();
            assert!(found.is_in_force, "{what}: {found:?}");
            let shown = extract_objects(
                parse(
                    "",
                    found
                        .text
                        .trim_start_matches("- ")
                        .trim_end()
                        .trim_end_matches(',')
                        .as_bytes(),
                    &Limits::default(),
                ),
                &Limits::default(),
            );
            assert_eq!(
                (shown.objects.len(), shown.problems.len()),
                (1, 0),
                "{what}: {}",
                found.text
            );
            assert_eq!(
                shown.objects[0].to_string(),
                "NetworkPolicy shop/db",
                "{what}"
            );
            for word in ["Secret", "password", "web"] {
                assert!(!found.text.contains(word), "{what}: {}", found.text);
            }
        }
    }

    #[test]
    fn an_anchor_outside_of_the_object_is_replaced() {
        let text = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  metadata: {name: s, labels: &l {app: db}}\n- apiVersion: networking.k8s.io/v1\n  kind: NetworkPolicy\n  metadata: {name: db, namespace: shop}\n  spec:\n    podSelector: {matchLabels: *l}\n";
        let parts = policies("all.yaml", text, "db");
        let found = find_object(&parts, &SourceLine::new("all.yaml", 7), text).unwrap();
        assert!(
            found.is_in_force && !found.text.contains("*l"),
            "{}",
            found.text
        );
        assert!(found.text.contains("app: db"), "{}", found.text);
    }

    #[test]
    fn a_text_that_was_changed_is_not_in_force() {
        let parts = policies("shop.yaml", POLICIES, "db");
        for (what, with) in [("5432", "5433"), ("app: db", "app: web")] {
            let changed = POLICIES.replacen(what, with, 1);
            let found = find_object(&parts, &SourceLine::new("shop.yaml", 2), &changed).unwrap();
            assert!(!found.is_in_force, "{what}");
        }
        let moved = format!("# One line more.\n{POLICIES}");
        let found = find_object(&parts, &SourceLine::new("shop.yaml", 2), &moved).unwrap();
        assert_eq!((found.first_line, found.is_in_force), (3, true));
        let other = POLICIES.replace("name: db", "name: cache");
        assert_eq!(
            find_object(&parts, &SourceLine::new("shop.yaml", 2), &other),
            None
        );
    }

    #[test]
    fn an_object_of_a_server_is_found_in_its_snapshot() {
        let dir = tempfile::tempdir().unwrap();
        let text = r#"{"apiVersion":"networking.k8s.io/v1","kind":"NetworkPolicy","metadata":{"name":"db","namespace":"shop"},"spec":{"podSelector":{},"ingress":[{"ports":[{"port":1}]},{}]}}"#;
        let mut parts = policies("networkpolicies", text, "db");
        for (source, key, version) in [
            ("kubernetes", "networkpolicies/shop/db", Some("7".into())),
            ("etcd", "objects/shop/db", None),
        ] {
            let file = key.strip_suffix("/shop/db").filter(|_| version.is_some());
            let mut line = SourceLine::new(file.unwrap_or(key), 0);
            line.version = version;
            parts
                .iter_mut()
                .for_each(|part| part.line = Some(line.clone()));
            let error = read_policy_manifest(&parts, dir.path()).unwrap_err();
            assert!(matches!(error, PolicyManifestError::Gone { .. }), "{error}");
            let mut store = SnapshotStore::new(dir.path(), source, "here");
            store.put(SnapshotEntry {
                key,
                version: "7",
                text,
            });
            store.save().unwrap();
            let found = read_policy_manifest(&parts, dir.path()).unwrap();
            assert!(
                found.is_in_force && found.text.starts_with("apiVersion: "),
                "{found:?}"
            );
            let ingress = Direction::Ingress;
            assert_eq!(lines(&found), [(ingress, 0, 9, 10), (ingress, 1, 11, 11)]);
        }
    }

    #[test]
    fn what_cannot_be_shown_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("gone.yaml");
        let mut parts = policies(missing.to_str().unwrap(), POLICIES, "db");
        let error = read_policy_manifest(&parts, dir.path()).unwrap_err();
        assert!(matches!(error, PolicyManifestError::File { .. }), "{error}");
        parts.iter_mut().for_each(|part| part.line = None);
        let error = read_policy_manifest(&parts, dir.path()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is not known where NetworkPolicy shop/db was written"
        );
    }
}

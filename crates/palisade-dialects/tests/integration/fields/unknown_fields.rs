//! Fields that are not known, at every depth of every kind: each is reported with its path and with what is known
//! there, which is what the table has; a slip has a suggestion.

use super::json_path::{self, Step};
use super::samples::{Samples, lower};
use palisade_dialects::{ANY_OTHER, FieldRow, FieldSupport, LoweredObject, policy_kinds};
use palisade_manifest::Problem;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// How a field that is not known is reported.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Error,
    Closed,
    Warning,
}

/// Everything that is said about a path.
fn reports(lowered: &LoweredObject, path: &str) -> Vec<(Report, String)> {
    let of = |what: fn() -> Report| {
        move |problem: &Problem| (problem.field == path).then(|| (what(), problem.reason.clone()))
    };
    let errors = lowered.errors.iter().filter_map(of(|| Report::Error));
    let warnings = lowered.warnings.iter().filter_map(of(|| Report::Warning));
    let closed = lowered.closed.iter().map(|part| &part.problem);
    let closed = closed.filter_map(of(|| Report::Closed));
    errors.chain(closed).chain(warnings).collect()
}

/// The objects of a sample of which the fields are known, each with the rows of these.
fn objects(
    base: &Value,
    rows: &[(String, &'static FieldRow)],
) -> Vec<(Vec<Step>, &'static [FieldRow])> {
    let with_fields = rows.iter().filter(|(_, row)| !row.fields.is_empty());
    let mut all = Vec::new();
    for (path, row) in with_fields {
        let places = json_path::places(base, &json_path::parse(path));
        let there = places
            .into_iter()
            .find(|place| json_path::get(base, place).is_some());
        all.push((
            there.unwrap_or_else(|| panic!("{path} is not in the base")),
            row.fields,
        ));
    }
    all
}

/// The names of these rows, of those that are refused or of the others.
fn names(rows: &'static [FieldRow], are_refused: bool) -> Vec<&'static str> {
    let is_of = |row: &&FieldRow| (row.support == FieldSupport::Refused) == are_refused;
    let names = rows.iter().filter(is_of).map(FieldRow::key);
    names.filter(|name| *name != ANY_OTHER).collect()
}

/// Whether a place is in metadata, of the object or of a rule: these have no effect on traffic.
fn is_in_metadata(place: &[Step]) -> bool {
    let is_metadata = |step: &Step| matches!(step, Step::Key(key) if key == "metadata");
    place.iter().any(is_metadata)
}

/// Whether a place is inside a rule.
fn is_in_rule(place: &[Step]) -> bool {
    place.iter().any(|step| matches!(step, Step::Index(_)))
        && matches!(&place[1], Step::Key(list) if list.contains("gress"))
}

#[test]
fn at_every_depth() {
    let mut count = 0;
    for kind in policy_kinds() {
        // Each place once, in the first object that has it.
        let mut seen = BTreeSet::new();
        for base in bases(kind) {
            let rows = kind.rows();
            let rows: Vec<_> = rows
                .into_iter()
                .filter(|(path, _)| {
                    let places = json_path::places(&base, &json_path::parse(path));
                    places
                        .iter()
                        .any(|place| json_path::get(&base, place).is_some())
                })
                .collect();
            let mut all = objects(&base, &rows);
            all.push((Vec::new(), kind.fields));
            all.retain(|(place, _)| seen.insert(json_path::print(place)));
            for (place, rows) in all {
                let (known, refused) = (names(rows, false), names(rows, true));
                let mut at = place.clone();
                at.push(Step::Key("zzz".to_owned()));
                let lowered = lower(&json_path::with(&base, &at, Some(json!(1))));
                let path = json_path::print(&at);
                let shown = format!("{} {path}", kind.kind);
                let found = reports(&lowered, &path);
                let is_peer = ["from", "to"].iter().any(|list| {
                    let ends = [Step::Key((*list).to_owned()), Step::Index(0)];
                    place.len() > 2
                        && place[place.len() - 2] == ends[0]
                        && matches!(place[place.len() - 1], Step::Index(_))
                });
                if is_peer && found.is_empty() {
                    // Exactly one field is allowed, so a second one makes the peer invalid.
                    let of_peer = reports(&lowered, &json_path::print(&place));
                    assert_eq!(of_peer.len(), 1, "{shown}: {lowered:?}");
                    assert_eq!(of_peer[0].0, Report::Error, "{shown}");
                    let list = format!("exactly one of {} is required", known.join(", "));
                    assert!(of_peer[0].1.contains(&list), "{shown}: {}", of_peer[0].1);
                    count += 1;
                    continue;
                }
                assert_eq!(found.len(), 1, "{shown}: {lowered:?}");
                let expected = match place.first() {
                    None => Report::Warning,
                    _ if is_in_metadata(&place) => Report::Warning,
                    _ if is_in_rule(&place) => Report::Closed,
                    _ => Report::Error,
                };
                assert_eq!(found[0].0, expected, "{shown}: {}", found[0].1);
                // In the order of the table or not.
                let said = &found[0].1;
                let (_, list) = said
                    .split_once("known fields: ")
                    .unwrap_or_else(|| panic!("{shown}: {said}"));
                let mut listed: Vec<&str> = list.split(", ").collect();
                // What is refused may be listed or not.
                listed.retain(|name| !refused.contains(name));
                let mut wanted = known.clone();
                listed.sort_unstable();
                wanted.sort_unstable();
                assert_eq!(listed, wanted, "{shown}");
                if expected == Report::Closed {
                    assert!(said.contains("the rule fails closed"), "{said}");
                    let objects = lower(&base).objects;
                    assert!(objects.is_empty() || objects != lowered.objects, "{shown}");
                }
                slips(&base, &place, &known);
                count += 1;
            }
        }
    }
    assert!(count > 200, "{count}");
}

/// The base, and every object that a sample makes from it without an error.
fn bases(kind: &palisade_dialects::PolicyKind) -> Vec<Value> {
    let samples = Samples::of(kind);
    let of_rows = samples
        .rows
        .iter()
        .filter(|sample| sample.at != sample.row.trim_end_matches("[]"));
    let objects = of_rows.flat_map(|sample| sample.objects(&samples.base));
    let valid = objects
        .map(|(object, _)| object)
        .filter(|object| lower(object).errors.is_empty());
    std::iter::once(samples.base.clone()).chain(valid).collect()
}

/// A slip in the name of each field is an error with a suggestion, never a part held closed.
fn slips(base: &Value, place: &[Step], known: &[&str]) {
    for name in known.iter().filter(|name| name.len() >= 6) {
        let slip = &name[..name.len() - 1];
        if known.contains(&slip) {
            continue;
        }
        let mut at = place.to_vec();
        at.push(Step::Key(slip.to_owned()));
        let lowered = lower(&json_path::with(base, &at, Some(json!(1))));
        let path = json_path::print(&at);
        let found = reports(&lowered, &path);
        assert_eq!(found.len(), 1, "{path}: {lowered:?}");
        assert_eq!(found[0].0, Report::Error, "{path}: {}", found[0].1);
        assert!(
            found[0].1.ends_with(&format!("did you mean `{name}`?")),
            "{path}: {}",
            found[0].1
        );
    }
}

//! Files of cases: one object in a line, then what it results in, indented. `#` begins a comment.
//!
//! To accept a change, run with `PALISADE_BLESS=1` and review the difference.

use super::{EntryStatus, lowering};
use palisade_manifest::Problem;
use std::path::Path;

/// The problems of one object, one a line; `valid` if there are none.
pub(crate) fn problem_lines(manifest: &str) -> Vec<String> {
    let lowering = lowering("f", manifest);
    assert_eq!(lowering.entries.len(), 1, "{manifest}");
    let entry = &lowering.entries[0];
    let is_accepted = entry.status == EntryStatus::Accepted;
    assert_eq!(is_accepted, lowering.errors.is_empty(), "{manifest}");
    assert!(is_accepted || entry.objects.is_empty(), "{manifest}");
    let id = entry.id.to_string();
    let shown = |what: &'static str| {
        let id = &id;
        move |p: &Problem| {
            assert_eq!(p.object.as_ref(), Some(id), "{manifest}");
            format!("  {what} {}: {}", p.field, p.reason)
        }
    };
    let errors = lowering.errors.iter().map(shown("error"));
    let warnings = lowering.warnings.iter().map(shown("warning"));
    let closed = lowering.closed.iter().map(shown("closed"));
    let mut all: Vec<String> = errors.chain(closed).chain(warnings).collect();
    if all.is_empty() {
        all.push("  valid".to_owned());
    }
    all
}

/// Compares a file of cases with what they result in: of each line, the first word and the rest.
#[allow(
    clippy::disallowed_methods,
    reason = "a switch of this test, and a file of the source tree"
)]
pub(crate) fn check_cases(file: &str, problems: impl Fn(&str, &str) -> Vec<String>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let expected = std::fs::read_to_string(&path).unwrap();
    let mut found = String::new();
    let mut count = 0;
    for line in expected.lines().filter(|line| !line.starts_with("  ")) {
        found += line;
        found += "\n";
        if let Some((word, written)) = line.split_once(' ').filter(|_| !line.starts_with('#')) {
            count += 1;
            for problem in problems(word, written) {
                found += &problem;
                found += "\n";
            }
        }
    }
    assert!(count >= 120, "only {count} cases");
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    } else {
        assert!(found == expected, "{found}");
    }
}

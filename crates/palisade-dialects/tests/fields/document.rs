//! `docs/dialects.md`, made from the tables.

use palisade_dialects::{FieldRow, FieldSupport, PolicyKind, policy_kinds};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# What is enforced of each policy API

This page is made from the tables that a test compares with the code, row by row (`crates/palisade-dialects`); \
`make docs` writes it.

- *enforced*: as the API says.
- *held closed*: accepted, but not served or not understood by this build. It never opens anything: a rule that allows \
matches nothing by it. `palisade validate`, `palisade status`, `palisade policy list` and `policy get`, the \
NodePolicyStatus and the condition of the policy (`Accepted`; `Valid` for Cilium's kinds) name each such part with its \
path and its reason.
- *refused*: an error. The last valid version of the policy stays in force; without one, the pods that it selects are \
isolated.
- *no effect*: accepted; it has nothing to do with traffic.

A field that has no row is reported with its path. A likely slip (`ingres`) is an error with a suggestion, and so is any \
other one in `spec` or in the subject, since it may change what everything else means. Inside a rule the rule is held \
closed. At the top of the object and in `metadata` it is a warning.
";

fn document() -> String {
    let mut out = HEAD.to_owned();
    for kind in policy_kinds() {
        writeln!(
            out,
            "\n## {} ({}/{})\n",
            kind.kind, kind.group, kind.version
        )
        .unwrap();
        let mut names = vec![
            format!("`{}`", kind.kind.to_lowercase()),
            format!("`{}`", kind.plural),
        ];
        names.extend(kind.short_names.iter().map(|name| format!("`{name}`")));
        let example = if kind.is_namespaced {
            "NAMESPACE/NAME"
        } else {
            "NAME"
        };
        // Another kind may have the same name.
        let is_shared = |other: &PolicyKind| other.kind == kind.kind && other.group != kind.group;
        let group = if policy_kinds().any(is_shared) {
            format!(".{}", kind.group)
        } else {
            String::new()
        };
        writeln!(
            out,
            "`palisade policy get {}{group}/{example}`; other words for the kind: {}.\n",
            kind.kind.to_lowercase(),
            names[1..].join(", ")
        )
        .unwrap();
        for note in kind.notes {
            writeln!(out, "{note}\n").unwrap();
        }
        let rows = match nearest_kind(kind) {
            Some((like, rows)) => {
                writeln!(out, "As {}, but for:\n", like.kind).unwrap();
                rows
            }
            None => kind.rows(),
        };
        out += "| field | | |\n|---|---|---|\n";
        for (path, row) in rows {
            let support = match row.support {
                FieldSupport::Enforced => "enforced",
                FieldSupport::HeldClosed(_) => "held closed",
                FieldSupport::Refused => "refused",
                FieldSupport::NoEffect => "no effect",
            };
            writeln!(out, "| `{path}` | {support} | {} |", row.note).unwrap();
        }
    }
    out
}

/// An earlier kind of the group with nearly the same rows, and the rows that it does not have.
fn nearest_kind(
    kind: &PolicyKind,
) -> Option<(&'static PolicyKind, Vec<(String, &'static FieldRow)>)> {
    let earlier = policy_kinds().take_while(|other| other.kind != kind.kind);
    let mut earlier = earlier.filter(|other| other.group == kind.group);
    earlier.find_map(|other| {
        let of_other = other.rows();
        let shown = |row: &FieldRow| (row.support, row.note);
        let is_there = |(path, row): &(String, &FieldRow)| {
            let found = of_other.iter().find(|(other, _)| other == path);
            found.is_some_and(|(_, other)| shown(other) == shown(row))
        };
        let (same, different): (Vec<_>, Vec<_>) = kind.rows().into_iter().partition(is_there);
        let paths: BTreeSet<&String> = same
            .iter()
            .chain(&different)
            .map(|(path, _)| path)
            .collect();
        let has_all = of_other.iter().all(|(path, _)| paths.contains(path));
        (has_all && different.len() * 10 < same.len()).then_some((other, different))
    })
}

#[test]
fn the_document_of_dialects_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/dialects.md");
    let made = document();
    if std::env::var_os("PALISADE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        made == written,
        "docs/dialects.md is not current: make docs"
    );
}

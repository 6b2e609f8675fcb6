//! `docs/dialects.md` and a page for each kind in `docs/dialects`, made from the tables.

use palisade_dialects::{FieldRow, FieldSupport, PolicyKind, policy_kinds};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

const HEAD: &str = "\
# What is enforced of each policy API

Each policy kind has a page with all of its fields. The pages are generated from tables that a test compares with the \
code, row by row, and with the schemas that the projects publish (`crates/palisade-dialects`); `make docs` writes them.

Each field has one of four outcomes:

- *enforced*: as the API says.
- *held closed*: accepted, but this build does not serve or does not understand it. It never opens anything: a rule that \
allows matches nothing by it. `palisade validate`, `palisade status`, `palisade policy list` and `policy get`, the \
NodePolicyStatus and the condition of the policy (`Accepted`; `Valid` for Cilium's kinds) name each such part with its \
path and its reason.
- *refused*: an error. The last valid version of the policy stays in force; without one, the pods that it selects are \
isolated.
- *no effect*: accepted; the field does not concern traffic.

A field that has no row is reported with its path. A likely slip (`ingres`) is an error with a suggestion, and so is any \
other one in `spec` or in the subject, since it may change what everything else means. Inside a rule the rule is held \
closed. At the top of the object and in `metadata` it is a warning.
";

/// No page is larger; a kind with more fields has a page for each direction as well.
const LARGEST_PAGE: usize = 15_000;

/// The pages, by their path from the root.
fn documents() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut index = HEAD.to_owned();
    index += "\n| kind | API |\n|---|---|\n";
    for kind in policy_kinds() {
        let name = page_name(kind);
        let api = format!("{}/{}", kind.group, kind.version);
        writeln!(index, "| [{}](dialects/{name}.md) | `{api}` |", kind.kind).unwrap();
        pages.extend(pages_of(kind));
    }
    pages.insert("docs/dialects.md".to_owned(), index);
    pages
}

/// The name of a kind's page; another kind may have the same name in another group.
fn page_name(kind: &PolicyKind) -> String {
    let name = kind.kind.to_lowercase();
    if has_namesake(kind) {
        format!("{name}.{}", kind.group)
    } else {
        name
    }
}

fn has_namesake(kind: &PolicyKind) -> bool {
    policy_kinds().any(|other| other.kind == kind.kind && other.group != kind.group)
}

/// The pages of a kind, by their path: one, or with its rules on pages of their own.
fn pages_of(kind: &PolicyKind) -> BTreeMap<String, String> {
    let name = page_name(kind);
    let path = |suffix: &str| format!("docs/dialects/{name}{suffix}.md");
    let opening = opening(kind);
    let (like, rows) = match nearest_kind(kind) {
        Some((like, rows)) => {
            let link = format!("[{}]({}.md)", like.kind, page_name(like));
            (format!("As {link}, but for:\n\n"), rows)
        }
        None => (String::new(), kind.rows()),
    };
    let whole = format!("{opening}{like}{}", table(&rows));
    if whole.len() <= LARGEST_PAGE {
        return [(path(""), whole)].into();
    }
    let mut pages = BTreeMap::new();
    let mut rest = rows;
    let mut links = String::new();
    for direction in ["ingress", "egress"] {
        let prefix = format!("spec.{direction}");
        let (rules, others): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|(field, _)| field.starts_with(&prefix));
        rest = others;
        let heading = format!("{}: {direction}", kind.kind);
        let page = format!(
            "# {heading}\n\nThe other fields are those of [{}]({name}.md).\n\n{}",
            kind.kind,
            table(&rules)
        );
        pages.insert(path(&format!("-{direction}")), page);
        writeln!(
            links,
            "- The fields of `{prefix}` and `{prefix}Deny`: [{heading}]({name}-{direction}.md)"
        )
        .unwrap();
    }
    let page = format!("{opening}{like}{links}\n{}", table(&rest));
    pages.insert(path(""), page);
    pages
}

/// The heading of a kind's page, its names, and the notes on it.
fn opening(kind: &PolicyKind) -> String {
    let mut out = String::new();
    writeln!(out, "# {} ({}/{})\n", kind.kind, kind.group, kind.version).unwrap();
    let mut names = vec![format!("`{}`", kind.plural)];
    names.extend(kind.short_names.iter().map(|name| format!("`{name}`")));
    let example = if kind.is_namespaced {
        "NAMESPACE/NAME"
    } else {
        "NAME"
    };
    writeln!(
        out,
        "`palisade policy get {}/{example}`; other words for the kind: {}. \
         [The outcomes of fields](../dialects.md) are explained once for all kinds.\n",
        page_name(kind),
        names.join(", ")
    )
    .unwrap();
    for note in kind.notes {
        writeln!(out, "{note}\n").unwrap();
    }
    out
}

fn table(rows: &[(String, &FieldRow)]) -> String {
    let mut out = "| field | outcome | |\n|---|---|---|\n".to_owned();
    for (path, row) in rows {
        let support = match row.support {
            FieldSupport::Enforced => "enforced",
            FieldSupport::HeldClosed(_) => "held closed",
            FieldSupport::Refused => "refused",
            FieldSupport::NoEffect => "no effect",
        };
        writeln!(out, "| `{path}` | {support} | {} |", row.note).unwrap();
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
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let pages = documents();
    let is_blessed = std::env::var_os("PALISADE_BLESS").is_some();
    if is_blessed {
        std::fs::create_dir_all(root.join("docs/dialects")).unwrap();
    }
    for entry in std::fs::read_dir(root.join("docs/dialects")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("docs/dialects/{name}");
        if is_blessed && !pages.contains_key(&path) {
            std::fs::remove_file(root.join(path)).unwrap();
        } else {
            assert!(pages.contains_key(&path), "{path} has no kind: make docs");
        }
    }
    for (path, page) in &pages {
        if is_blessed {
            std::fs::write(root.join(path), page).unwrap();
        }
        let written = std::fs::read_to_string(root.join(path)).unwrap_or_default();
        assert!(*page == written, "{path} is not current: make docs");
    }
}

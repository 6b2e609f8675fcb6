//! The house rules, as tests: crate edges, purity, module docs, lengths, circles, orphans, names, documents.
//!
//! Each rule is a pure function from text to complaints, and each is shown to complain. A rule is
//! changed here and in CONTRIBUTING.md together.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: it runs cargo metadata, and a panic is its verdict"
)]

mod circles;
mod code;
mod documents;
mod edges;
mod exceptions;
mod files;
mod locals;
mod modules;
mod names;
mod sizes;
mod structure;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of the workspace: its path from the root, and its text.
struct Source {
    path: String,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

/// Every Rust file of ours, sorted.
fn sources() -> Vec<Source> {
    let root = root();
    let mut found = Vec::new();
    for folder in ["crates", "testkit", "tests", "fuzz"] {
        collect(&root, &root.join(folder), &[".rs"], &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "the files were not found");
    found
}

/// The documents of the repository, by their path.
fn documents() -> BTreeMap<String, String> {
    let root = root();
    let mut found = Vec::new();
    collect(&root, &root, &[".md"], &mut found);
    assert!(found.len() > 20, "the documents were not found");
    found
        .into_iter()
        .map(|source| (source.path, source.text))
        .collect()
}

/// The texts below a folder whose names end so; build results and hidden folders are left out.
fn collect(root: &Path, folder: &Path, endings: &[&str], found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(root, &path, endings, found);
        } else if path.is_file() && endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(Source {
                path: path.strip_prefix(root).unwrap().display().to_string(),
                text: String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned(),
            });
        }
    }
}

/// The packages of the workspace as cargo sees them, without resolving anything.
fn metadata() -> serde_json::Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--format-version",
            "1",
            "--no-deps",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn none(complaints: &[String]) {
    let count = complaints.len();
    assert!(
        complaints.is_empty(),
        "{count} complaints:\n{}",
        complaints.join("\n")
    );
}

fn over_files(rule: impl Fn(&Source) -> Vec<String>) {
    let complaints: Vec<_> = sources().iter().flat_map(rule).collect();
    none(&complaints);
}

#[test]
fn crates_use_only_what_the_architecture_allows() {
    none(&edges::forbidden(&edges::packages(&metadata())));
}

#[test]
fn pure_crates_are_no_std_and_use_no_io() {
    let packages = edges::packages(&metadata());
    let mut complaints = edges::impure_dependencies(&packages);
    for source in sources() {
        complaints.extend(edges::impure_source(&source.path, &source.text));
    }
    none(&complaints);
}

#[test]
fn a_driver_is_named_in_its_own_files_only() {
    over_files(|source| edges::driver_names(&source.path, &source.text));
}

#[test]
fn every_file_opens_with_what_it_is_for() {
    over_files(|source| files::module_docs(&source.path, &source.text));
}

#[test]
fn no_file_is_long() {
    over_files(|source| files::length(&source.path, &source.text));
}

#[test]
fn a_type_name_means_one_thing() {
    let sources = sources();
    let files = sources.iter().map(|source| (&*source.path, &*source.text));
    none(&names::repeated_types(files));
}

#[test]
fn variables_and_fields_are_named_by_nouns() {
    over_files(|source| locals::banned(&source.path, &source.text));
}

#[test]
fn files_use_each_other_in_one_direction() {
    let sources = sources();
    let files: Vec<_> = sources
        .iter()
        .map(|source| (&*source.path, &*source.text))
        .collect();
    none(&circles::compare(
        &circles::circles(&files),
        exceptions::CIRCLES,
    ));
}

#[test]
fn functions_are_short() {
    let sources = sources();
    let long: Vec<_> = sources
        .iter()
        .flat_map(|source| sizes::long_functions(&source.path, &source.text))
        .collect();
    let cap = sizes::LONGEST_FUNCTION;
    none(&sizes::compare(
        &long,
        exceptions::LONG_FUNCTIONS,
        cap,
        "lines",
    ));
}

#[test]
fn types_have_few_fields() {
    let sources = sources();
    let wide: Vec<_> = sources
        .iter()
        .flat_map(|source| sizes::wide_types(&source.path, &source.text))
        .collect();
    let cap = sizes::MOST_FIELDS;
    none(&sizes::compare(
        &wide,
        exceptions::WIDE_TYPES,
        cap,
        "fields",
    ));
}

#[test]
fn no_crate_of_the_agent_is_large() {
    let sources = sources();
    let files: Vec<_> = sources
        .iter()
        .map(|source| (&*source.path, &*source.text))
        .collect();
    let crates = edges::AGENT_CRATES;
    for (name, lines) in sizes::crate_lines(crates, &files) {
        println!("palisade-{name}: {lines} lines of code");
    }
    none(&sizes::large_crates(crates, &files));
}

#[test]
fn the_impl_of_a_type_stands_in_few_files() {
    let sources = sources();
    let files = sources.iter().map(|source| (&*source.path, &*source.text));
    none(&structure::spread_impls(files));
}

#[test]
fn names_are_words_of_the_field() {
    over_files(|source| names::banned(&source.path, &source.text));
}

#[test]
fn nothing_is_left_for_later() {
    over_files(|source| files::left_for_later(&source.path, &source.text));
}

#[test]
fn unsafe_code_is_in_one_crate() {
    over_files(|source| files::unsafe_outside_sys(&source.path, &source.text));
}

#[test]
fn no_file_is_a_drawer_of_odds() {
    over_files(|source| files::drawer(&source.path));
}

#[test]
fn the_inner_crates_know_no_dialect() {
    over_files(|source| files::dialect_names(&source.path, &source.text));
}

#[test]
fn tests_skip_in_one_form() {
    over_files(|source| files::skips_in_other_words(&source.path, &source.text));
}

#[test]
fn tests_that_need_root_are_in_the_kernel_programs() {
    over_files(|source| files::kernel_tests(&source.path, &source.text));
}

#[test]
fn a_crate_has_one_program_of_a_kind() {
    none(&edges::needless_programs(&metadata()));
}

#[test]
fn every_file_is_reached_from_a_crate_root() {
    let sources = sources();
    let texts = sources
        .iter()
        .map(|source| (source.path.clone(), source.text.clone()))
        .collect();
    let roots = edges::target_roots(&metadata(), &root());
    none(&modules::orphans(&roots, &texts));
}

#[test]
fn every_dependency_is_from_crates_io() {
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    none(&edges::foreign_sources(&lock));
}

#[test]
fn every_ban_gives_its_reason() {
    let clippy = fs::read_to_string(root().join("clippy.toml")).unwrap();
    none(&files::bans_without_reason(&clippy));
}

#[test]
fn links_of_documents_lead_somewhere() {
    let root = root();
    let exists = |path: &str| root.join(path).exists();
    none(&documents::broken_links(&documents(), exists));
}

#[test]
fn documents_are_short() {
    let all = documents();
    let sizes = all
        .iter()
        .flat_map(|(path, text)| documents::size(path, text));
    none(&sizes.collect::<Vec<_>>());
}

#[test]
fn documents_that_are_named_exist() {
    let root = root();
    let mut texts = Vec::new();
    // Everything that people read or run: code, scripts, the chart, documents.
    collect(&root, &root, &[""], &mut texts);
    texts.retain(|text| !text.path.starts_with("tests/tests/tidy/"));
    let exists = |path: &str| root.join(path).exists();
    let missing = texts
        .iter()
        .flat_map(|text| documents::missing_documents(&text.path, &text.text, exists));
    none(&missing.collect::<Vec<_>>());
}

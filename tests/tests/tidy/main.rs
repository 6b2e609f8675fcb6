//! The house rules, as tests: crate edges, purity, module docs, file length, orphans, names.
//!
//! Each rule is a pure function from text to complaints, and each is shown to complain. A rule is
//! changed here and in ARCHITECTURE.md together.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test: it runs cargo metadata, and a panic is its verdict"
)]

mod code;
mod edges;
mod files;
mod locals;
mod modules;
mod names;
mod structure;

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
        collect(&root, &root.join(folder), &mut found);
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    assert!(found.len() > 20, "the files were not found");
    found
}

fn collect(root: &Path, folder: &Path, found: &mut Vec<Source>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            collect(root, &path, found);
        } else if name.ends_with(".rs") {
            found.push(Source {
                path: path.strip_prefix(root).unwrap().display().to_string(),
                text: fs::read_to_string(&path).unwrap(),
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
fn modules_use_each_other_in_one_direction() {
    let sources = sources();
    let files = sources.iter().map(|source| (&*source.path, &*source.text));
    none(&structure::circles(files));
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
fn tests_that_need_root_are_named_so() {
    over_files(|source| files::kernel_names(&source.path, &source.text));
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

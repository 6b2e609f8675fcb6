//! Every kept input of every fuzz target, replayed; and the manifests of this tree, which were never fuzzed.

#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests read files, and fail by panicking"
)]

use palisade_fuzzing::{FuzzFunction, TARGETS, corpus};
use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files of a folder and of the folders in it, in the order of their names.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let list = if path.is_dir() { &mut open } else { &mut files };
            list.push(path);
        }
    }
    files.sort();
    files
}

/// Calls a target with each input; those that made it panic.
fn replay(target: FuzzFunction, inputs: &[Vec<u8>]) -> Vec<String> {
    let panics = |input: &&Vec<u8>| catch_unwind(|| target(input)).is_err();
    let found = inputs.iter().filter(panics);
    found
        .map(|input| input.escape_ascii().to_string())
        .collect()
}

fn corpus_text(name: &str) -> String {
    std::fs::read_to_string(root().join(format!("fuzz/corpus/{name}.txt"))).unwrap()
}

#[test]
fn no_kept_input_makes_a_target_panic() {
    for (name, target) in TARGETS {
        let inputs = corpus::parse(&corpus_text(name)).unwrap();
        let count = inputs.len();
        assert!(count > 50, "{name} has {count} inputs");
        assert_eq!(replay(target, &inputs), [""; 0], "{name}");
        println!("account: fuzz: {name}: {count} kept inputs");
    }
}

#[test]
fn no_manifest_of_this_tree_makes_a_target_panic() {
    let mut manifests = files(&root().join("examples"));
    manifests.extend(files(&root().join("crates/palisade-dialects/tests/golden")));
    manifests.extend(files(&root().join("crates/palisade/tests/scenarios")));
    assert!(manifests.len() > 40);
    let read = |path: &PathBuf| std::fs::read(path).unwrap();
    let manifests: Vec<Vec<u8>> = manifests.iter().map(read).collect();
    for (name, target) in TARGETS {
        assert_eq!(replay(target, &manifests), [""; 0], "{name}");
    }
}

/// What is fuzzed is what is replayed.
#[test]
fn every_fuzz_target_is_a_function_of_this_crate() {
    let names = |files: Vec<PathBuf>| -> BTreeSet<String> {
        let stem = |path: &PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
        files.iter().map(stem).collect()
    };
    let known: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let targets = files(&root().join("fuzz/fuzz_targets"));
    for target in &targets {
        let name = target.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(target).unwrap();
        let call = format!("fuzz_target!(|bytes: &[u8]| palisade_fuzzing::{name}(bytes));");
        assert!(text.contains(&call), "{name} does more or less than {call}");
    }
    assert_eq!(names(targets), known);
}

/// The corpus is for every checkout: small, and minimised (`scripts/fuzz keep`).
#[test]
fn the_corpus_is_small() {
    for (name, _) in TARGETS {
        let size = corpus_text(name).len();
        assert!(size <= 200_000, "{name} has {size} bytes");
    }
}

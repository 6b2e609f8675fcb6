//! Which files a crate reaches through `mod`, and which it does not.

use std::collections::{BTreeMap, BTreeSet};

use crate::code;

/// Files, by path, that no crate root reaches.
pub(crate) fn orphans(roots: &[String], texts: &BTreeMap<String, String>) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<(String, bool)> = roots.iter().map(|root| (root.clone(), true)).collect();
    while let Some((path, is_root)) = open.pop() {
        let Some(text) = texts.get(&path) else {
            continue;
        };
        if !reached.insert(path.clone()) {
            continue;
        }
        for candidate in children(&path, is_root, text) {
            if texts.contains_key(&candidate) {
                open.push((candidate, false));
            }
        }
    }
    // Fuzz targets are outside the workspace, and cargo metadata does not list them.
    let concerns = |path: &&String| !path.starts_with("fuzz/");
    texts
        .keys()
        .filter(concerns)
        .filter(|path| !reached.contains(*path))
        .map(|path| format!("{path}: no crate reaches it"))
        .collect()
}

/// Where the modules that a file declares may live.
fn children(path: &str, is_root: bool, text: &str) -> Vec<String> {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let home = if is_root || stem == "mod" {
        folder.to_owned()
    } else {
        format!("{folder}/{stem}")
    };
    let code = code::without_comments(text);
    let mut found = Vec::new();
    let mut given = None;
    for line in code.lines().map(str::trim) {
        if let Some(attribute) = line.strip_prefix("#[path = \"") {
            given = attribute.split('"').next().map(str::to_owned);
            continue;
        }
        let Some(name) = declared(line) else {
            continue;
        };
        match given.take() {
            Some(path) => found.push(normal(&format!("{folder}/{path}"))),
            None => {
                found.push(format!("{home}/{name}.rs"));
                found.push(format!("{home}/{name}/mod.rs"));
            }
        }
    }
    found
}

/// The name in `mod name;`, with or without a visibility.
fn declared(line: &str) -> Option<&str> {
    let before = line.strip_suffix(';')?;
    let (visibility, name) = before.rsplit_once("mod ")?;
    let visibility = visibility.trim();
    let is_one = visibility.is_empty() || visibility.ends_with([']', ')']) || visibility == "pub";
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    (is_one && is_name).then_some(name)
}

/// A path without its `x/..`.
fn normal(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn an_orphan_is_seen() {
    let texts: BTreeMap<_, _> = [
        ("a/src/lib.rs", "pub mod one;\n// mod three;\nmod two;\n"),
        ("a/src/one.rs", "#[cfg(test)]\nmod tests;\n"),
        ("a/src/one/tests.rs", ""),
        ("a/src/two/mod.rs", "pub(crate) mod deep;\n"),
        ("a/src/two/deep.rs", "#[path = \"../odd.rs\"]\nmod odd;\n"),
        ("a/src/odd.rs", ""),
        ("a/src/three.rs", ""),
        ("a/tests/alone.rs", ""),
    ]
    .into_iter()
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .collect();
    let roots = ["a/src/lib.rs".to_owned(), "a/tests/alone.rs".to_owned()];
    assert_eq!(
        orphans(&roots, &texts),
        ["a/src/three.rs: no crate reaches it"]
    );
}

//! Rules about the documents: a link leads somewhere, and a page is short enough to be read.

use std::collections::{BTreeMap, BTreeSet};

/// The most bytes that a document may have.
const LARGEST: [(&str, usize); 4] = [
    ("README.md", 8 * 1024),
    ("CONTRIBUTING.md", 8 * 1024),
    ("ARCHITECTURE.md", 20 * 1024),
    // Generated: a row for each parameter.
    ("docs/configuration.md", 16 * 1024),
];

/// The most bytes that any other page may have.
const LARGEST_PAGE: usize = 15 * 1024;

/// A document that is larger than its cap.
pub(crate) fn size(path: &str, text: &str) -> Vec<String> {
    let named = LARGEST.iter().find(|(name, _)| *name == path);
    let cap = named.map_or(LARGEST_PAGE, |(_, cap)| *cap);
    if text.len() > cap {
        vec![format!("{path}: {} bytes, more than {cap}", text.len())]
    } else {
        Vec::new()
    }
}

/// Links of the documents to a file or a heading that does not exist. `exists` answers for a path from the root.
pub(crate) fn broken_links(
    documents: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let anchors: BTreeMap<&str, BTreeSet<String>> = documents
        .iter()
        .map(|(path, text)| (path.as_str(), anchors(text)))
        .collect();
    let mut complaints = Vec::new();
    for (path, text) in documents {
        for (line, target) in links(text) {
            let (file, anchor) = match target.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (target.as_str(), None),
            };
            let file = if file.is_empty() {
                path.clone()
            } else {
                relative_to(path, file)
            };
            if !exists(&file) {
                complaints.push(format!("{path}:{line}: {target}: there is no {file}"));
            } else if let (Some(anchor), Some(known)) = (anchor, anchors.get(file.as_str()))
                && !known.contains(anchor)
            {
                complaints.push(format!(
                    "{path}:{line}: {target}: {file} has no heading of that name"
                ));
            }
        }
    }
    complaints
}

/// Documents that a text names by their path (`docs/x.md`) and that do not exist.
pub(crate) fn missing_documents(
    path: &str,
    text: &str,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let mut complaints = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|c| !is_part(c)) {
            let word = word.trim_end_matches('.');
            if word.starts_with("docs/") && word.ends_with(".md") && !exists(word) {
                complaints.push(format!("{path}:{}: there is no {word}", index + 1));
            }
        }
    }
    complaints
}

/// The lines of a document outside of fenced code, counted from one.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// The targets of links inside of the repository, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        // Every second piece between backticks is code.
        let shown: String = line.split('`').step_by(2).collect::<Vec<_>>().join("x");
        for (at, _) in shown.match_indices("](") {
            let rest = &shown[at + 2..];
            let Some(target) = rest.find(')').map(|end| &rest[..end]) else {
                continue;
            };
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut repeated = BTreeMap::<String, usize>::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor: String = heading
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = repeated.entry(anchor.clone()).or_default();
        if *count == 0 {
            found.insert(anchor);
        } else {
            found.insert(format!("{anchor}-{count}"));
        }
        *count += 1;
    }
    found
}

/// A path from the root, of a file that a document names.
fn relative_to(document: &str, file: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in file.trim_end_matches('/').split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[test]
fn a_broken_link_is_seen() {
    let readme = "# A\n[a](docs/x.md) [b](docs/x.md#the-heading) [c](#a) [d](https://x.org/y) `[e](f)`\n\
                  ```\n[g](h)\n```\n";
    let page = "# X\n## The *heading*\n### Cilium's `policy`\n[up](../README.md#a) ![p](x.png)\n";
    let documents = |readme: &str, page: &str| -> BTreeMap<String, String> {
        [("README.md", readme), ("docs/x.md", page)]
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into()
    };
    let exists = |path: &str| ["README.md", "docs/x.md", "docs/x.png"].contains(&path);
    assert_eq!(
        broken_links(&documents(readme, page), exists),
        [""; 0],
        "all of these lead somewhere"
    );
    for (bad, complaint) in [
        (
            "[a](docs/y.md)",
            "README.md:1: docs/y.md: there is no docs/y.md",
        ),
        (
            "[a](docs/x.md#cilium-policy)",
            "README.md:1: docs/x.md#cilium-policy: docs/x.md has no heading of that name",
        ),
        (
            "[a](#b)",
            "README.md:1: #b: README.md has no heading of that name",
        ),
        (
            "a `code` and [a](x`y`.md)",
            "README.md:1: xx.md: there is no xx.md",
        ),
    ] {
        let complaints = broken_links(&documents(bad, "# X\n### Cilium's `policy`\n"), exists);
        assert_eq!(complaints, [complaint]);
    }
}

#[test]
fn the_anchor_of_a_heading_is_its_words() {
    let text = "# A\n## Cilium's `policy`, and more\n## A\n```\n# no\n```\n#no\n";
    let expected = ["a", "a-1", "ciliums-policy-and-more"];
    assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_document_that_is_named_and_missing_is_seen() {
    let text = "//! As docs/gone.md says.\nPAGE=docs/here.md\n`docs/design/gone.md#x`\n";
    let complaints = missing_documents("a.rs", text, |path| path == "docs/here.md");
    assert_eq!(
        complaints,
        [
            "a.rs:1: there is no docs/gone.md",
            "a.rs:3: there is no docs/design/gone.md"
        ]
    );
}

#[test]
fn a_large_document_is_seen() {
    for (path, cap) in LARGEST.into_iter().chain([("docs/x.md", LARGEST_PAGE)]) {
        assert_eq!(size(path, &"x".repeat(cap)), [""; 0]);
        assert_eq!(size(path, &"x".repeat(cap + 1)).len(), 1);
    }
}

//! Rules about names: a type name means one thing in the whole product, and words that mean nothing to
//! a reader of this field do not come back.

use crate::code;
use std::collections::BTreeMap;

/// Type names that more than one crate defines, each with its reason.
const SHARED_TYPE_NAMES: [(&str, &str); 1] = [(
    "Config",
    "each crate's own parameters, always written with the crate's name: `palisade_nft::Config`",
)];

/// Words that are no name of a type or a function.
const BANNED_NAMES: [&str; 34] = [
    "Asked", "At", "Found", "Files", "Given", "Going", "Held", "Kept", "Kind", "Known", "Made",
    "Makers", "Meets", "Met", "Paper", "Place", "Pulse", "Said", "Saying", "Seen", "Sight",
    "Taken", "Teller", "Told", "Way", "Who", "meant", "said", "saying", "settle", "tell",
    "telling", "told", "whom",
];

/// The types that a file of the product defines for more than itself, with their lines.
fn defined_types(text: &str) -> Vec<(usize, String)> {
    let code = code::without_comments_and_strings(text);
    let mut types = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let line = line.trim_start();
        let Some(rest) = line.strip_prefix("pub") else {
            continue;
        };
        let rest = match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
            None => rest,
        };
        let mut words = rest.split_whitespace();
        let keyword = words.find(|word| *word != "unsafe");
        if matches!(
            keyword,
            Some("struct" | "enum" | "union" | "trait" | "type")
        ) {
            // A macro's parameter (`$name`) is no identifier.
            let name = identifier(words.next().unwrap_or_default());
            if !name.is_empty() {
                types.push((index + 1, name.to_owned()));
            }
        }
    }
    types
}

/// The identifier that a text begins with.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Types of the product whose name another one has.
pub(crate) fn repeated_types<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> Vec<String> {
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in files {
        if !is_product(path) {
            continue;
        }
        for (line, name) in defined_types(text) {
            let definition = format!("{path}:{line}");
            definitions.entry(name).or_default().push(definition);
        }
    }
    let is_shared = |name: &str| SHARED_TYPE_NAMES.iter().any(|(shared, _)| *shared == name);
    definitions
        .into_iter()
        .filter(|(name, places)| places.len() > 1 && !is_shared(name))
        .map(|(name, places)| format!("{name} is defined {} times: {places:?}", places.len()))
        .collect()
}

/// Types and functions of a file that are named by a word of [`BANNED_NAMES`].
pub(crate) fn banned(path: &str, text: &str) -> Vec<String> {
    if !is_product(path) {
        return Vec::new();
    }
    let code = code::without_comments_and_strings(text);
    let mut complaints = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let [keyword, name] = pair else { continue };
            let defines = matches!(
                *keyword,
                "fn" | "struct" | "enum" | "union" | "trait" | "type"
            );
            let name = identifier(name);
            if defines && BANNED_NAMES.contains(&name) {
                let line = index + 1;
                complaints.push(format!(
                    "{path}:{line}: {name} is no name, see the glossary"
                ));
            }
        }
    }
    complaints
}

fn is_product(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/")
}

#[test]
fn a_repeated_type_is_found() {
    let files = [
        (
            "crates/a/src/lib.rs",
            "pub struct Flow {\n}\nstruct Edge;\npub enum Config {}\n",
        ),
        (
            "crates/b/src/lib.rs",
            "/// pub struct Edge\npub(crate) struct Config;\n",
        ),
        (
            "crates/b/src/x.rs",
            "    pub(super) trait Flow<T> {\n}\npub struct Edge(u8);\n",
        ),
        ("testkit/src/lib.rs", "pub struct Flow;\n"),
    ];
    assert_eq!(
        repeated_types(files),
        [r#"Flow is defined 2 times: ["crates/a/src/lib.rs:1", "crates/b/src/x.rs:1"]"#]
    );
}

#[test]
fn a_banned_name_is_found() {
    let text = "struct Place<'a>;\nlet settle = 1;\n    pub fn settle(&self) {}\nfn settled() {}\n";
    assert_eq!(
        banned("crates/a/src/lib.rs", text),
        [
            "crates/a/src/lib.rs:1: Place is no name, see the glossary",
            "crates/a/src/lib.rs:3: settle is no name, see the glossary",
        ]
    );
    assert!(banned("testkit/src/lib.rs", text).is_empty());
}

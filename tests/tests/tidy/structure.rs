//! Rules about the structure of a crate: its modules use each other in one direction, and the `impl` of a
//! type does not spread over many files.
//!
//! A module is a top-level one with everything in its folder: parent and children may use each other.

use crate::code;
use std::collections::{BTreeMap, BTreeSet};

/// No type has `impl` blocks in more files of the product.
const MOST_IMPL_FILES: usize = 3;

/// The crate and the top-level module of a file of the product; `None` for a crate's root.
fn module(path: &str) -> Option<(&str, &str)> {
    let (krate, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let name = inside.split('/').next()?.trim_end_matches(".rs");
    (!matches!(name, "lib" | "main")).then_some((krate, name))
}

/// The text before the first unit test.
fn product_code(text: &str) -> String {
    let code = code::without_comments_and_strings(text);
    match code.find("#[cfg(test)]\nmod ") {
        Some(end) => code[..end].to_owned(),
        None => code,
    }
}

/// The modules that a code names as `crate::module` or `crate::{module…}`.
fn used_modules(code: &str) -> BTreeSet<String> {
    let identifier = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let before = code[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            None => drop(used.insert(identifier(rest))),
            Some(list) => {
                let mut depth = 0;
                let mut item = String::new();
                for c in list.chars() {
                    match c {
                        '}' if depth == 0 => break,
                        ',' if depth == 0 => {
                            used.insert(identifier(item.trim()));
                            item.clear();
                        }
                        _ => {
                            depth += i32::from(c == '{') - i32::from(c == '}');
                            item.push(c);
                        }
                    }
                }
                used.insert(identifier(item.trim()));
            }
        }
    }
    used
}

/// The modules that each module of a crate uses.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Everything that a module uses, directly or not.
fn reachable(uses: &Uses, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from.to_owned()];
    while let Some(module) = open.pop() {
        for used in uses.get(&module).into_iter().flatten() {
            if *used != module && uses.contains_key(used) && reached.insert(used.clone()) {
                open.push(used.clone());
            }
        }
    }
    reached
}

/// Modules of one crate that use each other in a circle.
pub(crate) fn circles<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut crates: BTreeMap<&str, Uses> = BTreeMap::new();
    for (path, text) in files {
        if let Some((krate, module)) = module(path) {
            let uses = crates.entry(krate).or_default();
            let used = used_modules(&product_code(text));
            uses.entry(module.to_owned()).or_default().extend(used);
        }
    }
    let mut complaints = BTreeSet::new();
    for (krate, uses) in crates {
        for name in uses.keys() {
            let others = reachable(&uses, name).into_iter();
            let circle: Vec<String> = others
                .filter(|other| reachable(&uses, other).contains(name))
                .collect();
            if circle.len() > 1 {
                complaints.insert(format!("{krate}: {} use each other", circle.join(", ")));
            }
        }
    }
    complaints.into_iter().collect()
}

/// Types of the product with `impl` blocks in more than [`MOST_IMPL_FILES`] files of their crate.
pub(crate) fn spread_impls<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<String> {
    let mut found: BTreeMap<(String, String), BTreeSet<&str>> = BTreeMap::new();
    for (path, text) in files {
        let Some((krate, _)) = path
            .strip_prefix("crates/")
            .and_then(|path| path.split_once("/src/"))
        else {
            continue;
        };
        for line in product_code(text).lines() {
            let Some(rest) = line.strip_prefix("impl").filter(|_| line.contains('{')) else {
                continue;
            };
            if let Some(name) = implemented_type(rest) {
                let key = (krate.to_owned(), name);
                found.entry(key).or_default().insert(path);
            }
        }
    }
    found
        .into_iter()
        .filter(|(_, files)| files.len() > MOST_IMPL_FILES)
        .map(|((_, name), files)| format!("impl {name} stands in {} files: {files:?}", files.len()))
        .collect()
}

/// The type of an inherent `impl` line without its keyword; `None` for the `impl` of a trait.
fn implemented_type(rest: &str) -> Option<String> {
    let rest = match rest.strip_prefix('<') {
        None => rest,
        Some(parameters) => {
            let mut depth = 1;
            let end = parameters.find(|c: char| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            })?;
            &parameters[end + 1..]
        }
    };
    let head = rest.split('{').next()?;
    if head.split_whitespace().any(|word| word == "for") {
        return None;
    }
    let name = head.trim();
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(name[..end.unwrap_or(name.len())].to_owned())
}

#[test]
fn a_circle_is_found() {
    let files = [
        ("crates/a/src/lib.rs", "mod one;\nuse crate::one::One;\n"),
        (
            "crates/a/src/one.rs",
            "use crate::{\n    three::Three,\n    two::{Two, Other},\n};\n",
        ),
        ("crates/a/src/one/part.rs", "use crate::one::One;\n"),
        ("crates/a/src/two.rs", "fn f() -> crate::three::Three {}\n"),
        (
            "crates/a/src/two/deep.rs",
            "// crate::one\n#[cfg(test)]\nmod tests {\n    use crate::one;\n}\n",
        ),
        ("crates/a/src/three.rs", "use crate::one::One;\n"),
        ("crates/b/src/one.rs", "use crate::two;\n"),
        ("crates/b/src/two.rs", "\"crate::one\";\n"),
    ];
    assert_eq!(circles(files), ["a: one, three, two use each other"]);
}

#[test]
fn a_spread_impl_is_found() {
    let text =
        "impl Wide {\n}\nimpl<'a, T: Into<u8>> Narrow<'a, T> {\n}\nimpl Clone for Wide {\n}\n";
    let paths = ["a", "b", "c", "d"].map(|name| format!("crates/x/src/{name}.rs"));
    let all = paths.iter().map(|path| (path.as_str(), text));
    assert_eq!(spread_impls(all).len(), 2);
    let three = paths[1..].iter().map(|path| (path.as_str(), text));
    assert!(spread_impls(three).is_empty());
}

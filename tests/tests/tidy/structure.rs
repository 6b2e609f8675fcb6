//! A rule about the structure of a crate: the `impl` of a type does not spread over many files.

use crate::code;
use std::collections::{BTreeMap, BTreeSet};

/// No type has `impl` blocks in more files of the product.
const MOST_IMPL_FILES: usize = 3;

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
        for line in code::product_code(text).lines() {
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
fn a_spread_impl_is_found() {
    let text =
        "impl Wide {\n}\nimpl<'a, T: Into<u8>> Narrow<'a, T> {\n}\nimpl Clone for Wide {\n}\n";
    let paths = ["a", "b", "c", "d"].map(|name| format!("crates/x/src/{name}.rs"));
    let all = paths.iter().map(|path| (path.as_str(), text));
    assert_eq!(spread_impls(all).len(), 2);
    let three = paths[1..].iter().map(|path| (path.as_str(), text));
    assert!(spread_impls(three).is_empty());
}

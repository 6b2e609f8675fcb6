//! No circle of files: the files of a crate, at every depth, use each other in one direction.
//!
//! A file uses another one if it names something that the other defines, by a `use` or by a path. A name that a module
//! only passes on (`pub use`) leads to the file that defines it. `mod name;` is no use, and neither is what a file takes
//! from the modules that it is in: a part may know its whole, which is how Rust makes names private to both. Globs and
//! macros are not followed, so what is reported is a circle, and one that only they close is not.

use crate::code;
use crate::sizes::is_product;
use std::collections::{BTreeMap, BTreeSet};

/// The path of a module inside its crate; the root is empty.
type Module = Vec<String>;

/// What the code of one file names.
#[derive(Default)]
struct Names {
    /// Paths that the file uses.
    used: Vec<Vec<String>>,
    /// Names that the file passes on, and what they stand for.
    exported: BTreeMap<String, Vec<String>>,
}

/// The files of a crate by their module.
struct Crate<'a> {
    files: BTreeMap<Module, &'a str>,
    names: BTreeMap<Module, Names>,
}

/// The circles of files of the product, each sorted, with the paths from the root.
pub(crate) fn circles<'a>(files: &[(&'a str, &'a str)]) -> Vec<Vec<&'a str>> {
    let mut crates: BTreeMap<&str, Vec<(Module, &str, &str)>> = BTreeMap::new();
    for (path, text) in files.iter().filter(|(path, _)| is_product(path)) {
        if let Some((krate, module)) = module_of(path) {
            crates.entry(krate).or_default().push((module, path, text));
        }
    }
    let mut found = Vec::new();
    for modules in crates.into_values() {
        found.extend(circles_of(&uses_of(&modules)));
    }
    found.sort();
    found
}

/// The crate of a file and its module there.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (krate, inside) = path.strip_prefix("crates/")?.split_once("/src/")?;
    let inside = inside.trim_end_matches(".rs");
    if inside.starts_with("bin/") {
        return None;
    }
    let mut module: Module = inside.split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || matches!(inside, "lib" | "main") {
        module.pop();
    }
    Some((krate, module))
}

/// Which file uses which.
type Uses<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

fn uses_of<'a>(modules: &[(Module, &'a str, &'a str)]) -> Uses<'a> {
    let files: BTreeMap<Module, &str> = modules
        .iter()
        .map(|(module, path, _)| (module.clone(), *path))
        .collect();
    let mut names = BTreeMap::new();
    for (module, _, text) in modules {
        names.insert(module.clone(), names_in(module, text, &files));
    }
    let krate = Crate { files, names };
    let mut uses = Uses::new();
    for (module, path, _) in modules {
        let used = uses.entry(path).or_default();
        for target in &krate.names[module].used {
            let Some((home, file)) = krate.definition(target, 8) else {
                continue;
            };
            if !module.starts_with(home) {
                used.insert(file);
            }
        }
    }
    uses
}

impl<'a> Crate<'a> {
    /// The module, and its file, that defines what a path from the root of the crate names.
    fn definition(&self, target: &[String], depth: usize) -> Option<(&[String], &'a str)> {
        let length = (0..=target.len())
            .rev()
            .find(|length| self.files.contains_key(&target[..*length]))?;
        let (module, rest) = target.split_at(length);
        if let (Some(name), true) = (rest.first(), depth > 0)
            && let Some(meant) = self.names[module].exported.get(name)
        {
            let mut meant = meant.clone();
            meant.extend_from_slice(&rest[1..]);
            return self.definition(&meant, depth - 1);
        }
        let (module, file) = self.files.get_key_value(module)?;
        Some((module, file))
    }
}

fn names_in(module: &Module, text: &str, files: &BTreeMap<Module, &str>) -> Names {
    let code = code::product_code(text);
    let tokens = tokens(&code);
    let mut names = Names::default();
    // Names that stand for modules here: the modules below, and those that are imported.
    let mut aliases: BTreeMap<String, Vec<String>> = files
        .keys()
        .filter(|other| other.len() == module.len() + 1 && other.starts_with(module))
        .map(|child| (child[module.len()].clone(), child.clone()))
        .collect();
    let mut passed_on = Vec::new();
    let mut at = 0;
    let mut code_words = BTreeMap::<&str, usize>::new();
    let mut paths = Vec::new();
    while at < tokens.len() {
        if tokens[at] == "use" {
            let is_public = at > 0 && matches!(tokens[at - 1], "pub" | ")");
            let mut imports = Vec::new();
            at = use_tree(&tokens, at + 1, &[], &mut imports);
            for (path, name) in imports {
                let Some(target) = absolute(module, &path, &aliases) else {
                    continue;
                };
                if is_public {
                    passed_on.push((name, target));
                } else {
                    if files.contains_key(&target) {
                        aliases.insert(name, target.clone());
                    }
                    names.used.push(target);
                }
            }
        } else if is_word(tokens[at]) && (at == 0 || tokens[at - 1] != "::") {
            let mut path = vec![tokens[at].to_owned()];
            while tokens.get(at + 1) == Some(&"::")
                && tokens.get(at + 2).is_some_and(|t| is_word(t))
            {
                at += 2;
                path.push(tokens[at].to_owned());
            }
            if path.len() > 1 {
                paths.push(path);
            } else {
                *code_words.entry(tokens[at]).or_default() += 1;
            }
            at += 1;
        } else {
            at += 1;
        }
    }
    for path in paths {
        *code_words.entry("").or_default() += 1;
        if let Some(target) = absolute(module, &path, &aliases) {
            names.used.push(target);
        } else if let Some((_, target)) = passed_on.iter().find(|(name, _)| *name == path[0]) {
            names.used.push(target.clone());
        }
    }
    for (name, target) in passed_on {
        // What a module passes on and also needs itself, it uses.
        if code_words.contains_key(name.as_str()) {
            names.used.push(target.clone());
        }
        names.exported.insert(name, target);
    }
    names
}

/// A path from the root of the crate; `None` for what is not of this crate.
fn absolute(
    module: &[String],
    path: &[String],
    aliases: &BTreeMap<String, Vec<String>>,
) -> Option<Vec<String>> {
    let mut base = match path.first()?.as_str() {
        "crate" => Vec::new(),
        "self" => module.to_vec(),
        "super" => module[..module.len().saturating_sub(1)].to_vec(),
        name => aliases.get(name)?.clone(),
    };
    let mut rest = &path[1..];
    while rest.first().is_some_and(|word| word == "super") {
        base.pop();
        rest = &rest[1..];
    }
    base.extend(rest.iter().filter(|word| *word != "self").cloned());
    Some(base)
}

/// Reads a tree of `use` from a token on: the paths that it names, each with the name that it gets here. Returns the
/// place after it.
fn use_tree(
    tokens: &[&str],
    mut at: usize,
    prefix: &[String],
    imports: &mut Vec<(Vec<String>, String)>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match *token {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = use_tree(tokens, at, &path, imports);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            "*" => {
                // What a glob names is not followed; its module is used.
                imports.push((path, "*".to_owned()));
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).copied().unwrap_or_default();
                imports.push((path, name.to_owned()));
                return at + 2;
            }
            word if is_word(word) => {
                path.push(word.to_owned());
                at += 1;
            }
            _ => break,
        }
    }
    let last = path.iter().rev().find(|word| *word != "self");
    let name = last.cloned().unwrap_or_default();
    imports.push((path, name));
    at
}

/// Words, `::`, and every other character by itself.
fn tokens(code: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_part(first) {
            rest.find(|c| !is_part(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        found.push(token);
        rest = after.trim_start();
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Sets of files that reach each other.
fn circles_of<'a>(uses: &Uses<'a>) -> Vec<Vec<&'a str>> {
    let reach = |from: &'a str| {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for used in uses.get(file).into_iter().flatten() {
                if reached.insert(*used) {
                    open.push(used);
                }
            }
        }
        reached
    };
    let reachable: BTreeMap<&str, BTreeSet<&str>> =
        uses.keys().map(|file| (*file, reach(file))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reachable {
        if others.contains(file) {
            let circle = others
                .iter()
                .filter(|other| reachable[**other].contains(file));
            circles.insert(circle.copied().collect::<Vec<_>>());
        }
    }
    circles.into_iter().collect()
}

/// Complaints about circles that are not listed, and about listed ones that are gone or smaller.
pub(crate) fn compare(circles: &[Vec<&str>], exceptions: &[&[&str]]) -> Vec<String> {
    let mut complaints = Vec::new();
    for circle in circles {
        if !exceptions.contains(&circle.as_slice()) {
            complaints.push(format!("these files use each other: {circle:#?}"));
        }
    }
    for listed in exceptions {
        if !circles.iter().any(|circle| circle.as_slice() == *listed) {
            complaints.push(format!(
                "this circle is gone, or has other files: it leaves the list or is replaced by a smaller one: {listed:#?}"
            ));
        }
    }
    complaints
}

#[test]
fn a_circle_of_files_is_seen() {
    let files = [
        // The root passes on what a file defines, so `crate::One` is in one.rs.
        (
            "crates/a/src/lib.rs",
            "mod one;\nmod two;\npub use one::One;\n",
        ),
        (
            "crates/a/src/one.rs",
            "mod below;\nuse crate::two::{self, Two};\npub struct One;\n",
        ),
        (
            "crates/a/src/one/below.rs",
            "use super::{One, super::two as other};\nfn f() { other::g() }\n",
        ),
        (
            "crates/a/src/two.rs",
            "pub fn g() -> crate::One {}\n#[cfg(test)]\nmod tests {}\n",
        ),
        // Two files, of which one is reached by what its parent passes on; and a part that knows its whole.
        ("crates/b/src/lib.rs", "pub mod x;\nmod w;\n"),
        (
            "crates/b/src/x/mod.rs",
            "mod y;\npub use self::y::Y;\npub struct X;\nfn f() { y::g() }\n",
        ),
        (
            "crates/b/src/x/y.rs",
            "use super::X;\nfn f() { crate::w::h() }\npub struct Y;\n",
        ),
        ("crates/b/src/w.rs", "use crate::x::Y as Other;\n"),
        // A parent that only passes on is in no circle.
        ("crates/c/src/x/mod.rs", "mod y;\nmod z;\npub use y::Y;\n"),
        ("crates/c/src/x/y.rs", "pub struct Y;\n"),
        ("crates/c/src/x/z.rs", "use super::Y;\n"),
        // Tests may use what they like.
        (
            "crates/d/src/x.rs",
            "use crate::y::Y;\n#[cfg(test)]\nmod tests {\n use super::*;\n}\n",
        ),
        (
            "crates/d/src/y.rs",
            "struct Y;\n// crate::x\n#[cfg(test)]\nmod tests { use crate::x; }\n",
        ),
    ];
    assert_eq!(
        circles(&files),
        [
            vec!["crates/a/src/one.rs", "crates/a/src/two.rs"],
            vec!["crates/b/src/w.rs", "crates/b/src/x/y.rs"],
        ]
    );
}

#[test]
fn a_listed_circle_may_only_shrink() {
    let circles = [vec!["a.rs", "b.rs"]];
    assert_eq!(compare(&circles, &[&["a.rs", "b.rs"]]), [""; 0]);
    assert_eq!(compare(&circles, &[]).len(), 1);
    assert_eq!(compare(&[], &[&["a.rs", "b.rs"]]).len(), 1);
    assert_eq!(compare(&circles, &[&["a.rs", "b.rs", "c.rs"]]).len(), 2);
}

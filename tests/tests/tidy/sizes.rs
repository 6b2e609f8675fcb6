//! Rules about size: a function is read at one sitting, and a type has few fields. What exceeds the caps today is
//! listed in [`crate::exceptions`] with its size, and each list may only shrink.

use crate::code;
use std::collections::BTreeMap;

/// No function of the product has more lines of code; comments and blank lines are free.
pub(crate) const LONGEST_FUNCTION: usize = 80;

/// No struct, and no variant of an enum, of the product has more fields.
pub(crate) const MOST_FIELDS: usize = 12;

/// No crate that the agent is made of has more lines of code: a subsystem that outgrows its crate gets one of its own.
pub(crate) const LARGEST_AGENT_CRATE: usize = 6_000;

/// Something with a size: its file, its name, its size.
pub(crate) type Sized = (String, String, usize);

/// The entry of a list of exceptions: file, name, size.
pub(crate) type Exception = (&'static str, &'static str, usize);

/// Whether a file is code of the product and not its unit tests.
pub(crate) fn is_product(path: &str) -> bool {
    path.strip_prefix("crates/")
        .and_then(|path| path.split_once("/src/"))
        .is_some_and(|(_, inside)| {
            !inside
                .split('/')
                .any(|part| part == "tests" || part == "tests.rs")
        })
}

/// The lines of product code of these crates, which are named without their common prefix, of all files of the tree.
pub(crate) fn crate_lines<'a>(
    crates: &'a [&'a str],
    files: &[(&str, &str)],
) -> impl Iterator<Item = (&'a str, usize)> {
    crates.iter().map(|name| {
        let folder = format!("crates/palisade-{name}/src/");
        let own_files = files
            .iter()
            .filter(|(path, _)| path.starts_with(&folder) && is_product(path));
        (
            *name,
            own_files.map(|(_, text)| code::product_lines(text)).sum(),
        )
    })
}

/// Complaints about crates that are larger than [`LARGEST_AGENT_CRATE`], and about those that have no file.
pub(crate) fn large_crates(crates: &[&str], files: &[(&str, &str)]) -> Vec<String> {
    crate_lines(crates, files)
        .filter_map(|(name, lines)| match lines {
            0 => Some(format!("palisade-{name} has no file")),
            lines if lines > LARGEST_AGENT_CRATE => Some(format!(
                "palisade-{name} has {lines} lines, more than {LARGEST_AGENT_CRATE}: it becomes two crates"
            )),
            _ => None,
        })
        .collect()
}

/// The functions of a file that are longer than [`LONGEST_FUNCTION`].
pub(crate) fn long_functions(path: &str, text: &str) -> Vec<Sized> {
    let functions = product_functions(path, text).into_iter();
    functions
        .filter(|(_, _, lines)| *lines > LONGEST_FUNCTION)
        .collect()
}

fn product_functions(path: &str, text: &str) -> Vec<Sized> {
    if !is_product(path) {
        return Vec::new();
    }
    let code = code::product_code(text);
    // A string counts as code: only comments and blank lines are free.
    let counted: Vec<bool> = code::without_comments(text)
        .lines()
        .map(|line| !line.trim().is_empty())
        .collect();
    let mut functions = Vec::new();
    for (at, name) in definitions(&code, "fn") {
        let Some(body) = body_after(&code, at) else {
            continue;
        };
        let first = line_of(&code, at);
        let last = line_of(&code, body.end);
        let lines = counted[first..=last].iter().filter(|counts| **counts);
        functions.push((path.to_owned(), name, lines.count()));
    }
    functions
}

/// The structs and variants of a file that have more than [`MOST_FIELDS`] fields.
pub(crate) fn wide_types(path: &str, text: &str) -> Vec<Sized> {
    if !is_product(path) {
        return Vec::new();
    }
    let code = code::product_code(text);
    let mut types = Vec::new();
    for (at, name) in definitions(&code, "struct") {
        if let Some(fields) = fields_after(&code, at) {
            types.push((path.to_owned(), name, fields));
        }
    }
    for (at, name) in definitions(&code, "enum") {
        let Some(body) = body_after(&code, at) else {
            continue;
        };
        for piece in pieces(&code[body.start + 1..body.end]) {
            let attributes_end = piece.rfind(']').map_or(0, |end| end + 1);
            let start = if piece.trim_start().starts_with('#') {
                attributes_end
            } else {
                0
            };
            let variant = piece[start..].trim_start();
            if let Some((variant, fields)) = variant.split_once('{') {
                let count = pieces(fields.trim_end().trim_end_matches('}')).len();
                types.push((
                    path.to_owned(),
                    format!("{name}::{}", variant.trim()),
                    count,
                ));
            }
        }
    }
    types.retain(|(_, _, fields)| *fields > MOST_FIELDS);
    types
}

/// Complaints about what exceeds a cap and is not listed at its present size, and about entries of the list that are
/// not true any more. `unit` names what is counted.
pub(crate) fn compare(
    exceeding: &[Sized],
    exceptions: &[Exception],
    cap: usize,
    unit: &str,
) -> Vec<String> {
    let listed: BTreeMap<_, _> = exceptions
        .iter()
        .map(|(path, name, size)| ((*path, *name), *size))
        .collect();
    let mut complaints = Vec::new();
    for (path, name, size) in exceeding {
        let entry = format!("(\"{path}\", \"{name}\", {size})");
        match listed.get(&(path.as_str(), name.as_str())) {
            None => complaints.push(format!("{path}: {name} has {size} {unit}, more than {cap}")),
            Some(before) if before < size => complaints.push(format!(
                "{path}: {name} has {size} {unit}, and had {before}: an exception must not grow"
            )),
            Some(before) if before > size => complaints.push(format!(
                "{path}: {name} has {size} {unit} now: its exception becomes {entry}"
            )),
            Some(_) => {}
        }
    }
    for (path, name, _) in exceptions {
        let exceeds = |sized: &&Sized| sized.0 == *path && sized.1 == *name;
        if !exceeding.iter().any(|sized| exceeds(&sized)) {
            complaints.push(format!(
                "{path}: {name} does not exceed {cap} {unit}: it leaves the list of exceptions"
            ));
        }
    }
    complaints
}

/// The places after a keyword and the names that it defines.
fn definitions(code: &str, keyword: &str) -> Vec<(usize, String)> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in code.match_indices(keyword) {
        let after = at + keyword.len();
        let stands = !code[..at].chars().next_back().is_some_and(is_part)
            && code[after..].starts_with(char::is_whitespace);
        if !stands {
            continue;
        }
        let rest = code[after..].trim_start();
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        // A macro's parameter (`$name`) is no name.
        if end > 0 {
            found.push((after, rest[..end].to_owned()));
        }
    }
    found
}

/// The body of a definition, with its braces: the next `{…}` outside of parentheses before a `;`.
fn body_after(code: &str, at: usize) -> Option<std::ops::Range<usize>> {
    let mut depth = 0_i32;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            ';' if depth == 0 => return None,
            '{' if depth == 0 => {
                let start = at + offset;
                return Some(start..closing_brace(code, start)?);
            }
            _ => {}
        }
    }
    None
}

/// The fields of the struct whose name begins at a place: named or by position.
fn fields_after(code: &str, at: usize) -> Option<usize> {
    if let Some(body) = body_after(code, at)
        && !code[at..body.start].contains('(')
    {
        return Some(pieces(&code[body.start + 1..body.end]).len());
    }
    let end = at + code[at..].find(';')?;
    let (_, fields) = code[at..end].split_once('(')?;
    let (fields, _) = fields.rsplit_once(')')?;
    Some(pieces(fields).len())
}

fn closing_brace(code: &str, start: usize) -> Option<usize> {
    let mut depth = 0_i32;
    for (offset, c) in code[start..].char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return Some(start + offset);
        }
    }
    None
}

/// The text between commas that stand outside of all brackets.
fn pieces(code: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let mut start = 0;
    let mut before = ' ';
    let mut found = Vec::new();
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            '>' if before != '-' && before != '=' => depth -= 1,
            ',' if depth == 0 => {
                found.push(&code[start..at]);
                start = at + 1;
            }
            _ => {}
        }
        before = c;
    }
    found.push(&code[start..]);
    found.retain(|piece| !piece.trim().is_empty());
    found
}

/// The line of a place, counted from zero.
fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count()
}

#[test]
fn a_long_function_is_seen() {
    let path = "crates/a/src/b.rs";
    let body = |lines: usize| {
        format!(
            "impl A {{\n    /// Long.\n    pub fn b(x: [u8; 4]) -> u8\n    {{\n        // {{\n\n{}    }}\n}}\nfn c();\n",
            "        f(\"{\");\n".repeat(lines)
        )
    };
    assert_eq!(long_functions(path, &body(LONGEST_FUNCTION - 3)), []);
    let long = long_functions(path, &body(LONGEST_FUNCTION - 2));
    assert_eq!(
        long,
        [(path.to_owned(), "b".to_owned(), LONGEST_FUNCTION + 1)]
    );
    assert_eq!(long_functions("crates/a/tests/b.rs", &body(100)), []);
}

#[test]
fn a_wide_type_is_seen() {
    let path = "crates/a/src/b.rs";
    let fields = |count: usize| "    x: Map<u8, fn(u8) -> u8>,\n".repeat(count);
    let wide = |text: &str| -> Vec<_> {
        let types = wide_types(path, text).into_iter();
        types.map(|(_, name, size)| (name, size)).collect()
    };
    assert_eq!(
        wide(&format!("struct A<T> {{\n{}}}", fields(MOST_FIELDS))),
        []
    );
    assert_eq!(
        wide(&format!("struct A<T> {{\n{}}}", fields(MOST_FIELDS + 1))),
        [("A".to_owned(), MOST_FIELDS + 1)]
    );
    assert_eq!(
        wide(&format!("struct A({});", "u8, ".repeat(MOST_FIELDS + 1))),
        [("A".to_owned(), MOST_FIELDS + 1)]
    );
    assert_eq!(
        wide(&format!(
            "enum A {{\n    One,\n    #[x(y)]\n    Two {{\n{}    }},\n}}",
            fields(13)
        )),
        [("A::Two".to_owned(), 13)]
    );
}

#[test]
fn an_exception_may_only_shrink() {
    let sized = |size| vec![("a.rs".to_owned(), "b".to_owned(), size)];
    let list = [("a.rs", "b", 100)];
    let compare =
        |exceeding: &[Sized], list: &[Exception]| compare(exceeding, list, 80, "lines").len();
    assert_eq!(compare(&sized(100), &list), 0);
    assert_eq!(compare(&sized(101), &list), 1, "it grew");
    assert_eq!(compare(&sized(99), &list), 1, "the entry is not true");
    assert_eq!(compare(&[], &list), 1, "it does not exceed any more");
    assert_eq!(compare(&sized(100), &[]), 1, "it is not listed");
}

#[test]
fn a_large_crate_is_seen() {
    let text = "//! A.\n\nfn a() {\n    // Why.\n    b(\"x\ny\")\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
    let folder = "crates/palisade-node/src";
    let (a, tests) = (format!("{folder}/a.rs"), format!("{folder}/a/tests.rs"));
    let files = [
        (&*a, text),
        (&*tests, text),
        ("crates/palisade/src/b.rs", text),
    ];
    assert_eq!(
        crate_lines(&["node"], &files).collect::<Vec<_>>(),
        [("node", 4)]
    );
    assert_eq!(large_crates(&["node"], &files), [""; 0]);
    let long = "fn a() {}\n".repeat(LARGEST_AGENT_CRATE + 1);
    let files = [(&*a, &*long)];
    let complaints = large_crates(&["node", "network"], &files);
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    assert!(complaints[0].contains("6001 lines"));
    assert!(complaints[1].contains("no file"));
}

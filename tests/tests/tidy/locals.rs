//! Rules about the names of variables, parameters and fields: each is a noun of the field, not a pronoun or a verb.

use crate::code;

/// Words that are no name of a variable, a parameter or a field.
const BANNED: [&str; 8] = ["held", "is", "kept", "of", "said", "there", "told", "was"];

/// Variables, parameters and fields of a file of the product that are named by a word of [`BANNED`].
pub(crate) fn banned(path: &str, text: &str) -> Vec<String> {
    if !path.starts_with("crates/") || !path.contains("/src/") {
        return Vec::new();
    }
    let code = code::without_comments_and_strings(text);
    let mut complaints = Vec::new();
    let mut list = List::None;
    for (index, line) in code.lines().enumerate() {
        let line = line.trim();
        let mut patterns = let_patterns(line);
        patterns.extend(closure_parameters(line));
        patterns.extend(for_pattern(line));
        match list {
            List::None => patterns.extend(parameters(line)),
            List::Fields | List::Parameters => patterns.extend(declared(line)),
        }
        list = list.after(line);
        for pattern in patterns {
            for word in BANNED {
                if names(pattern, word) {
                    complaints.push(format!(
                        "{path}:{}: `{word}` is no name of a variable, parameter or field",
                        index + 1
                    ));
                }
            }
        }
    }
    complaints
}

/// What the lines of a declaration list, one on each line.
#[derive(Clone, Copy)]
enum List {
    None,
    Fields,
    Parameters,
}

impl List {
    /// The list after a line.
    fn after(self, line: &str) -> List {
        match self {
            List::Fields if line.starts_with('}') => List::None,
            List::Parameters if line.starts_with(')') => List::None,
            List::Fields | List::Parameters => self,
            List::None if has_keyword(line, "struct") && line.ends_with('{') => List::Fields,
            List::None if has_keyword(line, "fn") && line.ends_with('(') => List::Parameters,
            List::None => List::None,
        }
    }
}

fn has_keyword(line: &str, keyword: &str) -> bool {
    line.split_whitespace().any(|word| word == keyword)
}

/// The patterns of the `let`s of a line, each to its type or value.
fn let_patterns(line: &str) -> Vec<&str> {
    let starts = line.match_indices("let ").filter(|(at, _)| {
        let before = line[..*at].chars().next_back();
        before.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    });
    starts
        .map(|(at, keyword)| {
            let rest = &line[at + keyword.len()..];
            rest.split(" =").next().unwrap_or(rest)
        })
        .collect()
}

/// What stands between a first bar and a second: not what is between two closures.
fn closure_parameters(line: &str) -> Vec<&str> {
    let parts: Vec<&str> = line.split('|').collect();
    let inner = parts.len().saturating_sub(1);
    parts.into_iter().take(inner).skip(1).step_by(2).collect()
}

fn for_pattern(line: &str) -> Option<&str> {
    line.strip_prefix("for ")?.split(" in ").next()
}

/// The parameters of a function whose head is one line.
fn parameters(line: &str) -> Vec<&str> {
    let Some((_, head)) = line.split_once("fn ") else {
        return Vec::new();
    };
    let list = head.split_once('(').map_or("", |(_, list)| list);
    list.split(", ").filter_map(declared).collect()
}

/// The name that a field or a parameter declares, before its type.
fn declared(text: &str) -> Option<&str> {
    let (name, _) = text.split_once(": ")?;
    name.split_whitespace().next_back()
}

/// Whether a pattern binds a word: it is no path, call, field or name of a type's field.
fn names(pattern: &str, word: &str) -> bool {
    pattern.match_indices(word).any(|(at, _)| {
        let before = pattern[..at].chars().next_back();
        let after = &pattern[at + word.len()..];
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let is_bound_elsewhere = after.starts_with("::")
            || after.starts_with('(')
            || after.starts_with(": ") && pattern[..at].contains('{');
        !before.is_some_and(|c| is_part(c) || matches!(c, '.' | ':' | '\''))
            && !after.starts_with(is_part)
            && !is_bound_elsewhere
    })
}

#[test]
fn a_pronoun_is_found() {
    let text = "\
pub struct Node {
    pub(crate) was: u32,
    after: u32,
}
fn walk(of: &Field, is_set: bool) {
    let mut kept = node.is;
    let Some((held, _)) = x else { return };
    let list = all.filter(|(at, of)| of == at).map(|port| port.of(1));
    for there in list {}
    let PortMatch { is: listed, .. } = ports;
    let found = PortMatch { is: None };
}
fn long(
    told: u32,
) {
}
";
    let lines: Vec<String> = banned("crates/palisade-dialects/src/a.rs", text)
        .iter()
        .map(|complaint| complaint.split(" is no").next().unwrap_or("").to_owned())
        .collect();
    let expected = [
        (2, "was"),
        (5, "of"),
        (6, "kept"),
        (7, "held"),
        (8, "of"),
        (9, "there"),
        (14, "told"),
    ];
    let expected =
        expected.map(|(line, word)| format!("crates/palisade-dialects/src/a.rs:{line}: `{word}`"));
    assert_eq!(lines, expected);
    assert!(banned("crates/palisade-dialects/tests/a.rs", text).is_empty());
    assert!(banned("testkit/src/a.rs", text).is_empty());
}

//! Patterns of domain names and of nodes, as regular expressions.
//!
//! Promises: `*` stands for letters, digits, hyphens and dots; a pattern of a node without a cluster matches those of
//! every cluster.
//!
//! Never: lets a character of a client through that means something in a regular expression.

/// Any name.
const ANY_NAME: &str = "(?:[-0-9_a-z]+(?:\\.[-0-9_a-z]+)*)";

/// The expression for any of these patterns of domain names.
pub(super) fn fqdn_pattern(patterns: &[String]) -> Result<String, String> {
    any_of(patterns, |expression, pattern| {
        push_name(expression, pattern)
    })
}

/// The expression for any of these patterns of nodes, of names with a cluster.
pub(super) fn node_pattern(patterns: &[String]) -> Result<String, String> {
    any_of(patterns, |expression, pattern| {
        if pattern.is_empty() {
            return Err("empty pattern".to_owned());
        }
        let (cluster, node) = pattern.split_once('/').unwrap_or(("", pattern));
        if node.contains('/') {
            return Err("too many slashes in pattern".to_owned());
        }
        push_name_or_any(expression, cluster)?;
        expression.push('/');
        push_name_or_any(expression, node)
    })
}

fn any_of(
    patterns: &[String],
    push: impl Fn(&mut String, &str) -> Result<(), String>,
) -> Result<String, String> {
    let mut expression = "\\A(?:".to_owned();
    for (index, pattern) in patterns.iter().enumerate() {
        if index > 0 {
            expression.push('|');
        }
        push(&mut expression, pattern)?;
    }
    expression.push_str(")\\z");
    Ok(expression)
}

fn push_name_or_any(expression: &mut String, pattern: &str) -> Result<(), String> {
    if pattern.is_empty() {
        expression.push_str(ANY_NAME);
        return Ok(());
    }
    push_name(expression, pattern)
}

fn push_name(expression: &mut String, pattern: &str) -> Result<(), String> {
    let pattern = pattern.trim();
    let pattern = pattern.strip_suffix('.').unwrap_or(pattern).to_lowercase();
    if pattern.is_empty() {
        return Err("empty pattern".to_owned());
    }
    if pattern.ends_with('.') {
        return Err("multiple trailing dots in pattern".to_owned());
    }
    for letter in pattern.chars() {
        match letter {
            '.' => expression.push_str("\\."),
            '*' => expression.push_str("[-.0-9a-z]*"),
            '-' | '_' | '0'..='9' | 'a'..='z' => expression.push(letter),
            _ => return Err(format!("{letter:?}: invalid rune in pattern")),
        }
    }
    Ok(())
}

//! Rust text without its comments, and without its strings where those do not count.
//!
//! Line breaks stay, so that line numbers do.

/// The code alone: comments and the insides of strings and character literals are gone.
pub(crate) fn without_comments_and_strings(text: &str) -> String {
    strip(text, false)
}

/// The code without comments, strings and the modules of unit tests.
pub(crate) fn product_code(text: &str) -> String {
    without_unit_tests(without_comments_and_strings(text))
}

/// The lines of code without comments, blank lines and the modules of unit tests; a string is code.
pub(crate) fn product_lines(text: &str) -> usize {
    let code = without_unit_tests(without_comments(text));
    code.lines().filter(|line| !line.trim().is_empty()).count()
}

fn without_unit_tests(mut code: String) -> String {
    const TESTS: &str = "#[cfg(test)]\nmod ";
    while let Some(start) = code.find(TESTS) {
        let body = start + TESTS.len();
        let Some(end) = code[body..].find([';', '{']).map(|end| body + end) else {
            break;
        };
        // `mod tests;` is one declaration among others; a module with its body ends the file.
        let end = if code[end..].starts_with(';') {
            end + 1
        } else {
            code.len()
        };
        let lines = code[start..end].matches('\n').count();
        code.replace_range(start..end, &"\n".repeat(lines));
    }
    code
}

/// Code and strings: only comments are gone.
pub(crate) fn without_comments(text: &str) -> String {
    strip(text, true)
}

fn strip(text: &str, keep_strings: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (taken, kept) = match token(rest, out.chars().next_back()) {
            Token::Comment(length) => (length, false),
            Token::Literal(length) => (length, keep_strings),
            Token::Code => (first.len_utf8(), true),
        };
        let (token, after) = rest.split_at(taken);
        if kept {
            out.push_str(token);
        } else {
            out.push(' ');
            out.extend(token.chars().filter(|c| *c == '\n'));
        }
        rest = after;
    }
    out
}

enum Token {
    Comment(usize),
    Literal(usize),
    Code,
}

fn token(rest: &str, before: Option<char>) -> Token {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        Token::Comment(rest.find('\n').unwrap_or(rest.len()))
    } else if rest.starts_with("/*") {
        Token::Comment(block_comment(rest))
    } else if rest.starts_with('"') {
        Token::Literal(quoted(rest))
    } else if rest.starts_with('\'') {
        character(rest)
    } else if in_word {
        Token::Code
    } else {
        let raw = ["r", "br", "cr"]
            .iter()
            .find_map(|prefix| raw_string(rest, prefix));
        raw.map_or(Token::Code, Token::Literal)
    }
}

fn block_comment(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// A character literal; a lifetime is code.
fn character(rest: &str) -> Token {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => {
            let end = rest[3..].find('\'').map_or(rest.len(), |at| at + 4);
            Token::Literal(end)
        }
        Some(_) => match chars.next() {
            Some((at, '\'')) => Token::Literal(at + 1),
            _ => Token::Code,
        },
        None => Token::Code,
    }
}

fn raw_string(rest: &str, prefix: &str) -> Option<usize> {
    let after = rest.strip_prefix(prefix)?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = prefix.len() + hashes + 1;
    let closing = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(opening + closing)
}

/// The lines, counted from one, on which a word stands by itself.
pub(crate) fn lines_with_word(code: &str, word: &str) -> Vec<usize> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let stands = |line: &str| line.split(|c| !is_part(c)).any(|found| found == word);
    let numbered = code.lines().enumerate();
    numbered
        .filter(|(_, line)| stands(line))
        .map(|(at, _)| at + 1)
        .collect()
}

#[test]
fn comments_and_strings_go_and_lines_stay() {
    let text =
        "a // one\nb /* two /* three */\n */ c \"d // \\\" e\" 'f' '\\'' &'g h r#\"i\"j\"# k";
    let code = without_comments_and_strings(text);
    let words: Vec<_> = code.split_whitespace().collect();
    assert_eq!(words, ["a", "b", "c", "&'g", "h", "k"]);
    assert_eq!(code.lines().count(), text.lines().count());
    let kept = without_comments(text);
    assert!(kept.contains("\"d // \\\" e\"") && kept.contains("r#\"i\"j\"#"));
    assert!(!kept.contains("one") && !kept.contains("three"));
}

#[test]
fn unit_tests_are_no_code_of_the_product() {
    let text = "mod a;\n#[cfg(test)]\nmod tests;\nfn b() {}\n#[cfg(test)]\nmod c {\nfn d() {}\n}\n";
    let code = product_code(text);
    let words: Vec<_> = code.split_whitespace().collect();
    assert_eq!(words, ["mod", "a;", "fn", "b()", "{}"]);
    assert!(code.starts_with("mod a;\n\n\nfn b"), "lines stay: {code:?}");
}

#[test]
fn words_stand_by_themselves() {
    assert_eq!(lines_with_word("unsafe_code\nx unsafe {\n", "unsafe"), [2]);
}

//! A kept corpus as text: an input a line, escaped as [`u8::escape_ascii`] does, the short ones first.

/// A line that is no input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorpusError {
    /// The line, counted from one.
    pub line: usize,
}

/// The inputs of a corpus.
///
/// # Errors
/// If a line has an escape that there is not.
pub fn parse(text: &str) -> Result<Vec<Vec<u8>>, CorpusError> {
    let lines = text.lines().enumerate();
    lines
        .map(|(at, line)| unescape(line.as_bytes()).ok_or(CorpusError { line: at + 1 }))
        .collect()
}

/// The text of a corpus, in the same order for the same inputs.
#[must_use]
pub fn to_text(mut inputs: Vec<Vec<u8>>) -> String {
    inputs.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
    inputs.dedup();
    let lines = inputs
        .iter()
        .map(|input| format!("{}\n", input.escape_ascii()));
    lines.collect()
}

fn unescape(mut line: &[u8]) -> Option<Vec<u8>> {
    let mut input = Vec::with_capacity(line.len());
    while let Some((&first, rest)) = line.split_first() {
        line = rest;
        if first != b'\\' {
            input.push(first);
            continue;
        }
        let (&escape, rest) = line.split_first()?;
        line = rest;
        let byte = match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'\'' | b'"' => escape,
            b'x' => {
                let digits = str::from_utf8(line.get(..2)?).ok()?;
                line = &line[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            _ => return None,
        };
        input.push(byte);
    }
    Some(input)
}

#[cfg(test)]
mod tests {
    use super::{CorpusError, parse, to_text};

    #[test]
    fn every_byte_is_kept() {
        let every: Vec<u8> = (0..=255).collect();
        let inputs = vec![Vec::new(), b"a: {'b': \"\\n\"}\n".to_vec(), every];
        let text = to_text(inputs.iter().rev().cloned().collect());
        assert_eq!(parse(&text), Ok(inputs));
        for (line, wrong) in [(1, "\\"), (1, "\\q"), (2, "a\n\\x1")] {
            assert_eq!(parse(wrong), Err(CorpusError { line }), "{wrong}");
        }
    }
}

//! A file's bytes to its documents.

use crate::build::{Budget, Builder};
use crate::fault::{Broken, Fault};
use crate::limits::Limits;
use crate::location::{Position, Problem};
use crate::node::Node;
use crate::split::{Chunk, position_of, split};
use crate::{json, yaml};
use std::sync::Arc;

/// What some editors write before a file, and so before a document where files are put together.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// One document that holds something.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its value.
    pub root: Node,
}

/// What a file holds, as far as it can be read, and what could not be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// The documents that hold something, in the order of the file. Empty ones (`---` and comments
    /// only, or `null`) are not among them.
    pub documents: Vec<Document>,
    /// What could not be read, in the order of the file. Each one is a document, or a rest of the
    /// file, that is not in `documents`.
    pub problems: Vec<Problem>,
}

/// Reads YAML or JSON as kubectl does; which of the two is decided for each document.
///
/// `file` is only a name for messages. Never fails as a whole: see [`Reading::problems`].
#[must_use]
pub fn read(file: &str, bytes: &[u8], limits: &Limits) -> Reading {
    let file: Arc<str> = file.into();
    let mut reading = Reading::default();
    let start = Position { line: 1, column: 1 };
    let refusal = if bytes.len() > limits.file_bytes {
        Some(Fault::TooManyBytes(limits.file_bytes))
    } else if is_utf16(bytes) {
        Some(Fault::Utf16)
    } else {
        None
    };
    if let Some(fault) = refusal {
        let problem = Broken::new(start, fault).into_problem(&file);
        reading.problems.push(problem);
        return reading;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut budget = Budget::new(limits);
    for (count, chunk) in split(bytes).enumerate() {
        let mut roots = Vec::new();
        let at = Position {
            line: chunk.first_line,
            column: 1,
        };
        let outcome = if count >= limits.documents {
            Err(Broken::new(at, Fault::TooManyDocuments(limits.documents)))
        } else if reading.problems.len() >= limits.problems {
            Err(Broken::new(at, Fault::TooManyProblems(limits.problems)))
        } else {
            read_chunk(&file, &chunk, limits, &mut budget, &mut roots)
        };
        let roots = roots.into_iter().filter(|root| !root.is_null());
        reading
            .documents
            .extend(roots.map(|root| Document { root }));
        if let Err(broken) = outcome {
            let ends_file = broken.fault.ends_file();
            reading.problems.push(broken.into_problem(&file));
            if ends_file {
                break;
            }
        }
    }
    reading
}

pub(crate) fn read_chunk(
    file: &Arc<str>,
    chunk: &Chunk<'_>,
    limits: &Limits,
    budget: &mut Budget,
    roots: &mut Vec<Node>,
) -> Result<(), Broken> {
    let text = match std::str::from_utf8(chunk.bytes) {
        Ok(text) => text,
        Err(error) => {
            let (sound, rest) = chunk.bytes.split_at(error.valid_up_to());
            let at = position_of(sound, chunk.first_line);
            let byte = rest.first().copied().unwrap_or_default();
            return Err(Broken::new(at, Fault::NotUtf8(byte)));
        }
    };
    if let Some(column) = chunk.content_after_separator {
        let at = Position {
            line: chunk.first_line,
            column,
        };
        return Err(Broken::new(at, Fault::ContentAfterSeparator));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let (body, first_line) = without_separator(text, chunk.first_line);
    let (text, text_line) = match body.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (body, first_line),
        None => (text, chunk.first_line),
    };
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    if !json::looks_like_json(body) {
        return read_yaml(file, text, text_line, limits, budget, roots);
    }
    let before = budget.clone();
    let mut builder = Builder::new(file, limits, budget);
    let broken_json = match json::scan(body, first_line, &mut builder, roots) {
        Ok(()) => return Ok(()),
        Err(broken) => broken,
    };
    if !roots.is_empty() || !matches!(broken_json.fault, Fault::JsonSyntax(_)) {
        return Err(broken_json);
    }
    // It may be YAML in flow style, which kubectl tries next. If it is neither, the reader that
    // came further has the better explanation.
    *budget = before;
    let broken_yaml = match read_yaml(file, text, text_line, limits, budget, roots) {
        Ok(()) => return Ok(()),
        Err(broken) => broken,
    };
    let reached = |broken: &Broken| (broken.at.line, broken.at.column);
    let yaml_went_further = reached(&broken_yaml) > reached(&broken_json);
    if yaml_went_further || broken_yaml.fault.ends_file() {
        return Err(broken_yaml);
    }
    Err(broken_json)
}

pub(crate) fn read_yaml(
    file: &Arc<str>,
    text: &str,
    first_line: u32,
    limits: &Limits,
    budget: &mut Budget,
    roots: &mut Vec<Node>,
) -> Result<(), Broken> {
    let mut builder = Builder::new(file, limits, budget);
    yaml::scan(text, first_line, &mut builder)?;
    roots.extend(builder.take_root());
    Ok(())
}

/// The text after its `---` line, which JSON does not know, and the line that it begins at.
pub(crate) fn without_separator(text: &str, first_line: u32) -> (&str, u32) {
    if !text.starts_with("---") {
        return (text, first_line);
    }
    match text.split_once('\n') {
        Some((_, body)) => (body, first_line.saturating_add(1)),
        None => ("", first_line),
    }
}

/// By its byte order mark, or by the zero bytes that its first two ASCII characters have there.
pub(crate) fn is_utf16(bytes: &[u8]) -> bool {
    match bytes {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => true,
        [a, b, c, d, ..] => {
            [a, b, c, d].map(|byte| *byte == 0) == [true, false, true, false]
                || [a, b, c, d].map(|byte| *byte == 0) == [false, true, false, true]
        }
        _ => false,
    }
}

//! Parses the bytes of a file into documents.

use crate::builder::{DocumentBuilder, RemainingLimits};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::limits::Limits;
use crate::location::{Position, Problem};
use crate::node::ManifestNode;
use crate::split::{Chunk, position_of, split};
use crate::{json, yaml};
use std::sync::Arc;

/// Written by some editors at the beginning of a file, and so of a document where files are concatenated.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// A document that is not empty.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Its value.
    pub root: ManifestNode,
}

/// The documents of a file, and the problems.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ParsedFile {
    /// The documents that are not empty, in the order of the file. Empty ones (`---` and comments only, or
    /// `null`) are left out.
    pub documents: Vec<Document>,
    /// What could not be read, in the order of the file. Each problem stands for a document, or the rest of
    /// the file, that is not in `documents`.
    pub problems: Vec<Problem>,
}

/// Parses YAML or JSON as kubectl does; the format is determined for each document.
///
/// `file` is only a name for messages. Never fails as a whole: see [`ParsedFile::problems`].
#[must_use]
pub fn parse(file: &str, bytes: &[u8], limits: &Limits) -> ParsedFile {
    let file: Arc<str> = file.into();
    let mut parsed = ParsedFile::default();
    let start = Position { line: 1, column: 1 };
    let error_kind = if bytes.len() > limits.file_bytes {
        Some(DocumentErrorKind::TooManyBytes(limits.file_bytes))
    } else if is_utf16(bytes) {
        Some(DocumentErrorKind::Utf16)
    } else {
        None
    };
    if let Some(kind) = error_kind {
        let problem = DocumentError::new(start, kind).into_problem(&file);
        parsed.problems.push(problem);
        return parsed;
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let mut remaining = RemainingLimits::new(limits);
    for (count, chunk) in split(bytes).enumerate() {
        let mut roots = Vec::new();
        let at = Position {
            line: chunk.first_line,
            column: 1,
        };
        let outcome = if count >= limits.documents {
            Err(DocumentError::new(
                at,
                DocumentErrorKind::TooManyDocuments(limits.documents),
            ))
        } else if parsed.problems.len() >= limits.problems {
            Err(DocumentError::new(
                at,
                DocumentErrorKind::TooManyProblems(limits.problems),
            ))
        } else {
            parse_chunk(&file, &chunk, limits, &mut remaining, &mut roots)
        };
        let roots = roots.into_iter().filter(|root| !root.is_null());
        parsed.documents.extend(roots.map(|root| Document { root }));
        if let Err(error) = outcome {
            let ends_file = error.kind.is_fatal_for_file();
            parsed.problems.push(error.into_problem(&file));
            if ends_file {
                break;
            }
        }
    }
    parsed
}

/// Parses a text that is one value in JSON, such as an annotation of an object; `name` is a name for messages.
///
/// # Errors
/// The problem, with its place in the text: it is not JSON, is no value or several, or exceeds a limit.
pub fn parse_json(name: &str, text: &str, limits: &Limits) -> Result<ManifestNode, Problem> {
    let file: Arc<str> = name.into();
    let mut remaining = RemainingLimits::new(limits);
    let mut builder = DocumentBuilder::new(&file, limits, &mut remaining);
    let mut values = Vec::new();
    let scanned = json::scan(text, 1, &mut builder, &mut values);
    scanned.map_err(|error| error.into_problem(&file))?;
    let count = values.len();
    match (values.pop(), count) {
        (Some(value), 1) => Ok(value),
        _ => {
            let what = format!("expected one value, found {count}");
            let start = Position { line: 1, column: 1 };
            let error = DocumentError::new(start, DocumentErrorKind::JsonSyntax(what));
            Err(error.into_problem(&file))
        }
    }
}

pub(crate) fn parse_chunk(
    file: &Arc<str>,
    chunk: &Chunk<'_>,
    limits: &Limits,
    remaining: &mut RemainingLimits,
    roots: &mut Vec<ManifestNode>,
) -> Result<(), DocumentError> {
    let text = match std::str::from_utf8(chunk.bytes) {
        Ok(text) => text,
        Err(error) => {
            let (sound, rest) = chunk.bytes.split_at(error.valid_up_to());
            let at = position_of(sound, chunk.first_line);
            let byte = rest.first().copied().unwrap_or_default();
            return Err(DocumentError::new(at, DocumentErrorKind::NotUtf8(byte)));
        }
    };
    if let Some(column) = chunk.content_after_separator {
        let at = Position {
            line: chunk.first_line,
            column,
        };
        return Err(DocumentError::new(
            at,
            DocumentErrorKind::ContentAfterSeparator,
        ));
    }
    let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
    let (body, first_line) = without_separator(text, chunk.first_line);
    let (text, text_line) = match body.strip_prefix(BYTE_ORDER_MARK) {
        Some(body) => (body, first_line),
        None => (text, chunk.first_line),
    };
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    if !json::looks_like_json(body) {
        return parse_yaml(file, text, text_line, limits, remaining, roots);
    }
    let saved_limits = remaining.clone();
    let mut builder = DocumentBuilder::new(file, limits, remaining);
    let json_error = match json::scan(body, first_line, &mut builder, roots) {
        Ok(()) => return Ok(()),
        Err(broken) => broken,
    };
    if !roots.is_empty() || !matches!(json_error.kind, DocumentErrorKind::JsonSyntax(_)) {
        return Err(json_error);
    }
    // It may be YAML in flow style, which kubectl tries next. If neither parser accepts it, the error of the
    // one that read further is reported.
    *remaining = saved_limits;
    let yaml_error = match parse_yaml(file, text, text_line, limits, remaining, roots) {
        Ok(()) => return Ok(()),
        Err(broken) => broken,
    };
    let error_position = |broken: &DocumentError| (broken.position.line, broken.position.column);
    let is_yaml_further = error_position(&yaml_error) > error_position(&json_error);
    if is_yaml_further || yaml_error.kind.is_fatal_for_file() {
        return Err(yaml_error);
    }
    Err(json_error)
}

pub(crate) fn parse_yaml(
    file: &Arc<str>,
    text: &str,
    first_line: u32,
    limits: &Limits,
    remaining: &mut RemainingLimits,
    roots: &mut Vec<ManifestNode>,
) -> Result<(), DocumentError> {
    let mut builder = DocumentBuilder::new(file, limits, remaining);
    yaml::scan(text, first_line, &mut builder)?;
    roots.extend(builder.take_root());
    Ok(())
}

/// The text after its `---` line, which is not JSON, and the line at which it begins.
pub(crate) fn without_separator(text: &str, first_line: u32) -> (&str, u32) {
    if !text.starts_with("---") {
        return (text, first_line);
    }
    match text.split_once('\n') {
        Some((_, body)) => (body, first_line.saturating_add(1)),
        None => ("", first_line),
    }
}

/// Recognized by its byte order mark, or by the zero bytes of its first two ASCII characters.
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

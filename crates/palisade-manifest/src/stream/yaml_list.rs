//! Reads a YAML document that is too long for one piece: a list in block style, item by item.
//!
//! An item ends before a line that is not indented deeper than its dash. No line inside an item is indented
//! less: block scalars and continued values are indented deeper. If a text violates that rule, the item is
//! not YAML and the document is rejected.

use super::list::{ITEMS, ListBuilder};
use crate::builder::RemainingLimits;
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::location::Position;
use crate::node::{ManifestMap, ManifestNode, ManifestValue};
use crate::parse::parse_yaml;
use crate::path::FieldPath;
use crate::stream::{StreamControl, StreamReader};
use std::io;

/// The offsets of a list's items, in bytes from the beginning of the document.
struct YamlListLayout {
    /// The line with `items:`.
    items_offset: usize,
    /// The line of the first dash.
    first_item_offset: usize,
    /// The indentation of the dashes.
    indent: usize,
}

/// Reads the document at the beginning of the window; `body` is the offset of its first line, after its
/// separator line.
pub(crate) fn read_list(
    stream: &mut StreamReader<'_>,
    body: usize,
    first: bool,
) -> io::Result<StreamControl> {
    let bytes = stream.window.buffered().get(body..).unwrap_or_default();
    let Some(header) = find_layout(bytes) else {
        return match stream.read_to_document_end(first)? {
            Some(end) => Ok(stream.read_whole_document(end)),
            None => Ok(stream.reject_oversized()),
        };
    };
    stream.window.advance(body);
    let at = stream.window.position();
    let mut list = ListBuilder::new(at.in_file(&stream.file));
    let outcome = match read_fields(&mut list, stream, header.items_offset) {
        Ok(()) => read_items(&mut list, stream, &header)?,
        Err(error) => Err(error),
    };
    Ok(match outcome {
        Ok(()) => {
            list.finish(stream);
            StreamControl::Continue
        }
        Err(error) => stream.reject(error),
    })
}

/// Finds the items of a list; `None` if the document is not one.
fn find_layout(bytes: &[u8]) -> Option<YamlListLayout> {
    let mut key = None;
    let mut at = 0;
    loop {
        let line = bytes.get(at..)?;
        let length = line.iter().position(|byte| *byte == b'\n')?;
        let line = &line[..length];
        let spaces = line.iter().take_while(|byte| **byte == b' ').count();
        let words = line[spaces..].trim_ascii_end();
        match (words.first(), key) {
            (None | Some(b'#'), _) => {}
            (Some(b'-'), Some(key)) if matches!(words.get(1), None | Some(b' ')) => {
                return Some(YamlListLayout {
                    items_offset: key,
                    first_item_offset: at,
                    indent: spaces,
                });
            }
            (_, Some(_)) => return None,
            (Some(_), None) if spaces == 0 && is_items_key(words) => key = Some(at),
            (Some(byte), None) if spaces > 0 || byte.is_ascii_alphabetic() => {}
            _ => return None,
        }
        at += length + 1;
    }
}

fn is_items_key(words: &[u8]) -> bool {
    let rest = words.strip_prefix(b"items:").map(<[u8]>::trim_ascii);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"#"))
}

/// Adds the fields in the text before `end` and advances to it.
fn read_fields(
    list: &mut ListBuilder,
    stream: &mut StreamReader<'_>,
    end: usize,
) -> Result<(), DocumentError> {
    let root = parse_value(stream, end);
    let root = root.map_err(|error| list.with_context(error, &FieldPath::root()))?;
    let map = match root {
        None => ManifestMap::new(),
        Some(ManifestNode {
            value: ManifestValue::Map(map),
            ..
        }) => map,
        Some(_) => {
            let kind = DocumentErrorKind::YamlSyntax(
                "expected a field beside the list's items".to_owned(),
            );
            return Err(DocumentError::new(stream.window.position(), kind));
        }
    };
    for entry in map {
        let at = Position {
            line: entry.location.line,
            column: entry.location.column,
        };
        list.check_key(&entry.key, at)?;
        list.add_field(&entry.key, entry.location, entry.value);
    }
    stream.window.advance(end);
    Ok(())
}

/// Parses the text before `end`.
fn parse_value(
    stream: &StreamReader<'_>,
    end: usize,
) -> Result<Option<ManifestNode>, DocumentError> {
    let text = stream.text_before(end)?;
    let mut budget = RemainingLimits::new(stream.limits);
    let mut roots = Vec::new();
    let line = stream.window.position().line;
    parse_yaml(
        &stream.file,
        text,
        line,
        stream.limits,
        &mut budget,
        &mut roots,
    )?;
    Ok(roots.pop().filter(|root| !root.is_null()))
}

fn read_items(
    list: &mut ListBuilder,
    stream: &mut StreamReader<'_>,
    header: &YamlListLayout,
) -> io::Result<Result<(), DocumentError>> {
    let key = stream.window.position();
    let origin = list.begin_items(key.in_file(&stream.file));
    stream
        .window
        .advance(header.first_item_offset - header.items_offset);
    while begins_item(stream, header.indent)? {
        let path = FieldPath::root().key(ITEMS);
        let Some(end) = item_end(stream, header.indent)? else {
            let kind = DocumentErrorKind::ItemTooLong(stream.limits.file_bytes);
            let error = DocumentError::new(stream.window.position(), kind);
            return Ok(Err(list.with_context(error, &path.index(list.item_count()))));
        };
        let item = match parse_value(stream, end) {
            Ok(item) => item,
            Err(mut error) => {
                error.path = error.path.without_first();
                return Ok(Err(list.with_context(error, &path.index(list.item_count()))));
            }
        };
        let single_item = item.and_then(|node| match node.value {
            ManifestValue::List(items) if items.len() == 1 => items.into_iter().next(),
            _ => None,
        });
        let Some(item) = single_item else {
            let kind = DocumentErrorKind::YamlSyntax("expected one item of a list".to_owned());
            let error = DocumentError::new(stream.window.position(), kind);
            return Ok(Err(list.with_context(error, &path.index(list.item_count()))));
        };
        stream.window.advance(end);
        list.add_item(item, &origin, stream);
    }
    if crate::split::is_separator(stream.window.buffered()) {
        return Ok(Ok(()));
    }
    let Some(end) = stream.read_to_document_end(false)? else {
        let kind = DocumentErrorKind::ItemTooLong(stream.limits.file_bytes);
        return Ok(Err(DocumentError::new(stream.window.position(), kind)));
    };
    Ok(read_fields(list, stream, end))
}

/// Whether a dash of this indentation is at the beginning of the window.
fn begins_item(stream: &mut StreamReader<'_>, indent: usize) -> io::Result<bool> {
    stream.window.fill_to(indent + 4)?;
    let bytes = stream.window.buffered();
    let spaces = bytes.iter().take_while(|byte| **byte == b' ').count();
    let rest = bytes.get(spaces..).unwrap_or_default();
    let dash = matches!(rest, [b'-'] | [b'-', b' ' | b'\n' | b'\r', ..]);
    Ok(spaces == indent && dash)
}

/// The end of the item at the beginning of the window; `None` if the item exceeds the size limit.
fn item_end(stream: &mut StreamReader<'_>, indent: usize) -> io::Result<Option<usize>> {
    let mut line = 0;
    loop {
        let bytes = stream.window.buffered();
        let rest = bytes.get(line..).unwrap_or_default();
        let next = rest.iter().position(|byte| *byte == b'\n');
        let next = next.map(|at| line + at + 1);
        let begins = next.and_then(|next| {
            let rest = bytes.get(next..)?;
            let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
            let first = rest.get(spaces)?;
            let content = !matches!(first, b'\n' | b'\r' | b'#');
            Some((next, content && spaces <= indent))
        });
        match begins {
            Some((end, true)) => return Ok(Some(end)),
            Some((next, false)) => line = next,
            None if stream.window.at_eof() => return Ok(Some(bytes.len())),
            None if bytes.len() > stream.limits.file_bytes => return Ok(None),
            None => stream.window.read_more()?,
        }
    }
}

//! Reads a JSON object that is too long for one piece: field by field, and its `items` one by one.

use super::list::{ITEMS, ListBuilder};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::filtered_json::{FilteredJsonReader, ScanError};
use crate::path::FieldPath;
use crate::stream::StreamReader;
use std::io;

/// The result of reading a document; the outer error comes from the reader.
type ReadResult<T> = io::Result<Result<T, DocumentError>>;

/// Reads the object at the beginning of the window.
pub(crate) fn read_list(stream: &mut StreamReader<'_>) -> ReadResult<()> {
    let location = stream.window.position().in_file(&stream.file);
    let mut list = ListBuilder::new(location);
    let outcome = read_fields(&mut list, stream)?;
    Ok(match outcome {
        Ok(()) => {
            list.finish(stream);
            Ok(())
        }
        Err((broken, path)) => Err(list.with_context(broken, &path)),
    })
}

/// A value, or an error with the path of the value that it is in.
type PathResult<T> = Result<T, (DocumentError, FieldPath)>;

fn read_fields(
    list: &mut ListBuilder,
    stream: &mut StreamReader<'_>,
) -> io::Result<PathResult<()>> {
    let root = FieldPath::root();
    stream.window.advance(1);
    if next_byte(stream)? == Some(b'}') {
        stream.window.advance(1);
        return Ok(Ok(()));
    }
    loop {
        if next_byte(stream)? != Some(b'"') {
            let error = expected_error("a field name in double quotes", stream);
            return Ok(Err((error, root)));
        }
        let at = stream.window.position();
        let key = match read_in_window(stream, |reader| reader.read_string().map(String::from))? {
            Ok(key) => key,
            Err(error) => return Ok(Err((error, root))),
        };
        if let Err(error) = list.check_key(&key, at) {
            return Ok(Err((error, root)));
        }
        let path = root.key(&*key);
        if next_byte(stream)? != Some(b':') {
            return Ok(Err((expected_error("`:`", stream), path)));
        }
        stream.window.advance(1);
        let location = at.in_file(&stream.file);
        let value = next_byte(stream)?;
        if key == ITEMS && value == Some(b'[') {
            if let Err(located_error) = read_items(list, location, stream)? {
                return Ok(Err(located_error));
            }
        } else {
            match read_in_window(stream, |reader| reader.read_value())? {
                Ok(value) => list.add_field(&key, location, value),
                Err(error) => return Ok(Err((error, path))),
            }
        }
        match next_byte(stream)? {
            Some(b',') => stream.window.advance(1),
            Some(b'}') => {
                stream.window.advance(1);
                return Ok(Ok(()));
            }
            _ => return Ok(Err((expected_error("`,` or `}`", stream), root))),
        }
    }
}

fn read_items(
    list: &mut ListBuilder,
    location: crate::location::Location,
    stream: &mut StreamReader<'_>,
) -> io::Result<PathResult<()>> {
    let origin = list.begin_items(location);
    let filter = stream.filter;
    let path = FieldPath::root().key(ITEMS);
    stream.window.advance(1);
    if next_byte(stream)? == Some(b']') {
        stream.window.advance(1);
        return Ok(Ok(()));
    }
    loop {
        next_byte(stream)?;
        match read_in_window(stream, |reader| {
            reader.read_object(filter, origin.item_kind())
        })? {
            Ok(item) => list.add_item(item, &origin, stream),
            Err(error) => return Ok(Err((error, path.index(list.item_count())))),
        }
        match next_byte(stream)? {
            Some(b',') => stream.window.advance(1),
            Some(b']') => {
                stream.window.advance(1);
                return Ok(Ok(()));
            }
            _ => {
                let path = path.index(list.item_count());
                return Ok(Err((expected_error("`,` or `]`", stream), path)));
            }
        }
    }
}

/// The next non-blank byte.
fn next_byte(stream: &mut StreamReader<'_>) -> io::Result<Option<u8>> {
    stream.skip_blanks()?;
    Ok(stream.window.valid_utf8().first().copied())
}

/// Reads the value at the beginning of the window; the window grows until the value is complete.
fn read_in_window<T>(
    stream: &mut StreamReader<'_>,
    mut read: impl FnMut(&mut FilteredJsonReader<'_>) -> Result<T, ScanError>,
) -> ReadResult<T> {
    loop {
        let mut reader = stream.json_reader();
        let outcome = read(&mut reader);
        match outcome {
            Ok(value) => {
                let (end, position) = (reader.offset(), reader.position());
                stream.window.advance_to(end, position);
                return Ok(Ok(value));
            }
            Err(ScanError::Incomplete) if !stream.is_text_exhausted() => {
                let most = stream.limits.file_bytes;
                if stream.window.buffered().len() > most {
                    let at = stream.window.position();
                    return Ok(Err(DocumentError::new(
                        at,
                        DocumentErrorKind::ItemTooLong(most),
                    )));
                }
                stream.window.read_more()?;
            }
            Err(_) => return Ok(Err(stream.json_error())),
        }
    }
}

/// The error for an unexpected byte, or the end, at the beginning of the window.
fn expected_error(what: &str, stream: &mut StreamReader<'_>) -> DocumentError {
    let at = stream.window.position();
    let text = std::str::from_utf8(stream.window.valid_utf8()).unwrap_or_default();
    let description = match (text.chars().next(), stream.window.invalid_byte()) {
        (Some(character), _) => format!("`{}`", character.escape_debug()),
        (None, Some(byte)) => return DocumentError::new(at, DocumentErrorKind::NotUtf8(byte)),
        (None, None) => "the end of the text".to_owned(),
    };
    let kind = DocumentErrorKind::JsonSyntax(format!("expected {what}, found {description}"));
    DocumentError::new(at, kind)
}

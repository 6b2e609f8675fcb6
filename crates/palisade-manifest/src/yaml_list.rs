//! A YAML document too long to be read in one piece: a list in block style, item by item.
//!
//! An item ends where a line begins that is not indented deeper than its dash. Nothing inside of an
//! item begins such a line: neither text in blocks nor a value that goes on, which both are indented
//! deeper. Where a text breaks that rule the item is not YAML, and the document is refused.

use crate::build::Budget;
use crate::fault::{Broken, Fault};
use crate::list::{ITEMS, OpenList};
use crate::location::Position;
use crate::node::{Map, Node, Value};
use crate::path::FieldPath;
use crate::read::read_yaml;
use crate::stream::{Next, Stream};
use std::io;

/// Where the items of a list are, in bytes from the document's beginning.
struct Header {
    /// The line that says `items:`.
    key: usize,
    /// The line of the first dash.
    first: usize,
    /// How far dashes are indented.
    indent: usize,
}

/// Reads the document at the window's beginning; `body` is where its first line begins, behind the
/// one that separates it from the one before.
pub(crate) fn read(stream: &mut Stream<'_>, body: usize, first: bool) -> io::Result<Next> {
    let bytes = stream.window.all().get(body..).unwrap_or_default();
    let Some(header) = header(bytes) else {
        return match stream.find_end(first)? {
            Some(end) => Ok(stream.in_one_piece(end)),
            None => Ok(stream.too_long()),
        };
    };
    stream.window.pass(body);
    let at = stream.window.position();
    let mut list = OpenList::new(at.in_file(&stream.file));
    let outcome = match fields(&mut list, stream, header.key) {
        Ok(()) => items(&mut list, stream, &header)?,
        Err(broken) => Err(broken),
    };
    Ok(match outcome {
        Ok(()) => {
            list.end(stream);
            Next::Continue
        }
        Err(broken) => stream.broken(broken),
    })
}

/// Finds the items of a list, if the document is one.
fn header(bytes: &[u8]) -> Option<Header> {
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
                return Some(Header {
                    key,
                    first: at,
                    indent: spaces,
                });
            }
            (_, Some(_)) => return None,
            (Some(_), None) if spaces == 0 && is_items(words) => key = Some(at),
            (Some(byte), None) if spaces > 0 || byte.is_ascii_alphabetic() => {}
            _ => return None,
        }
        at += length + 1;
    }
}

fn is_items(words: &[u8]) -> bool {
    let rest = words.strip_prefix(b"items:").map(<[u8]>::trim_ascii);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"#"))
}

/// Takes in the fields that the text before `end` says, and goes on behind it.
fn fields(list: &mut OpenList, stream: &mut Stream<'_>, end: usize) -> Result<(), Broken> {
    let root = value(stream, end);
    let root = root.map_err(|broken| list.broken(broken, &FieldPath::root()))?;
    let map = match root {
        None => Map::new(),
        Some(Node {
            value: Value::Map(map),
            ..
        }) => map,
        Some(_) => {
            let fault = Fault::YamlSyntax("expected a field beside the list's items".to_owned());
            return Err(Broken::new(stream.window.position(), fault));
        }
    };
    for entry in map {
        let at = Position {
            line: entry.location.line,
            column: entry.location.column,
        };
        list.key(&entry.key, at)?;
        list.field(&entry.key, entry.location, entry.value);
    }
    stream.window.pass(end);
    Ok(())
}

/// What the text before `end` says.
fn value(stream: &Stream<'_>, end: usize) -> Result<Option<Node>, Broken> {
    let text = stream.text(end)?;
    let mut budget = Budget::new(stream.limits);
    let mut roots = Vec::new();
    let line = stream.window.position().line;
    read_yaml(
        &stream.file,
        text,
        line,
        stream.limits,
        &mut budget,
        &mut roots,
    )?;
    Ok(roots.pop().filter(|root| !root.is_null()))
}

fn items(
    list: &mut OpenList,
    stream: &mut Stream<'_>,
    header: &Header,
) -> io::Result<Result<(), Broken>> {
    let key = stream.window.position();
    let origin = list.items(key.in_file(&stream.file));
    stream.window.pass(header.first - header.key);
    while begins_item(stream, header.indent)? {
        let path = FieldPath::root().key(ITEMS);
        let Some(end) = end_of_item(stream, header.indent)? else {
            let fault = Fault::PieceTooLong(stream.limits.file_bytes);
            let broken = Broken::new(stream.window.position(), fault);
            return Ok(Err(list.broken(broken, &path.index(list.count()))));
        };
        let item = match value(stream, end) {
            Ok(item) => item,
            Err(mut broken) => {
                broken.path = broken.path.after_first();
                return Ok(Err(list.broken(broken, &path.index(list.count()))));
            }
        };
        let one = item.and_then(|node| match node.value {
            Value::List(items) if items.len() == 1 => items.into_iter().next(),
            _ => None,
        });
        let Some(item) = one else {
            let fault = Fault::YamlSyntax("expected one item of a list".to_owned());
            let broken = Broken::new(stream.window.position(), fault);
            return Ok(Err(list.broken(broken, &path.index(list.count()))));
        };
        stream.window.pass(end);
        list.item(item, &origin, stream);
    }
    if crate::split::is_separator(stream.window.all()) {
        return Ok(Ok(()));
    }
    let Some(end) = stream.find_end(false)? else {
        let fault = Fault::PieceTooLong(stream.limits.file_bytes);
        return Ok(Err(Broken::new(stream.window.position(), fault)));
    };
    Ok(fields(list, stream, end))
}

/// Whether the window begins with a dash of this indentation.
fn begins_item(stream: &mut Stream<'_>, indent: usize) -> io::Result<bool> {
    stream.window.at_least(indent + 4)?;
    let bytes = stream.window.all();
    let spaces = bytes.iter().take_while(|byte| **byte == b' ').count();
    let rest = bytes.get(spaces..).unwrap_or_default();
    let dash = matches!(rest, [b'-'] | [b'-', b' ' | b'\n' | b'\r', ..]);
    Ok(spaces == indent && dash)
}

/// Where the item at the window's beginning ends; `None` if that is too far away.
fn end_of_item(stream: &mut Stream<'_>, indent: usize) -> io::Result<Option<usize>> {
    let mut line = 0;
    loop {
        let bytes = stream.window.all();
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
            None if stream.window.ended() => return Ok(Some(bytes.len())),
            None if bytes.len() > stream.limits.file_bytes => return Ok(None),
            None => stream.window.more()?,
        }
    }
}

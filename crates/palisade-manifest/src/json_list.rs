//! A JSON object too long to be read in one piece: its fields one by one, and of its `items` each.

use crate::fault::{Broken, Fault};
use crate::list::{ITEMS, OpenList};
use crate::path::FieldPath;
use crate::pruned::{Pruned, Stop};
use crate::stream::Stream;
use std::io;

/// What a document's reading gives, and the reader's own failures.
type Outcome<T> = io::Result<Result<T, Broken>>;

/// Reads the object that begins at the window's first byte.
pub(crate) fn read(stream: &mut Stream<'_>) -> Outcome<()> {
    let location = stream.window.position().in_file(&stream.file);
    let mut list = OpenList::new(location);
    let outcome = fields(&mut list, stream)?;
    Ok(match outcome {
        Ok(()) => {
            list.end(stream);
            Ok(())
        }
        Err((broken, path)) => Err(list.broken(broken, &path)),
    })
}

/// A fault with the path of the value that it was met in.
type At<T> = Result<T, (Broken, FieldPath)>;

fn fields(list: &mut OpenList, stream: &mut Stream<'_>) -> io::Result<At<()>> {
    let root = FieldPath::root();
    stream.window.pass(1);
    if next(stream)? == Some(b'}') {
        stream.window.pass(1);
        return Ok(Ok(()));
    }
    loop {
        if next(stream)? != Some(b'"') {
            let broken = expected("a field name in double quotes", stream);
            return Ok(Err((broken, root)));
        }
        let at = stream.window.position();
        let key = match piece(stream, |reader| reader.text().map(String::from))? {
            Ok(key) => key,
            Err(broken) => return Ok(Err((broken, root))),
        };
        if let Err(broken) = list.key(&key, at) {
            return Ok(Err((broken, root)));
        }
        let path = root.key(&*key);
        if next(stream)? != Some(b':') {
            return Ok(Err((expected("`:`", stream), path)));
        }
        stream.window.pass(1);
        let location = at.in_file(&stream.file);
        let value = next(stream)?;
        if key == ITEMS && value == Some(b'[') {
            if let Err(fault) = items(list, location, stream)? {
                return Ok(Err(fault));
            }
        } else {
            match piece(stream, |reader| reader.whole())? {
                Ok(value) => list.field(&key, location, value),
                Err(broken) => return Ok(Err((broken, path))),
            }
        }
        match next(stream)? {
            Some(b',') => stream.window.pass(1),
            Some(b'}') => {
                stream.window.pass(1);
                return Ok(Ok(()));
            }
            _ => return Ok(Err((expected("`,` or `}`", stream), root))),
        }
    }
}

fn items(
    list: &mut OpenList,
    location: crate::location::Location,
    stream: &mut Stream<'_>,
) -> io::Result<At<()>> {
    let origin = list.items(location);
    let keep = stream.keep;
    let path = FieldPath::root().key(ITEMS);
    stream.window.pass(1);
    if next(stream)? == Some(b']') {
        stream.window.pass(1);
        return Ok(Ok(()));
    }
    loop {
        next(stream)?;
        match piece(stream, |reader| reader.object(keep, origin.kind()))? {
            Ok(item) => list.item(item, &origin, stream),
            Err(broken) => return Ok(Err((broken, path.index(list.count())))),
        }
        match next(stream)? {
            Some(b',') => stream.window.pass(1),
            Some(b']') => {
                stream.window.pass(1);
                return Ok(Ok(()));
            }
            _ => {
                let path = path.index(list.count());
                return Ok(Err((expected("`,` or `]`", stream), path)));
            }
        }
    }
}

/// The next byte that is not blank.
fn next(stream: &mut Stream<'_>) -> io::Result<Option<u8>> {
    stream.skip_blanks()?;
    Ok(stream.window.sound().first().copied())
}

/// Reads what begins at the window's first byte; the window grows until all of it is there.
fn piece<T>(
    stream: &mut Stream<'_>,
    mut read: impl FnMut(&mut Pruned<'_>) -> Result<T, Stop>,
) -> Outcome<T> {
    loop {
        let mut reader = stream.pruned();
        let outcome = read(&mut reader);
        let end = reader.end();
        match outcome {
            Ok(value) => {
                stream.window.pass(end);
                return Ok(Ok(value));
            }
            Err(Stop::More) if !stream.ended() => {
                let most = stream.limits.file_bytes;
                if stream.window.all().len() > most {
                    let at = stream.window.position();
                    return Ok(Err(Broken::new(at, Fault::PieceTooLong(most))));
                }
                stream.window.more()?;
            }
            Err(_) => return Ok(Err(stream.fault())),
        }
    }
}

/// Something else stands at the window's first byte, or nothing.
fn expected(what: &str, stream: &mut Stream<'_>) -> Broken {
    let at = stream.window.position();
    let text = std::str::from_utf8(stream.window.sound()).unwrap_or_default();
    let found = match (text.chars().next(), stream.window.broken()) {
        (Some(character), _) => format!("`{}`", character.escape_debug()),
        (None, Some(byte)) => return Broken::new(at, Fault::NotUtf8(byte)),
        (None, None) => "the end of the text".to_owned(),
    };
    let fault = Fault::JsonSyntax(format!("expected {what}, found {found}"));
    Broken::new(at, fault)
}

//! A file of any size, object by object.
//!
//! For: dumps of whole clusters. What [`read`](crate::read()) and [`objects`](crate::objects()) say of
//! a file, this says of it without ever holding more than one document of it, or, of a list, more
//! than one item. [`Limits::file_bytes`] bounds such a piece; the file as a whole has no bound.
//!
//! What is told of a document is the same as in one piece, but for long ones (longer than a step):
//! JSON that is only YAML in flow style is refused with what JSON has against it, and an alias in a
//! YAML list cannot stand for what another item marks, which is a problem like any other. A list that
//! is broken anywhere gives none of its items.

use crate::build::{Budget, Builder};
use crate::fault::{Broken, Fault};
use crate::fields::FieldsOfKind;
use crate::json;
use crate::json_list;
use crate::limits::Limits;
use crate::location::Position;
use crate::node::Node;
use crate::object::{Origin, Sink, Unfolding};
use crate::pruned::{Pruned, Stop};
use crate::read::{is_utf16, read_chunk};
use crate::split::{
    BYTE_ORDER_MARK, Chunk, content_after_separator, is_directives, is_separator, next_separator,
};
use crate::window::Window;
use crate::yaml_list;
use std::io::{self, Read};
use std::sync::Arc;

/// How far a file was read.
pub(crate) enum Next {
    /// What comes next is read.
    Continue,
    /// The rest of the document cannot be read.
    Skip,
    /// The rest of the file cannot be read.
    Stop,
}

/// Reads what `reader` gives and hands every object to `sink`, with what `keep` keeps of it.
///
/// `file` is only a name for messages. `step` is how many bytes are asked for and looked at together:
/// what does not fit is read piece by piece; `None` for the usual, 1 MiB.
///
/// # Errors
/// If the reader fails. What came before was handed over, but for the document that was being read.
pub fn stream(
    file: &str,
    reader: &mut dyn Read,
    limits: &Limits,
    step: Option<usize>,
    keep: FieldsOfKind,
    sink: &mut dyn Sink,
) -> io::Result<()> {
    let mut stream = Stream {
        file: file.into(),
        limits,
        keep,
        window: Window::new(reader, step.unwrap_or(usize::MAX)),
        unfolding: Unfolding::new(limits),
        sink,
    };
    stream.window.at_least(4)?;
    if is_utf16(stream.window.all()) {
        stream.tell(Broken::new(Position::line(1), Fault::Utf16));
        return Ok(());
    }
    if stream.window.all().starts_with(b"\xef\xbb\xbf") {
        stream.window.pass(3);
        stream.window.restart();
    }
    let mut first = true;
    loop {
        stream.window.fill()?;
        if stream.window.all().is_empty() {
            return Ok(());
        }
        stream.sink.begin();
        match stream.document(first) {
            Ok(Next::Stop) => return Ok(()),
            Ok(Next::Continue) => {}
            Ok(Next::Skip) => stream.skip_to_separator()?,
            Err(error) => {
                stream.sink.undo();
                return Err(error);
            }
        }
        first = false;
    }
}

/// How many bytes tell whether a line separates documents: a byte order mark, `---` and what follows.
const SEPARATOR: usize = 7;

/// A file that is being read.
pub(crate) struct Stream<'s> {
    pub(crate) file: Arc<str>,
    pub(crate) limits: &'s Limits,
    pub(crate) keep: FieldsOfKind,
    pub(crate) window: Window<'s>,
    pub(crate) unfolding: Unfolding<'s>,
    pub(crate) sink: &'s mut dyn Sink,
}

impl Stream<'_> {
    /// All up to the next line that separates documents; the window stands at its beginning.
    fn document(&mut self, first: bool) -> io::Result<Next> {
        if let Some(end) = self.separator(first) {
            return Ok(self.in_one_piece(end));
        }
        let bytes = self.window.all();
        let at = self.window.position();
        if let Some(column) = content_after_separator(bytes) {
            let line = at.line;
            self.tell(Broken::new(
                Position { line, column },
                Fault::ContentAfterSeparator,
            ));
            return Ok(Next::Skip);
        }
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let own_line = match is_separator(bytes) {
            true => bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|at| at + 1),
            false => Some(0),
        };
        let own_line = own_line.map(|at| match bytes.get(at..) {
            Some(body) if body.starts_with(BYTE_ORDER_MARK) => at + BYTE_ORDER_MARK.len(),
            _ => at,
        });
        let body = own_line.and_then(|at| bytes.get(at..)).unwrap_or_default();
        match body.iter().find(|byte| !blank(byte)) {
            Some(b'{') => {
                self.window.pass(own_line.unwrap_or(0));
                self.json(first)
            }
            _ => yaml_list::read(self, own_line.unwrap_or(0), first),
        }
    }

    /// Where the document ends, if all of it is there.
    pub(crate) fn separator(&self, first: bool) -> Option<usize> {
        let bytes = self.window.all();
        let mut end = next_separator(bytes);
        if first && end < bytes.len() && is_directives(&bytes[..end]) {
            end += next_separator(&bytes[end..]);
        }
        // At the very end it may be the beginning of another word.
        let whole = self.window.ended() || end.saturating_add(SEPARATOR) <= bytes.len();
        whole.then_some(end)
    }

    /// Reads a document that is there as a whole.
    pub(crate) fn in_one_piece(&mut self, end: usize) -> Next {
        let bytes = self.window.all().get(..end).unwrap_or_default();
        if end > self.limits.file_bytes {
            return self.too_long();
        }
        let chunk = Chunk {
            bytes,
            first_line: self.window.position().line,
            content_after_separator: content_after_separator(bytes),
        };
        let mut roots = Vec::new();
        let mut budget = Budget::new(self.limits);
        let outcome = read_chunk(&self.file, &chunk, self.limits, &mut budget, &mut roots);
        self.window.pass(end);
        for root in roots.into_iter().filter(|root| !root.is_null()) {
            self.unfolding.object(root, &Origin::document(), self.sink);
        }
        if let Err(broken) = outcome {
            self.tell(broken);
        }
        Next::Continue
    }

    /// Reads on until the document ends, as far as it may be that long; whether it does.
    pub(crate) fn find_end(&mut self, first: bool) -> io::Result<Option<usize>> {
        while !self.window.ended() && self.window.all().len() <= self.limits.file_bytes {
            if let Some(end) = self.separator(first) {
                return Ok(Some(end));
            }
            self.window.more()?;
        }
        Ok(self.separator(first))
    }

    /// JSON values one after the other, until a line that separates documents.
    fn json(&mut self, first: bool) -> io::Result<Next> {
        let mut alone = true;
        loop {
            if !alone {
                self.skip_blanks()?;
                self.window.at_least(SEPARATOR)?;
            }
            let bytes = self.window.all();
            let at = self.window.position();
            if bytes.is_empty() || (!alone && at.column == 1 && is_separator(bytes)) {
                return Ok(Next::Continue);
            }
            self.sink.begin();
            let mut reader = self.pruned();
            let next = reader.next();
            let outcome = next.and_then(|_| reader.object(self.keep, None));
            let end = reader.end();
            match outcome {
                Ok(root) => {
                    self.window.pass(end);
                    self.unfolding.object(root, &Origin::document(), self.sink);
                }
                Err(Stop::More) if next == Ok(b'{') && !self.ended() => {
                    self.skip_blanks()?;
                    if let Err(broken) = json_list::read(self)? {
                        return Ok(self.broken(broken));
                    }
                }
                Err(_) => {
                    // It may be YAML in flow style.
                    if alone
                        && let Some(end) = self.find_end(first)?
                        && end <= self.limits.file_bytes
                    {
                        return Ok(self.in_one_piece(end));
                    }
                    let broken = self.fault();
                    return Ok(self.broken(broken));
                }
            }
            alone = false;
            self.window.fill()?;
        }
    }

    /// Goes over what is blank in JSON.
    pub(crate) fn skip_blanks(&mut self) -> io::Result<()> {
        loop {
            let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let bytes = self.window.all();
            let count = bytes.iter().take_while(|byte| blank(byte)).count();
            let all = count == bytes.len();
            self.window.pass(count);
            if !all || self.window.ended() {
                return Ok(());
            }
            self.window.more()?;
        }
    }

    /// Whether no more text can come: at the file's end, or before what is no text.
    pub(crate) fn ended(&self) -> bool {
        self.window.ended() || self.window.broken().is_some()
    }

    /// A reader of the JSON value at the window's beginning.
    pub(crate) fn pruned(&self) -> Pruned<'_> {
        Pruned::new(
            self.window.sound(),
            self.window.position(),
            &self.file,
            self.limits.effective_depth(),
        )
    }

    /// What is wrong with the JSON value at the window's beginning, which could not be read.
    pub(crate) fn fault(&mut self) -> Broken {
        let at = self.window.position();
        let text = std::str::from_utf8(self.window.sound()).unwrap_or_default();
        let mut budget = Budget::new(self.limits);
        let mut builder = Builder::new(&self.file, self.limits, &mut budget);
        let mut values: Vec<Node> = Vec::new();
        let outcome = json::scan_from(text, at, &mut builder, &mut values);
        let mut end = at;
        end.pass(text.as_bytes());
        match (outcome, self.window.broken()) {
            (Err(broken), Some(byte)) if broken.at == end => Broken::new(end, Fault::NotUtf8(byte)),
            (Err(broken), _) => broken,
            (Ok(()), Some(byte)) => Broken::new(end, Fault::NotUtf8(byte)),
            (Ok(()), None) => {
                let what = "expected a value, found the end of the text";
                Broken::new(at, Fault::JsonSyntax(what.to_owned()))
            }
        }
    }

    /// A piece has more bytes than one may have.
    pub(crate) fn too_long(&mut self) -> Next {
        let broken = Broken::new(
            self.window.position(),
            Fault::PieceTooLong(self.limits.file_bytes),
        );
        self.broken(broken)
    }

    /// Takes back a document and tells why.
    pub(crate) fn broken(&mut self, broken: Broken) -> Next {
        self.sink.undo();
        let ends = broken.fault.ends_file();
        self.tell(broken);
        match ends {
            true => Next::Stop,
            false => Next::Skip,
        }
    }

    fn tell(&mut self, broken: Broken) {
        let problem = broken.into_problem(&self.file);
        self.unfolding.problem(problem, self.sink);
    }

    /// Goes to the next line that separates documents, or to the end.
    fn skip_to_separator(&mut self) -> io::Result<()> {
        loop {
            let length = self.window.all().len();
            if let Some(end) = self.separator(false) {
                self.window.pass(end);
                return Ok(());
            }
            // A separator may have begun.
            self.window.pass(length.saturating_sub(8));
            self.window.more()?;
        }
    }

    /// The text before `end`.
    pub(crate) fn text(&self, end: usize) -> Result<&str, Broken> {
        let bytes = self.window.all().get(..end).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|error| {
            let (sound, rest) = bytes.split_at(error.valid_up_to());
            let mut at = self.window.position();
            at.pass(sound);
            Broken::new(
                at,
                Fault::NotUtf8(rest.first().copied().unwrap_or_default()),
            )
        })
    }
}

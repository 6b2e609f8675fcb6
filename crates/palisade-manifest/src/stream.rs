//! Reads a file of any size object by object.
//!
//! For dumps of whole clusters. The result is that of [`parse`](crate::parse()) and
//! [`extract_objects`](crate::extract_objects()), but at most one document, or one item of a list, is in
//! memory at a time. [`Limits::file_bytes`] limits the size of such a piece; the size of the file is not
//! limited.
//!
//! Documents longer than a chunk differ in two ways: JSON that is only valid as YAML in flow style is
//! rejected with the error of the JSON parser, and an alias in a YAML list that refers to an anchor in
//! another item is a problem. A list with an error anywhere yields none of its items.

mod json_list;
mod list;
mod yaml_list;

use crate::builder::{DocumentBuilder, RemainingLimits};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::field_filter::FieldFilterOfKind;
use crate::filtered_json::{FilteredJsonReader, ScanError};
use crate::json;
use crate::limits::Limits;
use crate::location::Position;
use crate::node::ManifestNode;
use crate::object::{ListContext, ListFlattener, ObjectSink};
use crate::parse::{is_utf16, parse_chunk};
use crate::split::{
    BYTE_ORDER_MARK, Chunk, content_after_separator, is_directives, is_separator, next_separator,
};
use crate::window::ReadWindow;
use std::io::{self, Read};
use std::sync::Arc;

/// How to continue after a part of a file.
pub(crate) enum StreamControl {
    /// Read what follows.
    Continue,
    /// The rest of the document cannot be read.
    Skip,
    /// The rest of the file cannot be read.
    Stop,
}

/// Reads a file from `reader` and passes every object to `sink`, with the fields that `filter` selects.
///
/// `file` is only a name for messages. `chunk_size` is the number of bytes read and parsed together; longer
/// documents are read piece by piece. `None` is the default, 1 MiB.
///
/// # Errors
/// If the reader fails. Objects before the error were passed on, except those of the incomplete document.
pub fn read_stream(
    file: &str,
    reader: &mut dyn Read,
    limits: &Limits,
    chunk_size: Option<usize>,
    filter: FieldFilterOfKind,
    sink: &mut dyn ObjectSink,
) -> io::Result<()> {
    let mut stream = StreamReader {
        file: file.into(),
        limits,
        filter,
        window: ReadWindow::new(reader, chunk_size.unwrap_or(usize::MAX)),
        flattener: ListFlattener::new(limits),
        sink,
    };
    stream.window.fill_to(4)?;
    if is_utf16(stream.window.buffered()) {
        stream.report(DocumentError::new(
            Position::line_start(1),
            DocumentErrorKind::Utf16,
        ));
        return Ok(());
    }
    if stream.window.buffered().starts_with(b"\xef\xbb\xbf") {
        stream.window.advance(3);
        stream.window.reset_position();
    }
    let mut first = true;
    loop {
        stream.window.fill()?;
        if stream.window.buffered().is_empty() {
            return Ok(());
        }
        stream.sink.begin_document();
        match stream.read_document(first) {
            Ok(StreamControl::Stop) => return Ok(()),
            Ok(StreamControl::Continue) => {}
            Ok(StreamControl::Skip) => stream.skip_to_separator()?,
            Err(error) => {
                stream.sink.rollback_document();
                return Err(error);
            }
        }
        first = false;
    }
}

/// The number of bytes that decide whether a line is a separator: a byte order mark, `---` and what follows.
const SEPARATOR_BYTES: usize = 7;

/// A file being read.
pub(crate) struct StreamReader<'s> {
    pub(crate) file: Arc<str>,
    pub(crate) limits: &'s Limits,
    pub(crate) filter: FieldFilterOfKind,
    pub(crate) window: ReadWindow<'s>,
    pub(crate) flattener: ListFlattener<'s>,
    pub(crate) sink: &'s mut dyn ObjectSink,
}

impl StreamReader<'_> {
    /// Reads a document up to the next separator line; the window is at its beginning.
    fn read_document(&mut self, first: bool) -> io::Result<StreamControl> {
        if let Some(end) = self.document_end(first) {
            return Ok(self.read_whole_document(end));
        }
        let bytes = self.window.buffered();
        let at = self.window.position();
        if let Some(column) = content_after_separator(bytes) {
            let line = at.line;
            self.report(DocumentError::new(
                Position { line, column },
                DocumentErrorKind::ContentAfterSeparator,
            ));
            return Ok(StreamControl::Skip);
        }
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        let body_start = if is_separator(bytes) {
            bytes
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|at| at + 1)
        } else {
            Some(0)
        };
        let own_line = body_start.map(|at| match bytes.get(at..) {
            Some(body) if body.starts_with(BYTE_ORDER_MARK) => at + BYTE_ORDER_MARK.len(),
            _ => at,
        });
        let body = own_line.and_then(|at| bytes.get(at..)).unwrap_or_default();
        match body.iter().find(|byte| !blank(byte)) {
            Some(b'{') => {
                self.window.advance(own_line.unwrap_or(0));
                self.read_json_values(first)
            }
            _ => yaml_list::read_list(self, own_line.unwrap_or(0), first),
        }
    }

    /// The end of the document, if it is in the window completely.
    pub(crate) fn document_end(&self, first: bool) -> Option<usize> {
        let bytes = self.window.buffered();
        let mut end = next_separator(bytes);
        if first && end < bytes.len() && is_directives(&bytes[..end]) {
            end += next_separator(&bytes[end..]);
        }
        // At the end of the buffer it may be the beginning of another word.
        let whole = self.window.at_eof() || end.saturating_add(SEPARATOR_BYTES) <= bytes.len();
        whole.then_some(end)
    }

    /// Parses a document that is in the window completely.
    pub(crate) fn read_whole_document(&mut self, end: usize) -> StreamControl {
        let bytes = self.window.buffered().get(..end).unwrap_or_default();
        if end > self.limits.file_bytes {
            return self.reject_oversized();
        }
        let chunk = Chunk {
            bytes,
            first_line: self.window.position().line,
            content_after_separator: content_after_separator(bytes),
        };
        let mut roots = Vec::new();
        let mut budget = RemainingLimits::new(self.limits);
        let outcome = parse_chunk(&self.file, &chunk, self.limits, &mut budget, &mut roots);
        self.window.advance(end);
        for root in roots.into_iter().filter(|root| !root.is_null()) {
            self.flattener
                .flatten(root, &ListContext::document(), self.sink);
        }
        if let Err(error) = outcome {
            self.report(error);
        }
        StreamControl::Continue
    }

    /// Reads until the end of the document, within the size limit; the end if it was reached.
    pub(crate) fn read_to_document_end(&mut self, first: bool) -> io::Result<Option<usize>> {
        while !self.window.at_eof() && self.window.buffered().len() <= self.limits.file_bytes {
            if let Some(end) = self.document_end(first) {
                return Ok(Some(end));
            }
            self.window.read_more()?;
        }
        Ok(self.document_end(first))
    }

    /// Reads JSON values in a row up to a separator line.
    fn read_json_values(&mut self, first: bool) -> io::Result<StreamControl> {
        let mut is_first = true;
        loop {
            if !is_first {
                self.skip_blanks()?;
                self.window.fill_to(SEPARATOR_BYTES)?;
            }
            let bytes = self.window.buffered();
            let at = self.window.position();
            if bytes.is_empty() || (!is_first && at.column == 1 && is_separator(bytes)) {
                return Ok(StreamControl::Continue);
            }
            self.sink.begin_document();
            let mut reader = self.json_reader();
            let next = reader.peek_non_blank();
            let outcome = next.and_then(|_| reader.read_object(self.filter, None));
            let end = reader.offset();
            match outcome {
                Ok(root) => {
                    self.window.advance(end);
                    self.flattener
                        .flatten(root, &ListContext::document(), self.sink);
                }
                Err(ScanError::Incomplete) if next == Ok(b'{') && !self.is_text_exhausted() => {
                    self.skip_blanks()?;
                    if let Err(error) = json_list::read_list(self)? {
                        return Ok(self.reject(error));
                    }
                }
                Err(ScanError::Incomplete) if !is_first && !self.is_text_exhausted() => {
                    if self.window.buffered().len() > self.limits.file_bytes {
                        return Ok(self.reject_oversized());
                    }
                    self.window.read_more()?;
                    continue;
                }
                Err(_) => {
                    // It may be YAML in flow style.
                    if is_first
                        && let Some(end) = self.read_to_document_end(first)?
                        && end <= self.limits.file_bytes
                    {
                        return Ok(self.read_whole_document(end));
                    }
                    let error = self.json_error();
                    return Ok(self.reject(error));
                }
            }
            is_first = false;
            self.window.fill()?;
        }
    }

    /// Skips JSON blanks.
    pub(crate) fn skip_blanks(&mut self) -> io::Result<()> {
        loop {
            let blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
            let bytes = self.window.buffered();
            let count = bytes.iter().take_while(|byte| blank(byte)).count();
            let all = count == bytes.len();
            self.window.advance(count);
            if !all || self.window.at_eof() {
                return Ok(());
            }
            self.window.read_more()?;
        }
    }

    /// Whether no more text can come: at the end of the file, or before a byte that is not UTF-8.
    pub(crate) fn is_text_exhausted(&self) -> bool {
        self.window.at_eof() || self.window.invalid_byte().is_some()
    }

    /// A reader of the JSON value at the beginning of the window.
    pub(crate) fn json_reader(&self) -> FilteredJsonReader<'_> {
        FilteredJsonReader::new(
            self.window.valid_utf8(),
            self.window.position(),
            &self.file,
            self.limits.effective_depth(),
        )
        .with_eof(self.window.at_eof() && self.window.invalid_byte().is_none())
    }

    /// The error in the JSON value at the beginning of the window, which could not be read.
    pub(crate) fn json_error(&mut self) -> DocumentError {
        let at = self.window.position();
        let text = std::str::from_utf8(self.window.valid_utf8()).unwrap_or_default();
        let mut budget = RemainingLimits::new(self.limits);
        let mut builder = DocumentBuilder::new(&self.file, self.limits, &mut budget);
        let mut values: Vec<ManifestNode> = Vec::new();
        let outcome = json::scan_from(text, at, &mut builder, &mut values);
        let mut end = at;
        end.advance(text.as_bytes());
        match (outcome, self.window.invalid_byte()) {
            (Err(error), Some(byte)) if error.position == end => {
                DocumentError::new(end, DocumentErrorKind::NotUtf8(byte))
            }
            (Err(error), _) => error,
            (Ok(()), Some(byte)) => DocumentError::new(end, DocumentErrorKind::NotUtf8(byte)),
            (Ok(()), None) => {
                let what = "expected a value, found the end of the text";
                DocumentError::new(at, DocumentErrorKind::JsonSyntax(what.to_owned()))
            }
        }
    }

    /// A piece exceeds the size limit.
    pub(crate) fn reject_oversized(&mut self) -> StreamControl {
        let error = DocumentError::new(
            self.window.position(),
            DocumentErrorKind::ItemTooLong(self.limits.file_bytes),
        );
        self.reject(error)
    }

    /// Rolls a document back and reports the error.
    pub(crate) fn reject(&mut self, broken: DocumentError) -> StreamControl {
        self.sink.rollback_document();
        let ends = broken.kind.is_fatal_for_file();
        self.report(broken);
        if ends {
            StreamControl::Stop
        } else {
            StreamControl::Skip
        }
    }

    fn report(&mut self, error: DocumentError) {
        let problem = error.into_problem(&self.file);
        self.flattener.report(problem, self.sink);
    }

    /// Skips to the next separator line, or to the end.
    fn skip_to_separator(&mut self) -> io::Result<()> {
        loop {
            let length = self.window.buffered().len();
            if let Some(end) = self.document_end(false) {
                self.window.advance(end);
                return Ok(());
            }
            // A separator may have begun.
            self.window.advance(length.saturating_sub(8));
            self.window.read_more()?;
        }
    }

    /// The text before `end`.
    pub(crate) fn text_before(&self, end: usize) -> Result<&str, DocumentError> {
        let bytes = self.window.buffered().get(..end).unwrap_or_default();
        std::str::from_utf8(bytes).map_err(|error| {
            let (sound, rest) = bytes.split_at(error.valid_up_to());
            let mut at = self.window.position();
            at.advance(sound);
            DocumentError::new(
                at,
                DocumentErrorKind::NotUtf8(rest.first().copied().unwrap_or_default()),
            )
        })
    }
}

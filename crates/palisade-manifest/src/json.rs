//! Scans JSON text, several documents in a row, into a [`DocumentBuilder`].
//!
//! JSON is not read with the YAML parser, although YAML claims to be a superset: surrogate pairs, tabs, long
//! keys and numbers follow different rules.

use crate::builder::{DocumentBuilder, ScannedScalar};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::location::Position;
use crate::node::ManifestNode;
use crate::scalar::Scalar;
use std::sync::Arc;

/// Whether kubectl would parse the text as JSON.
pub(crate) fn looks_like_json(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n'])
        .starts_with(['{', '['])
}

/// Scans all documents of `text`, whose first line is line `first_line` of the file. Documents that were
/// complete before an error are in `documents`.
pub(crate) fn scan(
    text: &str,
    first_line: u32,
    builder: &mut DocumentBuilder<'_>,
    documents: &mut Vec<ManifestNode>,
) -> Result<(), DocumentError> {
    scan_from(text, Position::line_start(first_line), builder, documents)
}

/// Like [`scan`], for a text that begins at `position`.
pub(crate) fn scan_from(
    text: &str,
    position: Position,
    builder: &mut DocumentBuilder<'_>,
    documents: &mut Vec<ManifestNode>,
) -> Result<(), DocumentError> {
    let mut scanner = Scanner {
        text,
        offset: 0,
        position_offset: 0,
        position,
        levels: Vec::new(),
        builder,
    };
    loop {
        scanner.skip_blanks();
        if scanner.peek().is_none() {
            return Ok(());
        }
        scanner.document()?;
        documents.extend(scanner.builder.take_root());
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    List,
    Object,
}

struct Scanner<'t, 'b, 'f> {
    text: &'t str,
    /// The next byte to read.
    offset: usize,
    /// The byte that `position` refers to; never after `offset`.
    position_offset: usize,
    position: Position,
    levels: Vec<Level>,
    builder: &'b mut DocumentBuilder<'f>,
}

impl<'t> Scanner<'t, '_, '_> {
    /// Scans one value. `levels` is empty before and, on success, after it.
    fn document(&mut self) -> Result<(), DocumentError> {
        loop {
            // A value is expected here.
            let opened = self.value()?;
            if opened && self.begins_value()? {
                continue;
            }
            if self.finish_value()? {
                return Ok(());
            }
        }
    }

    /// Scans a scalar, or the bracket that opens a list or object; true for a bracket.
    fn value(&mut self) -> Result<bool, DocumentError> {
        self.skip_blanks();
        let at = self.current_position();
        match self.peek() {
            Some(b'{') => {
                self.offset += 1;
                self.builder.open_map(at, 0)?;
                self.levels.push(Level::Object);
                return Ok(true);
            }
            Some(b'[') => {
                self.offset += 1;
                self.builder.open_list(at, 0)?;
                self.levels.push(Level::List);
                return Ok(true);
            }
            Some(b'"') => {
                let text = self.string()?;
                self.scalar(at, Scalar::Text(text.into()), None)?;
            }
            Some(b'-' | b'0'..=b'9') => {
                let (scalar, source) = self.number()?;
                self.scalar(at, scalar, Some(source.into()))?;
            }
            _ => {
                let words = [
                    ("null", Scalar::Null),
                    ("true", Scalar::Bool(true)),
                    ("false", Scalar::Bool(false)),
                ];
                let rest = &self.text[self.offset..];
                let Some((word, scalar)) = words.into_iter().find(|(w, _)| rest.starts_with(w))
                else {
                    return Err(self.unexpected_error("a value"));
                };
                self.offset += word.len();
                self.scalar(at, scalar, Some(word.into()))?;
            }
        }
        Ok(false)
    }

    /// After an opening bracket: whether a value follows. If not, the level is closed again.
    fn begins_value(&mut self) -> Result<bool, DocumentError> {
        self.skip_blanks();
        match (self.levels.last(), self.peek()) {
            (Some(Level::Object), Some(b'}')) | (Some(Level::List), Some(b']')) => {
                self.close()?;
                Ok(false)
            }
            (Some(Level::Object), _) => self.key().map(|()| true),
            _ => Ok(true),
        }
    }

    /// After a value: closes the levels that end here and advances to the next value. True at the end of the
    /// document.
    fn finish_value(&mut self) -> Result<bool, DocumentError> {
        loop {
            let Some(level) = self.levels.last().copied() else {
                return Ok(true);
            };
            self.skip_blanks();
            match (level, self.peek()) {
                (_, Some(b',')) => {
                    self.offset += 1;
                    if level == Level::Object {
                        self.key()?;
                    }
                    return Ok(false);
                }
                (Level::Object, Some(b'}')) | (Level::List, Some(b']')) => self.close()?,
                (Level::Object, _) => return Err(self.unexpected_error("`,` or `}`")),
                (Level::List, _) => return Err(self.unexpected_error("`,` or `]`")),
            }
        }
    }

    fn close(&mut self) -> Result<(), DocumentError> {
        let at = self.current_position();
        self.offset += 1;
        self.levels.pop();
        self.builder.close(at)
    }

    fn key(&mut self) -> Result<(), DocumentError> {
        self.skip_blanks();
        let at = self.current_position();
        if self.peek() != Some(b'"') {
            return Err(self.unexpected_error("a field name in double quotes"));
        }
        let text = self.string()?;
        self.scalar(at, Scalar::Text(text.into()), None)?;
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.unexpected_error("`:`"));
        }
        self.offset += 1;
        Ok(())
    }

    fn scalar(
        &mut self,
        at: Position,
        scalar: Scalar,
        source: Option<Arc<str>>,
    ) -> Result<(), DocumentError> {
        let scanned = ScannedScalar {
            scalar,
            source_text: source,
            is_merge_key: false,
        };
        self.builder.scalar(at, 0, scanned)
    }

    fn number(&mut self) -> Result<(Scalar, &'t str), DocumentError> {
        let start = self.offset;
        if self.peek() == Some(b'-') {
            self.offset += 1;
        }
        match self.peek() {
            Some(b'0') => self.offset += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.unexpected_error("a digit")),
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            whole = false;
            self.offset += 1;
            self.require_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.offset += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.offset += 1;
            }
            self.require_digits()?;
        }
        let text: &'t str = self.text;
        let source = &text[start..self.offset];
        if whole && let Ok(value) = source.parse() {
            return Ok((Scalar::Int(value), source));
        }
        match source.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok((Scalar::Float(value), source)),
            _ => {
                let kind = DocumentErrorKind::NotInJson {
                    text: crate::describe::quote(source),
                    what: "a number outside the 64-bit range",
                };
                Err(self.error(kind))
            }
        }
    }

    fn require_digits(&mut self) -> Result<(), DocumentError> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected_error("a digit"));
        }
        self.skip_digits();
        Ok(())
    }

    fn skip_digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.offset += 1;
        }
    }

    /// The content of a string; skips both quotes.
    fn string(&mut self) -> Result<String, DocumentError> {
        self.offset += 1;
        let mut text = String::new();
        loop {
            let start = self.offset;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.offset += 1;
            }
            // Quote, backslash and control characters are ASCII: both ends are char boundaries.
            text.push_str(&self.text[start..self.offset]);
            match self.peek() {
                Some(b'"') => {
                    self.offset += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.unexpected_error("the closing `\"` of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, DocumentError> {
        let Some(escaped) = self.text.as_bytes().get(self.offset + 1).copied() else {
            self.offset += 1;
            return Err(self.unexpected_error("an escaped character"));
        };
        let character = match escaped {
            b'"' | b'\\' | b'/' => char::from(escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.syntax_error("an invalid escape")),
        };
        self.offset += 2;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char, DocumentError> {
        let lone = "an unpaired surrogate";
        let first = self.hex_escape()?;
        let code = match first {
            0xd800..0xdc00 if self.text[self.offset..].starts_with("\\u") => match self
                .hex_escape()?
            {
                second @ 0xdc00..0xe000 => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                _ => return Err(self.syntax_error(lone)),
            },
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.syntax_error(lone))
    }

    /// The four hexadecimal digits of `\uXXXX`.
    fn hex_escape(&mut self) -> Result<u32, DocumentError> {
        let digits = self.text.as_bytes().get(self.offset + 2..self.offset + 6);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(code) = code else {
            return Err(self.syntax_error("`\\u` without four hexadecimal digits"));
        };
        self.offset += 6;
        Ok(code)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.offset).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.offset += 1;
        }
    }

    /// The position of the next byte. Computed from the last position requested, so that the cost does not
    /// depend on the length of lines.
    fn current_position(&mut self) -> Position {
        let passed = &self.text.as_bytes()[self.position_offset..self.offset];
        self.position.advance(passed);
        self.position_offset = self.offset;
        self.position
    }

    fn unexpected_error(&mut self, expected: &str) -> DocumentError {
        let description = match self.text[self.offset..].chars().next() {
            Some(character) => format!("`{}`", character.escape_debug()),
            None => "the end of the text".to_owned(),
        };
        self.syntax_error(&format!("expected {expected}, found {description}"))
    }

    fn syntax_error(&mut self, what: &str) -> DocumentError {
        self.error(DocumentErrorKind::JsonSyntax(what.to_owned()))
    }

    fn error(&mut self, fault: DocumentErrorKind) -> DocumentError {
        let at = self.current_position();
        self.builder.error_at(at, fault)
    }
}

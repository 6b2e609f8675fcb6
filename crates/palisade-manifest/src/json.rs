//! Scans JSON text, several documents one after the other, into a [`Builder`].
//!
//! JSON is not read through the YAML parser, although YAML claims to contain it: surrogate pairs,
//! tabs and long keys differ, and a number there has other rules.

use crate::build::{Builder, Found};
use crate::fault::{Broken, Fault};
use crate::location::Position;
use crate::node::Node;
use crate::scalar::Scalar;
use std::sync::Arc;

/// Whether kubectl would take the text for JSON.
pub(crate) fn looks_like_json(text: &str) -> bool {
    text.trim_start_matches([' ', '\t', '\r', '\n'])
        .starts_with(['{', '['])
}

/// Reads all documents of `text`, whose first line is the file's line `first_line`. What was
/// whole before a fault is in `documents`.
pub(crate) fn scan(
    text: &str,
    first_line: u32,
    builder: &mut Builder<'_>,
    documents: &mut Vec<Node>,
) -> Result<(), Broken> {
    scan_from(text, Position::line(first_line), builder, documents)
}

/// The same for a text that begins at `position`.
pub(crate) fn scan_from(
    text: &str,
    position: Position,
    builder: &mut Builder<'_>,
    documents: &mut Vec<Node>,
) -> Result<(), Broken> {
    let mut scanner = Scanner {
        text,
        at: 0,
        marked: 0,
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
    /// The byte that is read next.
    at: usize,
    /// The byte that `position` is about; never after `at`.
    marked: usize,
    position: Position,
    levels: Vec<Level>,
    builder: &'b mut Builder<'f>,
}

impl<'t> Scanner<'t, '_, '_> {
    /// One value and all within it. `levels` is empty before and, if it succeeds, after.
    fn document(&mut self) -> Result<(), Broken> {
        loop {
            // A value is due here.
            let opened = self.value()?;
            if opened && self.first_of_level()? {
                continue;
            }
            if self.after_value()? {
                return Ok(());
            }
        }
    }

    /// Reads a scalar, or the bracket that opens a list or object; says whether it was the latter.
    fn value(&mut self) -> Result<bool, Broken> {
        self.skip_blanks();
        let at = self.mark();
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                self.builder.open_map(at, 0)?;
                self.levels.push(Level::Object);
                return Ok(true);
            }
            Some(b'[') => {
                self.at += 1;
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
                let rest = &self.text[self.at..];
                let Some((word, scalar)) = words.into_iter().find(|(w, _)| rest.starts_with(w))
                else {
                    return Err(self.unexpected("a value"));
                };
                self.at += word.len();
                self.scalar(at, scalar, Some(word.into()))?;
            }
        }
        Ok(false)
    }

    /// After an opening bracket: whether a value follows. If not, the level is closed again.
    fn first_of_level(&mut self) -> Result<bool, Broken> {
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

    /// After a value: closes what ends here and reads up to where the next value is due. Says
    /// whether the document is at its end.
    fn after_value(&mut self) -> Result<bool, Broken> {
        loop {
            let Some(level) = self.levels.last().copied() else {
                return Ok(true);
            };
            self.skip_blanks();
            match (level, self.peek()) {
                (_, Some(b',')) => {
                    self.at += 1;
                    if level == Level::Object {
                        self.key()?;
                    }
                    return Ok(false);
                }
                (Level::Object, Some(b'}')) | (Level::List, Some(b']')) => self.close()?,
                (Level::Object, _) => return Err(self.unexpected("`,` or `}`")),
                (Level::List, _) => return Err(self.unexpected("`,` or `]`")),
            }
        }
    }

    fn close(&mut self) -> Result<(), Broken> {
        let at = self.mark();
        self.at += 1;
        self.levels.pop();
        self.builder.close(at)
    }

    fn key(&mut self) -> Result<(), Broken> {
        self.skip_blanks();
        let at = self.mark();
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a field name in double quotes"));
        }
        let text = self.string()?;
        self.scalar(at, Scalar::Text(text.into()), None)?;
        self.skip_blanks();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("`:`"));
        }
        self.at += 1;
        Ok(())
    }

    fn scalar(
        &mut self,
        at: Position,
        scalar: Scalar,
        source: Option<Arc<str>>,
    ) -> Result<(), Broken> {
        let found = Found {
            scalar,
            source,
            merge: false,
        };
        self.builder.scalar(at, 0, found)
    }

    fn number(&mut self) -> Result<(Scalar, &'t str), Broken> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.unexpected("a digit")),
        }
        let mut whole = true;
        if self.peek() == Some(b'.') {
            whole = false;
            self.at += 1;
            self.require_digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.require_digits()?;
        }
        let text: &'t str = self.text;
        let source = &text[start..self.at];
        if whole && let Ok(value) = source.parse() {
            return Ok((Scalar::Int(value), source));
        }
        match source.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok((Scalar::Float(value), source)),
            _ => {
                let fault = Fault::NotInJson {
                    text: crate::describe::quote(source),
                    what: "a number beyond what 64 bits can say",
                };
                Err(self.fault(fault))
            }
        }
    }

    fn require_digits(&mut self) -> Result<(), Broken> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected("a digit"));
        }
        self.skip_digits();
        Ok(())
    }

    fn skip_digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    /// The text of a string, from its opening quote to behind its closing one.
    fn string(&mut self) -> Result<String, Broken> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let start = self.at;
            while !matches!(self.peek(), None | Some(b'"' | b'\\' | 0..=0x1f)) {
                self.at += 1;
            }
            // Quote, backslash and control characters are ASCII: both ends are char boundaries.
            text.push_str(&self.text[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(self.unexpected("the closing `\"` of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Broken> {
        let Some(escaped) = self.text.as_bytes().get(self.at + 1).copied() else {
            self.at += 1;
            return Err(self.unexpected("an escaped character"));
        };
        let character = match escaped {
            b'"' | b'\\' | b'/' => char::from(escaped),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode_escape(),
            _ => return Err(self.syntax("an escape that JSON does not know")),
        };
        self.at += 2;
        Ok(character)
    }

    fn unicode_escape(&mut self) -> Result<char, Broken> {
        let lone = "half a surrogate pair, which is no character";
        let first = self.hex_escape()?;
        let code = match first {
            0xd800..0xdc00 if self.text[self.at..].starts_with("\\u") => match self.hex_escape()? {
                second @ 0xdc00..0xe000 => 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                _ => return Err(self.syntax(lone)),
            },
            code => code,
        };
        char::from_u32(code).ok_or_else(|| self.syntax(lone))
    }

    /// The four hexadecimal digits of `\uXXXX`.
    fn hex_escape(&mut self) -> Result<u32, Broken> {
        let digits = self.text.as_bytes().get(self.at + 2..self.at + 6);
        let digits = digits.filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let Some(code) = code else {
            return Err(self.syntax("`\\u` without four hexadecimal digits"));
        };
        self.at += 6;
        Ok(code)
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// The place of the byte that is read next. Counted on from the last one asked for, so that a
    /// file in one long line costs no more than any other.
    fn mark(&mut self) -> Position {
        let passed = &self.text.as_bytes()[self.marked..self.at];
        self.position.pass(passed);
        self.marked = self.at;
        self.position
    }

    fn unexpected(&mut self, expected: &str) -> Broken {
        let found = match self.text[self.at..].chars().next() {
            Some(character) => format!("`{}`", character.escape_debug()),
            None => "the end of the text".to_owned(),
        };
        self.syntax(&format!("expected {expected}, found {found}"))
    }

    fn syntax(&mut self, what: &str) -> Broken {
        self.fault(Fault::JsonSyntax(what.to_owned()))
    }

    fn fault(&mut self, fault: Fault) -> Broken {
        let at = self.mark();
        self.builder.broken(at, fault)
    }
}

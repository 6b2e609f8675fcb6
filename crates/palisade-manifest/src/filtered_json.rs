//! A fast reader of one JSON value that keeps only the fields of a filter.
//!
//! Fields that are left out are checked like the others: syntax, escapes, numbers, depth and duplicate keys.
//! It reports no details: on any error, [`ScanError::Invalid`] makes the caller run the plain scanner of
//! [`crate::json`], which finds the same location and the reason.

use crate::field_filter::{FieldFilter, FieldFilterOfKind};
use crate::location::{Location, Position};
use crate::node::{ManifestMap, ManifestNode, ManifestValue, MapEntry};
use crate::scalar::float_as_int;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a value was not read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScanError {
    /// The text ends inside the value.
    Incomplete,
    /// The value has an error.
    Invalid,
}

/// The number of keys from which an object's keys are kept in a sorted set.
const SORT_THRESHOLD: usize = 48;

/// A key of an open object. Most different keys differ in `tag`, which avoids comparing their text.
struct KeySpan {
    quick_hash: u64,
    start: usize,
    end: usize,
    escaped: bool,
}

/// A reader of one value.
pub(crate) struct FilteredJsonReader<'t> {
    /// The text, in UTF-8.
    bytes: &'t [u8],
    /// The next byte to read.
    offset: usize,
    /// The byte that `position` refers to; never after `offset`.
    position_offset: usize,
    position: Position,
    file: &'t Arc<str>,
    max_depth: usize,
    /// Whether nothing follows `bytes`: a number may end with them.
    at_eof: bool,
    /// The keys of all open objects, outermost first.
    keys: Vec<KeySpan>,
    /// The key sets of open objects with many keys, each with its start index in `keys`.
    sorted_keys: Vec<(usize, BTreeSet<Cow<'t, str>>)>,
}

type ScanResult<T> = Result<T, ScanError>;

impl<'t> FilteredJsonReader<'t> {
    /// A reader of the value at the first of `bytes`, whose location is `position`. `bytes` are UTF-8; values
    /// may be nested `max_depth` levels deep.
    pub(crate) fn new(
        bytes: &'t [u8],
        position: Position,
        file: &'t Arc<str>,
        max_depth: usize,
    ) -> Self {
        FilteredJsonReader {
            bytes,
            offset: 0,
            position_offset: 0,
            position,
            file,
            max_depth,
            at_eof: false,
            keys: Vec::new(),
            sorted_keys: Vec::new(),
        }
    }

    /// Whether nothing follows the bytes.
    pub(crate) fn with_eof(self, at_eof: bool) -> Self {
        FilteredJsonReader { at_eof, ..self }
    }

    /// The byte after what was read.
    pub(crate) fn offset(&self) -> usize {
        self.offset
    }

    /// The position of that byte.
    pub(crate) fn position(&mut self) -> Position {
        let passed = self
            .bytes
            .get(self.position_offset..self.offset)
            .unwrap_or_default();
        self.position.advance(passed);
        self.position_offset = self.offset;
        self.position
    }

    /// Reads an object, or another value; `kind` applies to an object that has no kind of its own.
    pub(crate) fn read_object(
        &mut self,
        filter: FieldFilterOfKind,
        kind: Option<&str>,
    ) -> ScanResult<ManifestNode> {
        match self.peek()? {
            b'{' => self.map(0, filter(kind), Some(filter)),
            _ => self.value(0, &FieldFilter::All),
        }
    }

    /// Reads a complete value without a filter.
    pub(crate) fn read_value(&mut self) -> ScanResult<ManifestNode> {
        self.value(0, &FieldFilter::All)
    }

    /// Reads a string.
    pub(crate) fn read_string(&mut self) -> ScanResult<Cow<'t, str>> {
        match self.peek()? {
            b'"' => self.string(),
            _ => Err(ScanError::Invalid),
        }
    }

    /// Skips blanks and returns the next byte.
    pub(crate) fn peek_non_blank(&mut self) -> ScanResult<u8> {
        self.skip_blanks();
        self.peek()
    }

    /// Skips this byte if it is next.
    pub(crate) fn eat(&mut self, byte: u8) -> ScanResult<bool> {
        let is_next = self.peek_non_blank()? == byte;
        self.offset += usize::from(is_next);
        Ok(is_next)
    }

    fn value(&mut self, depth: usize, fields: &'static FieldFilter) -> ScanResult<ManifestNode> {
        let first = self.peek()?;
        match first {
            b'{' => return self.map(depth, fields, None),
            b'[' => return self.list(depth, fields),
            _ => {}
        }
        let location = self.location();
        let from = self.offset;
        let value = match first {
            b'"' => ManifestValue::String(self.string()?.into()),
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.literal("true", ManifestValue::Bool(true))?,
            b'f' => self.literal("false", ManifestValue::Bool(false))?,
            b'n' => self.literal("null", ManifestValue::Null)?,
            _ => return Err(ScanError::Invalid),
        };
        let source_text = match value {
            ManifestValue::String(_) => None,
            _ => Some(self.slice(from, self.offset)?.into()),
        };
        Ok(ManifestNode {
            location,
            value,
            source_text,
        })
    }

    fn list(&mut self, depth: usize, fields: &'static FieldFilter) -> ScanResult<ManifestNode> {
        self.check_depth(depth)?;
        let location = self.location();
        self.offset += 1;
        let mut items = Vec::new();
        if !self.eat(b']')? {
            loop {
                self.skip_blanks();
                items.push(self.value(depth + 1, fields)?);
                if self.eat(b']')? {
                    break;
                }
                self.expect(b',')?;
            }
        }
        Ok(ManifestNode {
            location,
            value: ManifestValue::List(items),
            source_text: None,
        })
    }

    /// Reads an object; for one with a filter by kind, the kind selects the fields.
    fn map(
        &mut self,
        depth: usize,
        mut fields: &'static FieldFilter,
        filter: Option<FieldFilterOfKind>,
    ) -> ScanResult<ManifestNode> {
        self.check_depth(depth)?;
        let location = self.location();
        self.offset += 1;
        let mut map = ManifestMap::new();
        let keys = self.keys.len();
        if !self.eat(b'}')? {
            loop {
                self.skip_blanks();
                let at = self.offset;
                let key = self.key(keys)?;
                let of_field = fields.field(&key);
                if let FieldFilter::Nothing = of_field {
                    self.skip(depth + 1)?;
                } else {
                    let end = std::mem::replace(&mut self.offset, at);
                    let location = self.location();
                    self.offset = end;
                    let value = self.value(depth + 1, of_field)?;
                    if let (Some(keep), "kind", Some(kind)) = (filter, &*key, value.as_str()) {
                        fields = keep(Some(kind));
                    }
                    if !is_left_out(of_field, &value) {
                        let entry = MapEntry {
                            key: key.into(),
                            location,
                            value,
                        };
                        map.insert(entry).map_err(|_| ScanError::Invalid)?;
                    }
                }
                if self.eat(b'}')? {
                    break;
                }
                self.expect(b',')?;
            }
        }
        self.forget_keys(keys);
        Ok(ManifestNode {
            location,
            value: ManifestValue::Map(map),
            source_text: None,
        })
    }

    /// Checks a value without keeping it.
    fn skip(&mut self, depth: usize) -> ScanResult<()> {
        match self.peek()? {
            b'"' => self.raw_string().map(drop),
            b'{' => {
                self.check_depth(depth)?;
                self.offset += 1;
                let keys = self.keys.len();
                if !self.eat(b'}')? {
                    loop {
                        self.skip_blanks();
                        self.key(keys)?;
                        self.skip(depth + 1)?;
                        if self.eat(b'}')? {
                            break;
                        }
                        self.expect(b',')?;
                    }
                }
                self.forget_keys(keys);
                Ok(())
            }
            b'[' => {
                self.check_depth(depth)?;
                self.offset += 1;
                if self.eat(b']')? {
                    return Ok(());
                }
                loop {
                    self.skip_blanks();
                    self.skip(depth + 1)?;
                    if self.eat(b']')? {
                        return Ok(());
                    }
                    self.expect(b',')?;
                }
            }
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b't' => self.literal("true", ()),
            b'f' => self.literal("false", ()),
            b'n' => self.literal("null", ()),
            _ => Err(ScanError::Invalid),
        }
    }

    fn check_depth(&self, depth: usize) -> ScanResult<()> {
        if depth >= self.max_depth {
            return Err(ScanError::Invalid);
        }
        Ok(())
    }

    fn expect(&mut self, byte: u8) -> ScanResult<()> {
        if self.eat(byte)? {
            Ok(())
        } else {
            Err(ScanError::Invalid)
        }
    }

    /// Reads a key that is new in its object, the colon, and the blanks after it. The object's keys begin at
    /// `first` in `keys`.
    fn key(&mut self, first: usize) -> ScanResult<Cow<'t, str>> {
        if self.peek()? != b'"' {
            return Err(ScanError::Invalid);
        }
        let (from, to, escaped) = self.raw_string()?;
        let text = self.text_of(from, to, escaped)?;
        let tag = quick_hash(text.as_bytes());
        let of_object = self.keys.get(first..).unwrap_or_default();
        if of_object.len() < SORT_THRESHOLD {
            for other in of_object.iter().filter(|other| other.quick_hash == tag) {
                if *self.text_of(other.start, other.end, other.escaped)? == *text {
                    return Err(ScanError::Invalid);
                }
            }
        } else {
            if self.sorted_keys.last().is_none_or(|(at, _)| *at != first) {
                let texts = of_object.iter();
                let texts = texts.map(|key| self.text_of(key.start, key.end, key.escaped));
                let texts = texts.collect::<ScanResult<BTreeSet<_>>>()?;
                self.sorted_keys.push((first, texts));
            }
            let sorted = self.sorted_keys.last_mut();
            if sorted.is_some_and(|(_, sorted)| !sorted.insert(text.clone())) {
                return Err(ScanError::Invalid);
            }
        }
        self.keys.push(KeySpan {
            quick_hash: tag,
            start: from,
            end: to,
            escaped,
        });
        self.expect(b':')?;
        self.skip_blanks();
        Ok(text)
    }

    fn forget_keys(&mut self, first: usize) {
        self.keys.truncate(first);
        while self.sorted_keys.last().is_some_and(|(at, _)| *at >= first) {
            self.sorted_keys.pop();
        }
    }

    fn literal<T>(&mut self, word: &str, value: T) -> ScanResult<T> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            self.offset += word.len();
            return Ok(value);
        }
        if word.as_bytes().starts_with(rest) {
            Err(ScanError::Incomplete)
        } else {
            Err(ScanError::Invalid)
        }
    }

    fn number(&mut self) -> ScanResult<ManifestValue> {
        let from = self.offset;
        self.offset += usize::from(self.peek()? == b'-');
        match self.peek()? {
            b'0' => self.offset += 1,
            b'1'..=b'9' => self.skip_digits()?,
            _ => return Err(ScanError::Invalid),
        }
        let mut whole = true;
        if self.peek_in_number()? == b'.' {
            whole = false;
            self.offset += 1;
            self.skip_digits()?;
        }
        if matches!(self.peek_in_number()?, b'e' | b'E') {
            whole = false;
            self.offset += 1;
            self.offset += usize::from(matches!(self.peek()?, b'+' | b'-'));
            self.skip_digits()?;
        }
        let source = self.slice(from, self.offset)?;
        if whole && let Ok(value) = source.parse() {
            return Ok(ManifestValue::Int(value));
        }
        let value: f64 = source.parse().map_err(|_| ScanError::Invalid)?;
        if !value.is_finite() {
            return Err(ScanError::Invalid);
        }
        Ok(match float_as_int(value) {
            Some(whole) => ManifestValue::Int(whole),
            None => ManifestValue::Float(value),
        })
    }

    /// Skips one or more digits.
    fn skip_digits(&mut self) -> ScanResult<()> {
        if !self.peek()?.is_ascii_digit() {
            return Err(ScanError::Invalid);
        }
        while self.peek_in_number()?.is_ascii_digit() {
            self.offset += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> ScanResult<Cow<'t, str>> {
        let (from, to, escaped) = self.raw_string()?;
        self.text_of(from, to, escaped)
    }

    /// The content of a checked string.
    fn text_of(&self, from: usize, to: usize, escaped: bool) -> ScanResult<Cow<'t, str>> {
        let raw = self.slice(from, to)?;
        if escaped {
            unescape(raw).map(Cow::Owned).ok_or(ScanError::Invalid)
        } else {
            Ok(Cow::Borrowed(raw))
        }
    }

    /// Skips a string including its quotes. Returns the start and end of its content, and whether that
    /// contains escapes, which are valid.
    fn raw_string(&mut self) -> ScanResult<(usize, usize, bool)> {
        self.offset += 1;
        let from = self.offset;
        let mut escaped = false;
        loop {
            self.offset = plain_text_end(self.bytes, self.offset);
            match self.peek()? {
                b'"' => {
                    self.offset += 1;
                    return Ok((from, self.offset - 1, escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(ScanError::Invalid),
            }
        }
    }

    fn escape(&mut self) -> ScanResult<()> {
        match self
            .bytes
            .get(self.offset + 1)
            .ok_or(ScanError::Incomplete)?
        {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.offset += 2,
            b'u' => match self.utf16_unit()? {
                0xd800..0xdc00 => {
                    let follows = self.bytes.get(self.offset..self.offset + 2);
                    if follows.ok_or(ScanError::Incomplete)? != b"\\u" {
                        return Err(ScanError::Invalid);
                    }
                    if !(0xdc00..0xe000).contains(&self.utf16_unit()?) {
                        return Err(ScanError::Invalid);
                    }
                }
                0xdc00..0xe000 => return Err(ScanError::Invalid),
                _ => {}
            },
            _ => return Err(ScanError::Invalid),
        }
        Ok(())
    }

    /// The four digits of `\uXXXX`.
    fn utf16_unit(&mut self) -> ScanResult<u32> {
        let digits = self.bytes.get(self.offset + 2..self.offset + 6);
        let unit = hexadecimal(digits.ok_or(ScanError::Incomplete)?).ok_or(ScanError::Invalid)?;
        self.offset += 6;
        Ok(unit)
    }

    /// The next byte; a blank at the end of the file, where a number is complete.
    fn peek_in_number(&self) -> ScanResult<u8> {
        match self.peek() {
            Err(ScanError::Incomplete) if self.at_eof => Ok(b' '),
            next => next,
        }
    }

    fn peek(&self) -> ScanResult<u8> {
        self.bytes
            .get(self.offset)
            .copied()
            .ok_or(ScanError::Incomplete)
    }

    fn skip_blanks(&mut self) {
        const SPACES: u64 = 0x2020_2020_2020_2020;
        loop {
            match self.bytes.get(self.offset) {
                Some(b' ') => {
                    self.offset += 1;
                    // A run of spaces, such as indentation.
                    while word_at(self.bytes, self.offset) == Some(SPACES) {
                        self.offset += 8;
                    }
                }
                Some(b'\n' | b'\r' | b'\t') => self.offset += 1,
                _ => return,
            }
        }
    }

    fn slice(&self, from: usize, to: usize) -> ScanResult<&'t str> {
        let bytes = self.bytes.get(from..to).ok_or(ScanError::Invalid)?;
        std::str::from_utf8(bytes).map_err(|_| ScanError::Invalid)
    }

    fn location(&mut self) -> Location {
        self.position().in_file(self.file)
    }
}

/// Eight bytes as an integer.
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}

/// The offset of the next quote, backslash or control character, or of the end.
fn plain_text_end(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    while let Some(word) = word_at(bytes, at) {
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = zero(word ^ (ONES * u64::from(b'"')));
        let slash = zero(word ^ (ONES * u64::from(b'\\')));
        let special = (control | quote | slash) & HIGH;
        if special != 0 {
            // The first marked byte is always a correct match.
            return at + usize::try_from(special.trailing_zeros() / 8).unwrap_or(0);
        }
        at += 8;
    }
    while let Some(byte) = bytes.get(at) {
        if matches!(byte, b'"' | b'\\' | 0..=0x1f) {
            break;
        }
        at += 1;
    }
    at
}

/// A hash: equal for equal texts, different for most others.
fn quick_hash(text: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let first = text.len().min(8);
    eight[..first].copy_from_slice(&text[..first]);
    let head = u64::from_le_bytes(eight);
    let tail = &text[text.len() - first..];
    eight[..first].copy_from_slice(tail);
    head ^ u64::from_le_bytes(eight).rotate_left(29) ^ (text.len() as u64).rotate_left(51)
}

/// Whether an object has none of the fields of which it needs one.
fn is_left_out(fields: &FieldFilter, value: &ManifestNode) -> bool {
    matches!(fields, FieldFilter::AnyOf(_))
        && matches!(&value.value, ManifestValue::Map(map) if map.is_empty())
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | digit)
    })
}

/// The content of a string whose escapes are valid.
fn unescape(raw: &str) -> Option<String> {
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        text.push_str(&rest[..at]);
        let escaped = *rest.as_bytes().get(at + 1)?;
        let unit = |at: usize| hexadecimal(rest.as_bytes().get(at..at + 4)?);
        let (character, length) = match escaped {
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => match unit(at + 2)? {
                high @ 0xd800..0xdc00 => {
                    let low = unit(at + 8)?.checked_sub(0xdc00)?;
                    let code = 0x10000 + ((high - 0xd800) << 10) + low;
                    (char::from_u32(code)?, 12)
                }
                code => (char::from_u32(code)?, 6),
            },
            _ => (char::from(escaped), 2),
        };
        text.push(character);
        rest = rest.get(at + length..)?;
    }
    text.push_str(rest);
    Some(text)
}

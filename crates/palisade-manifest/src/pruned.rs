//! Reads one JSON value fast, and keeps only the fields that are asked for.
//!
//! What is left out is held to the same rules as what is kept: syntax, escapes, numbers, depth, keys
//! written twice. It never words a problem: where anything is wrong, [`Stop::Bad`] sends the caller
//! to the plain scanner of [`crate::json`], which finds the same place and says what is wrong there.

use crate::fields::{Fields, FieldsOfKind};
use crate::location::{Location, Position};
use crate::node::{Entry, Map, Node, Value};
use crate::scalar::float_as_int;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why a value was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The text ends inside of it.
    More,
    /// Something in it is wrong.
    Bad,
}

/// From how many keys on an object's keys are kept sorted.
const SORTED_FROM: usize = 48;

/// A key of an object that is open. `tag` tells most keys apart without a look at the text.
struct Key {
    tag: u64,
    from: usize,
    to: usize,
    escaped: bool,
}

/// A reader of one value.
pub(crate) struct Pruned<'t> {
    /// UTF-8.
    bytes: &'t [u8],
    /// The byte that is read next.
    at: usize,
    /// The byte that `position` is about; never after `at`.
    marked: usize,
    position: Position,
    file: &'t Arc<str>,
    deepest: usize,
    /// The keys of all open objects, outer ones first.
    keys: Vec<Key>,
    /// The keys of open objects that have many, each with where they begin in `keys`.
    sorted: Vec<(usize, BTreeSet<Cow<'t, str>>)>,
}

type Read<T> = Result<T, Stop>;

impl<'t> Pruned<'t> {
    /// A reader of what begins at `position` with the first of `bytes`, which are UTF-8. Values may
    /// nest `deepest` levels.
    pub(crate) fn new(
        bytes: &'t [u8],
        position: Position,
        file: &'t Arc<str>,
        deepest: usize,
    ) -> Self {
        Pruned {
            bytes,
            at: 0,
            marked: 0,
            position,
            file,
            deepest,
            keys: Vec::new(),
            sorted: Vec::new(),
        }
    }

    /// The byte behind what was read.
    pub(crate) fn end(&self) -> usize {
        self.at
    }

    /// Reads a whole object, or another value; `kind` is what an object is that does not say so.
    pub(crate) fn object(&mut self, keep: FieldsOfKind, kind: Option<&str>) -> Read<Node> {
        match self.peek()? {
            b'{' => self.map(0, keep(kind), Some(keep)),
            _ => self.value(0, &Fields::All),
        }
    }

    /// Reads a value and all of it.
    pub(crate) fn whole(&mut self) -> Read<Node> {
        self.value(0, &Fields::All)
    }

    /// Reads a string.
    pub(crate) fn text(&mut self) -> Read<Cow<'t, str>> {
        match self.peek()? {
            b'"' => self.string(),
            _ => Err(Stop::Bad),
        }
    }

    /// Goes over blanks, to the next byte.
    pub(crate) fn next(&mut self) -> Read<u8> {
        self.blanks();
        self.peek()
    }

    /// Goes over this byte, if it comes next.
    pub(crate) fn eat(&mut self, byte: u8) -> Read<bool> {
        let is = self.next()? == byte;
        self.at += usize::from(is);
        Ok(is)
    }

    fn value(&mut self, depth: usize, fields: &'static Fields) -> Read<Node> {
        let first = self.peek()?;
        match first {
            b'{' => return self.map(depth, fields, None),
            b'[' => return self.list(depth, fields),
            _ => {}
        }
        let location = self.location();
        let from = self.at;
        let value = match first {
            b'"' => Value::String(self.string()?.into()),
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.word("true", Value::Bool(true))?,
            b'f' => self.word("false", Value::Bool(false))?,
            b'n' => self.word("null", Value::Null)?,
            _ => return Err(Stop::Bad),
        };
        let source_text = match value {
            Value::String(_) => None,
            _ => Some(self.slice(from, self.at)?.into()),
        };
        Ok(Node {
            location,
            value,
            source_text,
        })
    }

    fn list(&mut self, depth: usize, fields: &'static Fields) -> Read<Node> {
        self.enter(depth)?;
        let location = self.location();
        self.at += 1;
        let mut items = Vec::new();
        if !self.eat(b']')? {
            loop {
                self.blanks();
                items.push(self.value(depth + 1, fields)?);
                if self.eat(b']')? {
                    break;
                }
                self.require(b',')?;
            }
        }
        Ok(Node {
            location,
            value: Value::List(items),
            source_text: None,
        })
    }

    /// An object; one whose kind decides about its fields with `keep`.
    fn map(
        &mut self,
        depth: usize,
        mut fields: &'static Fields,
        keep: Option<FieldsOfKind>,
    ) -> Read<Node> {
        self.enter(depth)?;
        let location = self.location();
        self.at += 1;
        let mut map = Map::new();
        let keys = self.keys.len();
        if !self.eat(b'}')? {
            loop {
                self.blanks();
                let at = self.at;
                let key = self.key(keys)?;
                let of_field = fields.of(&key);
                if let Fields::Nothing = of_field {
                    self.skip(depth + 1)?;
                } else {
                    let end = std::mem::replace(&mut self.at, at);
                    let location = self.location();
                    self.at = end;
                    let value = self.value(depth + 1, of_field)?;
                    if let (Some(keep), "kind", Some(kind)) = (keep, &*key, value.as_str()) {
                        fields = keep(Some(kind));
                    }
                    let entry = Entry {
                        key: key.into(),
                        location,
                        value,
                    };
                    map.insert(entry).map_err(|_| Stop::Bad)?;
                }
                if self.eat(b'}')? {
                    break;
                }
                self.require(b',')?;
            }
        }
        self.forget_keys(keys);
        Ok(Node {
            location,
            value: Value::Map(map),
            source_text: None,
        })
    }

    /// Reads a value and keeps nothing of it.
    fn skip(&mut self, depth: usize) -> Read<()> {
        match self.peek()? {
            b'"' => self.raw_string().map(drop),
            b'{' => {
                self.enter(depth)?;
                self.at += 1;
                let keys = self.keys.len();
                if !self.eat(b'}')? {
                    loop {
                        self.blanks();
                        self.key(keys)?;
                        self.skip(depth + 1)?;
                        if self.eat(b'}')? {
                            break;
                        }
                        self.require(b',')?;
                    }
                }
                self.forget_keys(keys);
                Ok(())
            }
            b'[' => {
                self.enter(depth)?;
                self.at += 1;
                if self.eat(b']')? {
                    return Ok(());
                }
                loop {
                    self.blanks();
                    self.skip(depth + 1)?;
                    if self.eat(b']')? {
                        return Ok(());
                    }
                    self.require(b',')?;
                }
            }
            b'-' | b'0'..=b'9' => self.number().map(drop),
            b't' => self.word("true", ()),
            b'f' => self.word("false", ()),
            b'n' => self.word("null", ()),
            _ => Err(Stop::Bad),
        }
    }

    fn enter(&self, depth: usize) -> Read<()> {
        if depth >= self.deepest {
            return Err(Stop::Bad);
        }
        Ok(())
    }

    fn require(&mut self, byte: u8) -> Read<()> {
        match self.eat(byte)? {
            true => Ok(()),
            false => Err(Stop::Bad),
        }
    }

    /// A key that its object does not have yet, its colon, and the blanks behind. The object's keys
    /// begin at `first` of `keys`.
    fn key(&mut self, first: usize) -> Read<Cow<'t, str>> {
        if self.peek()? != b'"' {
            return Err(Stop::Bad);
        }
        let (from, to, escaped) = self.raw_string()?;
        let text = self.text_of(from, to, escaped)?;
        let tag = tag(text.as_bytes());
        let of_object = self.keys.get(first..).unwrap_or_default();
        if of_object.len() < SORTED_FROM {
            for other in of_object.iter().filter(|other| other.tag == tag) {
                if *self.text_of(other.from, other.to, other.escaped)? == *text {
                    return Err(Stop::Bad);
                }
            }
        } else {
            if self.sorted.last().is_none_or(|(at, _)| *at != first) {
                let texts = of_object.iter();
                let texts = texts.map(|key| self.text_of(key.from, key.to, key.escaped));
                let texts = texts.collect::<Read<BTreeSet<_>>>()?;
                self.sorted.push((first, texts));
            }
            let sorted = self.sorted.last_mut();
            if sorted.is_some_and(|(_, sorted)| !sorted.insert(text.clone())) {
                return Err(Stop::Bad);
            }
        }
        self.keys.push(Key {
            tag,
            from,
            to,
            escaped,
        });
        self.require(b':')?;
        self.blanks();
        Ok(text)
    }

    fn forget_keys(&mut self, first: usize) {
        self.keys.truncate(first);
        while self.sorted.last().is_some_and(|(at, _)| *at >= first) {
            self.sorted.pop();
        }
    }

    fn word<T>(&mut self, word: &str, value: T) -> Read<T> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(value);
        }
        match word.as_bytes().starts_with(rest) {
            true => Err(Stop::More),
            false => Err(Stop::Bad),
        }
    }

    fn number(&mut self) -> Read<Value> {
        let from = self.at;
        self.at += usize::from(self.peek()? == b'-');
        match self.peek()? {
            b'0' => self.at += 1,
            b'1'..=b'9' => self.digits()?,
            _ => return Err(Stop::Bad),
        }
        let mut whole = true;
        if self.peek()? == b'.' {
            whole = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek()?, b'e' | b'E') {
            whole = false;
            self.at += 1;
            self.at += usize::from(matches!(self.peek()?, b'+' | b'-'));
            self.digits()?;
        }
        let source = self.slice(from, self.at)?;
        if whole && let Ok(value) = source.parse() {
            return Ok(Value::Int(value));
        }
        let value: f64 = source.parse().map_err(|_| Stop::Bad)?;
        if !value.is_finite() {
            return Err(Stop::Bad);
        }
        Ok(match float_as_int(value) {
            Some(whole) => Value::Int(whole),
            None => Value::Float(value),
        })
    }

    /// One digit or more, and whatever comes behind them.
    fn digits(&mut self) -> Read<()> {
        if !self.peek()?.is_ascii_digit() {
            return Err(Stop::Bad);
        }
        while self.peek()?.is_ascii_digit() {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self) -> Read<Cow<'t, str>> {
        let (from, to, escaped) = self.raw_string()?;
        self.text_of(from, to, escaped)
    }

    /// What a checked string says.
    fn text_of(&self, from: usize, to: usize, escaped: bool) -> Read<Cow<'t, str>> {
        let raw = self.slice(from, to)?;
        match escaped {
            false => Ok(Cow::Borrowed(raw)),
            true => unescaped(raw).map(Cow::Owned).ok_or(Stop::Bad),
        }
    }

    /// A string from its opening quote to behind its closing one: where its text begins and ends,
    /// and whether there are escapes in it, which are sound.
    fn raw_string(&mut self) -> Read<(usize, usize, bool)> {
        self.at += 1;
        let from = self.at;
        let mut escaped = false;
        loop {
            self.at = plain_end(self.bytes, self.at);
            match self.peek()? {
                b'"' => {
                    self.at += 1;
                    return Ok((from, self.at - 1, escaped));
                }
                b'\\' => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(Stop::Bad),
            }
        }
    }

    fn escape(&mut self) -> Read<()> {
        match self.bytes.get(self.at + 1).ok_or(Stop::More)? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'u' => match self.unit()? {
                0xd800..0xdc00 => {
                    let follows = self.bytes.get(self.at..self.at + 2);
                    if follows.ok_or(Stop::More)? != b"\\u" {
                        return Err(Stop::Bad);
                    }
                    if !(0xdc00..0xe000).contains(&self.unit()?) {
                        return Err(Stop::Bad);
                    }
                }
                0xdc00..0xe000 => return Err(Stop::Bad),
                _ => {}
            },
            _ => return Err(Stop::Bad),
        }
        Ok(())
    }

    /// The four digits of `\uXXXX`.
    fn unit(&mut self) -> Read<u32> {
        let digits = self.bytes.get(self.at + 2..self.at + 6);
        let unit = hexadecimal(digits.ok_or(Stop::More)?).ok_or(Stop::Bad)?;
        self.at += 6;
        Ok(unit)
    }

    fn peek(&self) -> Read<u8> {
        self.bytes.get(self.at).copied().ok_or(Stop::More)
    }

    fn blanks(&mut self) {
        const SPACES: u64 = 0x2020_2020_2020_2020;
        loop {
            match self.bytes.get(self.at) {
                Some(b' ') => {
                    self.at += 1;
                    // Indentation.
                    while word_at(self.bytes, self.at) == Some(SPACES) {
                        self.at += 8;
                    }
                }
                Some(b'\n' | b'\r' | b'\t') => self.at += 1,
                _ => return,
            }
        }
    }

    fn slice(&self, from: usize, to: usize) -> Read<&'t str> {
        let bytes = self.bytes.get(from..to).ok_or(Stop::Bad)?;
        std::str::from_utf8(bytes).map_err(|_| Stop::Bad)
    }

    fn location(&mut self) -> Location {
        let passed = self.bytes.get(self.marked..self.at).unwrap_or_default();
        self.position.pass(passed);
        self.marked = self.at;
        self.position.in_file(self.file)
    }
}

/// Eight bytes as a number.
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(eight.try_into().ok()?))
}

/// Where the next quote, backslash or control character is; the end if there is none.
fn plain_end(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let zero = |word: u64| word.wrapping_sub(ONES) & !word;
    while let Some(word) = word_at(bytes, at) {
        let control = word.wrapping_sub(ONES * 0x20) & !word;
        let quote = zero(word ^ (ONES * u64::from(b'"')));
        let slash = zero(word ^ (ONES * u64::from(b'\\')));
        let found = (control | quote | slash) & HIGH;
        if found != 0 {
            // Of the bytes that are marked the first is rightly so.
            return at + usize::try_from(found.trailing_zeros() / 8).unwrap_or(0);
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

/// Equal for equal texts; differs for most others.
fn tag(text: &[u8]) -> u64 {
    let mut eight = [0; 8];
    let first = text.len().min(8);
    eight[..first].copy_from_slice(&text[..first]);
    let head = u64::from_le_bytes(eight);
    let tail = &text[text.len() - first..];
    eight[..first].copy_from_slice(tail);
    head ^ u64::from_le_bytes(eight).rotate_left(29) ^ (text.len() as u64).rotate_left(51)
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(number << 4 | digit)
    })
}

/// The text of a string whose escapes are sound.
fn unescaped(raw: &str) -> Option<String> {
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

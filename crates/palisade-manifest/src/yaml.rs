//! Scans one YAML document into a [`Builder`].
//!
//! The syntax is `saphyr-parser`'s, through its event interface, which does not recurse; what
//! scalars, anchors and merge keys mean is decided here and in [`crate::scalar`].

use crate::build::{Builder, Found};
use crate::fault::{Broken, Fault};
use crate::location::Position;
use crate::scalar::{MERGE_TAG, Scalar, resolve_plain, resolve_tagged};
use crate::split::position_of;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Reads the one document of `text`, whose first line is the file's line `first_line`.
pub(crate) fn scan(text: &str, first_line: u32, builder: &mut Builder<'_>) -> Result<(), Broken> {
    check_characters(text, first_line)?;
    let mut last = Position {
        line: first_line,
        column: 1,
    };
    // The parser is other people's code and reads other people's files. Should it ever panic, one
    // document is lost, with a problem that says so, and not the agent.
    let prepared = PlainColons::hide(text);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        feed(&prepared, first_line, builder, &mut last)
    }));
    outcome.unwrap_or_else(|_| Err(Broken::new(last, Fault::ParserFailed)))
}

fn feed(
    prepared: &PlainColons<'_>,
    first_line: u32,
    builder: &mut Builder<'_>,
    last: &mut Position,
) -> Result<(), Broken> {
    let places = Places::new(&prepared.text, first_line);
    let mut seen = 0;
    for event in Parser::new_from_str(&prepared.text) {
        let (event, span) = event.map_err(|error| {
            let at = places.of(error.marker());
            let fault = Fault::YamlSyntax(error.info().to_owned());
            builder.broken(at, fault)
        })?;
        let at = places.of(&span.start);
        *last = at;
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            Event::DocumentStart(_) => {
                seen += 1;
                if seen > 1 {
                    return Err(Broken::new(at, Fault::SecondDocument));
                }
            }
            Event::Alias(anchor) => builder.alias(at, anchor)?,
            Event::Scalar(text, style, anchor, tag) => {
                let text = prepared.show(text);
                let found = resolve(&text, style, tag.as_deref())
                    .map_err(|fault| builder.broken(at, fault))?;
                builder.scalar(at, anchor, found)?;
            }
            Event::SequenceStart(anchor, _) => builder.open_list(at, anchor)?,
            Event::MappingStart(anchor, _) => builder.open_map(at, anchor)?,
            Event::SequenceEnd | Event::MappingEnd => builder.close(at)?,
        }
    }
    Ok(())
}

fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Found, Fault> {
    let plain = style == ScalarStyle::Plain;
    if plain && text.starts_with('?') {
        // In flow style go-yaml takes the `?` for the mark of a key.
        return Err(Fault::LeadingQuestionMark);
    }
    let (scalar, merge) = match tag {
        Some(tag) => {
            let tag = format!("{}{}", tag.handle, tag.suffix);
            let merge = text == "<<" && tag == MERGE_TAG;
            (resolve_tagged(&tag, text)?, merge)
        }
        None if plain => (resolve_plain(text), text == "<<"),
        None => (Scalar::Text(text.into()), false),
    };
    let source = match scalar {
        Scalar::Text(_) => None,
        _ => Some(text.into()),
    };
    Ok(Found {
        scalar,
        source,
        merge,
    })
}

/// The parser's marks as places in the file.
struct Places {
    first_line: u32,
    /// At the end of a text the parser counts one line more than there is.
    end: Position,
}

impl Places {
    fn new(text: &str, first_line: u32) -> Self {
        Self {
            first_line,
            end: position_of(text.as_bytes(), first_line),
        }
    }

    fn of(&self, marker: &Marker) -> Position {
        let lines = u32::try_from(marker.line().saturating_sub(1)).unwrap_or(u32::MAX);
        let line = self.first_line.saturating_add(lines);
        if line > self.end.line {
            return self.end;
        }
        let column = u32::try_from(marker.col()).unwrap_or(u32::MAX);
        Position {
            line,
            column: column.saturating_add(1),
        }
    }
}

/// A text whose colons mean to the parser what they mean to go-yaml.
///
/// To go-yaml a colon ends a plain scalar only before a blank, so `[fd00::]` is a list of one
/// text. To YAML 1.2 it also does so before `,`, `[`, `]`, `{` and `}`, and that list holds an
/// object. Such colons are put out of the parser's sight: another character, which the text does
/// not have, stands for them, one for one, so that no column moves.
struct PlainColons<'t> {
    text: Cow<'t, str>,
    stand_in: Option<char>,
}

impl<'t> PlainColons<'t> {
    fn hide(text: &'t str) -> Self {
        let hidden = |at: usize| {
            let bytes = text.as_bytes();
            let follows = matches!(bytes.get(at + 1), Some(b',' | b'[' | b']' | b'{' | b'}'));
            // Behind a quote or a bracket no plain scalar is going on; behind a blank it may be.
            let goes_on = follows
                && text[..at]
                    .trim_ascii_end()
                    .bytes()
                    .next_back()
                    .is_some_and(|byte| {
                        !matches!(byte, b'"' | b'\'' | b',' | b'[' | b']' | b'{' | b'}')
                    });
            follows && goes_on
        };
        let mut colons = text.match_indices(':').map(|(at, _)| at);
        let unchanged = Self {
            text: Cow::Borrowed(text),
            stand_in: None,
        };
        if !colons.any(hidden) {
            return unchanged;
        }
        let Some(stand_in) = unused_character(text) else {
            return unchanged;
        };
        let shown = |(at, c)| if c == ':' && hidden(at) { stand_in } else { c };
        Self {
            text: Cow::Owned(text.char_indices().map(shown).collect()),
            stand_in: Some(stand_in),
        }
    }

    /// The scalar as the file has it.
    fn show<'a>(&self, scalar: Cow<'a, str>) -> Cow<'a, str> {
        match self.stand_in {
            Some(stand_in) if scalar.contains(stand_in) => {
                Cow::Owned(scalar.replace(stand_in, ":"))
            }
            _ => scalar,
        }
    }
}

/// A character for private use that the text does not have. There are more of them than a text
/// within the default limits would use, unless it is made to.
fn unused_character(text: &str) -> Option<char> {
    let private = '\u{f0000}'..='\u{ffffd}';
    let used: BTreeSet<char> = text.chars().filter(|c| private.contains(c)).collect();
    private.clone().find(|c| !used.contains(c))
}

/// Refuses what go-yaml refuses, and what it takes for a line break while the parser here does
/// not: a text that two readers split differently must not decide about packets.
fn check_characters(text: &str, first_line: u32) -> Result<(), Broken> {
    let suspect = |c: char| {
        !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{2027}'
            | '\u{202a}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
    };
    let Some((at, character)) = text.char_indices().find(|(_, c)| suspect(*c)) else {
        return Ok(());
    };
    let fault = match character {
        '\u{85}' | '\u{2028}' | '\u{2029}' => Fault::ForeignLineBreak(character),
        _ => Fault::ControlCharacter(character),
    };
    let at = position_of(&text.as_bytes()[..at], first_line);
    Err(Broken::new(at, fault))
}

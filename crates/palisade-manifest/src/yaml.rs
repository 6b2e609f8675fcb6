//! Scans one YAML document into a [`DocumentBuilder`].
//!
//! The syntax is that of `saphyr-parser`, through its event interface, which does not recurse. Scalars,
//! anchors and merge keys are resolved here and in [`crate::scalar`].

use crate::builder::{DocumentBuilder, ScannedScalar};
use crate::document_error::{DocumentError, DocumentErrorKind};
use crate::location::Position;
use crate::scalar::{MERGE_TAG, Scalar, resolve_plain, resolve_tagged};
use crate::split::position_of;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Tag};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Scans the only document of `text`, whose first line is line `first_line` of the file.
pub(crate) fn scan(
    text: &str,
    first_line: u32,
    builder: &mut DocumentBuilder<'_>,
) -> Result<(), DocumentError> {
    check_characters(text, first_line)?;
    let mut last = Position {
        line: first_line,
        column: 1,
    };
    // The parser is third-party code and reads untrusted files. If it panics, one document is lost, with a
    // problem that says so, and the agent continues.
    let prepared = MaskedColons::mask(text);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        build_from_events(&prepared, first_line, builder, &mut last)
    }));
    outcome.unwrap_or_else(|_| Err(DocumentError::new(last, DocumentErrorKind::ParserFailed)))
}

fn build_from_events(
    masked: &MaskedColons<'_>,
    first_line: u32,
    builder: &mut DocumentBuilder<'_>,
    last_position: &mut Position,
) -> Result<(), DocumentError> {
    let places = MarkerPositions::new(&masked.text, first_line);
    let mut document_count = 0;
    for event in Parser::new_from_str(&masked.text) {
        let (event, span) = event.map_err(|error| {
            let at = places.position(error.marker());
            let kind = DocumentErrorKind::YamlSyntax(error.info().to_owned());
            builder.error_at(at, kind)
        })?;
        let at = places.position(&span.start);
        *last_position = at;
        match event {
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            Event::StreamEnd => break,
            Event::DocumentStart(_) => {
                document_count += 1;
                if document_count > 1 {
                    return Err(DocumentError::new(at, DocumentErrorKind::SecondDocument));
                }
            }
            Event::Alias(anchor) => builder.alias(at, anchor)?,
            Event::Scalar(text, style, anchor, tag) => {
                let text = masked.unmask(text);
                let found = resolve_scalar(&text, style, tag.as_deref())
                    .map_err(|kind| builder.error_at(at, kind))?;
                builder.scalar(at, anchor, found)?;
            }
            Event::SequenceStart(anchor, _) => builder.open_list(at, anchor)?,
            Event::MappingStart(anchor, _) => builder.open_map(at, anchor)?,
            Event::SequenceEnd | Event::MappingEnd => builder.close(at)?,
        }
    }
    Ok(())
}

fn resolve_scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
) -> Result<ScannedScalar, DocumentErrorKind> {
    let plain = style == ScalarStyle::Plain;
    if plain && text.starts_with('?') {
        // In flow style go-yaml reads the `?` as a key indicator.
        return Err(DocumentErrorKind::LeadingQuestionMark);
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
    Ok(ScannedScalar {
        scalar,
        source_text: source,
        is_merge_key: merge,
    })
}

/// Converts the parser's marks to positions in the file.
struct MarkerPositions {
    first_line: u32,
    /// At the end of a text the parser counts one line too many.
    end: Position,
}

impl MarkerPositions {
    fn new(text: &str, first_line: u32) -> Self {
        Self {
            first_line,
            end: position_of(text.as_bytes(), first_line),
        }
    }

    fn position(&self, marker: &Marker) -> Position {
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

/// A text with those colons masked that the parser would read differently from go-yaml.
///
/// In go-yaml a colon ends a plain scalar only before a blank, so `[fd00::]` is a list of one string. In YAML
/// 1.2 it also does so before `,`, `[`, `]`, `{` and `}`, and that list holds an object. Such colons are
/// replaced by another character that does not occur in the text, one for one, so that columns do not change.
struct MaskedColons<'t> {
    text: Cow<'t, str>,
    placeholder: Option<char>,
}

impl<'t> MaskedColons<'t> {
    fn mask(text: &'t str) -> Self {
        let hidden = |at: usize| {
            let bytes = text.as_bytes();
            let follows = matches!(bytes.get(at + 1), Some(b',' | b'[' | b']' | b'{' | b'}'));
            // After a quote or a bracket no plain scalar continues; after a blank one may.
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
            placeholder: None,
        };
        if !colons.any(hidden) {
            return unchanged;
        }
        let Some(stand_in) = unused_character(text) else {
            return unchanged;
        };
        let masked_char = |(at, c)| if c == ':' && hidden(at) { stand_in } else { c };
        Self {
            text: Cow::Owned(text.char_indices().map(masked_char).collect()),
            placeholder: Some(stand_in),
        }
    }

    /// The scalar as written in the file.
    fn unmask<'a>(&self, scalar: Cow<'a, str>) -> Cow<'a, str> {
        match self.placeholder {
            Some(stand_in) if scalar.contains(stand_in) => {
                Cow::Owned(scalar.replace(stand_in, ":"))
            }
            _ => scalar,
        }
    }
}

/// A private-use character that does not occur in the text. A text within the default limits contains all of
/// them only if it was made to.
fn unused_character(text: &str) -> Option<char> {
    let private = '\u{f0000}'..='\u{ffffd}';
    let used: BTreeSet<char> = text.chars().filter(|c| private.contains(c)).collect();
    private.clone().find(|c| !used.contains(c))
}

/// Rejects characters that go-yaml rejects, and those that it treats as line breaks and the parser here does
/// not: a text that two parsers split differently must not decide about packets.
fn check_characters(text: &str, first_line: u32) -> Result<(), DocumentError> {
    let suspect = |c: char| {
        !matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{a0}'..='\u{2027}'
            | '\u{202a}'..='\u{fefe}' | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
    };
    let Some((at, character)) = text.char_indices().find(|(_, c)| suspect(*c)) else {
        return Ok(());
    };
    let kind = match character {
        '\u{85}' | '\u{2028}' | '\u{2029}' => DocumentErrorKind::ForeignLineBreak(character),
        _ => DocumentErrorKind::ControlCharacter(character),
    };
    let at = position_of(&text.as_bytes()[..at], first_line);
    Err(DocumentError::new(at, kind))
}

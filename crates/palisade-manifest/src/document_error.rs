//! Errors that make a document unreadable, with their location.

use crate::describe::cut_middle;
use crate::location::{Position, Problem};
use crate::path::FieldPath;
use std::sync::Arc;

/// A document error with location, field and object as far as known.
#[derive(Debug)]
pub(crate) struct DocumentError {
    pub(crate) position: Position,
    pub(crate) path: FieldPath,
    pub(crate) object: Option<String>,
    pub(crate) kind: DocumentErrorKind,
}

impl DocumentError {
    pub(crate) fn new(at: Position, kind: DocumentErrorKind) -> Self {
        Self {
            position: at,
            path: FieldPath::root(),
            object: None,
            kind,
        }
    }

    pub(crate) fn into_problem(self, file: &Arc<str>) -> Problem {
        Problem {
            location: self.position.in_file(file),
            object: self.object,
            field: self.path.to_string(),
            reason: cut_middle(self.kind.to_string()),
        }
    }
}

/// What cannot be parsed, or must not be guessed at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentErrorKind {
    #[error("the document is not YAML: {0}")]
    YamlSyntax(String),
    #[error("the document is not JSON: {0}")]
    JsonSyntax(String),
    #[error("the YAML parser failed on this document, which is not read")]
    ParserFailed,
    #[error("the text is not UTF-8: invalid byte 0x{0:02x}")]
    NotUtf8(u8),
    #[error("the file is UTF-16; only UTF-8 is read")]
    Utf16,
    #[error("the control character U+{:04X} is not allowed in YAML", u32::from(*.0))]
    ControlCharacter(char),
    #[error(
        "U+{:04X} is a line break in kubectl, but not in other YAML parsers; write it as an escape in \
         double quotes",
        u32::from(*.0)
    )]
    ForeignLineBreak(char),
    #[error("only a comment may follow `---` on its line; this document is not read")]
    ContentAfterSeparator,
    #[error(
        "a second document after `...`, which kubectl would drop; separate documents with `---`"
    )]
    SecondDocument,
    #[error("the field {key} is written twice in one object, in line {first} and in line {second}")]
    DuplicateKey {
        key: String,
        first: u32,
        second: u32,
    },
    #[error("a key has to be text, a number or a boolean, not {0}")]
    KeyNotText(String),
    #[error("a merge key `<<` takes an object or a list of objects, not {0}")]
    NotMergeable(String),
    #[error(
        "the field {key} of line {own} is also set by the merge key of line {merge}; \
         kubectl uses the merged value, YAML 1.1 that of the object: put `<<` before the other fields"
    )]
    MergeOverOwn { key: String, own: u32, merge: u32 },
    #[error("YAML parsers differ in text that begins with `?`; put it in quotes")]
    LeadingQuestionMark,
    #[error("the YAML alias refers to a value that contains it")]
    AliasInsideItself,
    #[error("{text} is {what}, which JSON, and so a Kubernetes object, cannot represent")]
    NotInJson { text: String, what: &'static str },
    #[error("{text} is not valid for its tag {tag}")]
    BadTag { text: String, tag: String },
    #[error("lists and objects are nested deeper than {0} levels")]
    TooDeep(usize),
    #[error("the file has more than {0} bytes and is not read")]
    TooManyBytes(usize),
    #[error(
        "this document, or this item of a list, has more than {0} bytes; from here on nothing is read"
    )]
    ItemTooLong(usize),
    #[error("the file has more than {0} documents; the rest is not read")]
    TooManyDocuments(usize),
    #[error("the file has more than {0} problems; the rest of it is not read")]
    TooManyProblems(usize),
    #[error("the file has more than {0} values; the rest of it is not read")]
    TooManyNodes(usize),
    #[error(
        "anchors and aliases of this file expand to more than {0} values; the rest of it is not \
         read"
    )]
    TooManyAliasNodes(usize),
    #[error(
        "anchors and aliases of this file expand to more than {0} bytes of text; the rest of it is \
         not read"
    )]
    TooManyAliasBytes(usize),
}

impl DocumentErrorKind {
    /// Whether the rest of the file cannot be read either.
    pub(crate) fn is_fatal_for_file(&self) -> bool {
        matches!(
            self,
            Self::TooManyBytes(_)
                | Self::ItemTooLong(_)
                | Self::TooManyDocuments(_)
                | Self::TooManyNodes(_)
                | Self::TooManyProblems(_)
                | Self::TooManyAliasNodes(_)
                | Self::TooManyAliasBytes(_)
                | Self::Utf16
        )
    }
}

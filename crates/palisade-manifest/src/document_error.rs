//! Why a document could not be read, and where the reading stopped.

use crate::describe::cut_middle;
use crate::location::{Position, Problem};
use crate::path::FieldPath;
use std::sync::Arc;

/// A document that could not be read, with all that is known about the place.
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

/// What was met that cannot be read, or must not be guessed at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentErrorKind {
    #[error("the document is not YAML: {0}")]
    YamlSyntax(String),
    #[error("the document is not JSON: {0}")]
    JsonSyntax(String),
    #[error("the YAML parser failed on this document; nothing of it is read")]
    ParserFailed,
    #[error("the text is not UTF-8: the byte 0x{0:02x} cannot stand here")]
    NotUtf8(u8),
    #[error("the file is UTF-16; only UTF-8 is read")]
    Utf16,
    #[error("the control character U+{:04X} cannot stand in YAML", u32::from(*.0))]
    ControlCharacter(char),
    #[error(
        "U+{:04X} is a line break to kubectl, but not to other readers of YAML; write it as an \
         escape in double quotes",
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
        "the field {key} of line {own} is also brought in by the merge key of line {merge}; \
         kubectl would take the merged value, YAML the own one: put `<<` before the own fields"
    )]
    MergeOverOwn { key: String, own: u32, merge: u32 },
    #[error("text that begins with `?` is read differently by different readers; put it in quotes")]
    LeadingQuestionMark,
    #[error("an alias stands inside of what its own anchor marks")]
    AliasInsideItself,
    #[error("{text} is {what}, which JSON, and so a Kubernetes object, cannot hold")]
    NotInJson { text: String, what: &'static str },
    #[error("{text} cannot be read as the type that its tag {tag} names")]
    BadTag { text: String, tag: String },
    #[error("lists and objects nest deeper than {0} levels")]
    TooDeep(usize),
    #[error("the file has more than {0} bytes; nothing of it is read")]
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
    /// Whether the rest of the file is out of reach, and not only this document.
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

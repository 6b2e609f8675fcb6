//! What a section is: a struct with one field for each parameter, and the table of these parameters.
//!
//! [`section!`] makes both from one list of rows, so a new parameter is one row: its documentation (which is the
//! help of the flag, the document and the man page too), the field and its type, the name, how its text is
//! parsed, the default, the placeholder, when it changes, and `set_by_chart` if the Helm chart decides it.

use crate::error::ConfigProblem;
use crate::parameter::Parameter;
use crate::source::ParameterTexts;
use crate::value_parser::ValueParser;

/// The parameters of one subsystem.
#[derive(Clone, Copy, Debug)]
pub struct SectionTable {
    /// The heading of the section in documents.
    pub title: &'static str,
    /// Its parameters, in the order of the documents.
    pub parameters: &'static [Parameter],
}

/// A section of the configuration: the parameters of one subsystem, parsed.
pub(crate) trait Section: Sized {
    /// Its parameters.
    const TABLE: SectionTable;

    /// Its values; `None` if one is invalid. Every invalid value is added to the problems.
    fn read(reader: &mut SectionReader<'_>) -> Option<Self>;
}

/// Parses the texts of a section.
pub(crate) struct SectionReader<'a> {
    pub(crate) texts: &'a ParameterTexts,
    pub(crate) problems: &'a mut Vec<ConfigProblem>,
}

impl SectionReader<'_> {
    /// The value of one parameter of a section; `None` and a problem if it is invalid.
    pub(crate) fn read<T: Clone>(
        &mut self,
        table: SectionTable,
        name: &str,
        parser: &ValueParser<T>,
    ) -> Option<T> {
        let parameter = table.parameters.iter().find(|p| p.name == name)?;
        let (text, source) = self.texts.get(name)?;
        match parser.parse(text) {
            Ok(value) => Some(value),
            Err(reason) => {
                self.problems.push(ConfigProblem::Value {
                    name: parameter.name,
                    value: parameter.displayed(text),
                    given_by: source.describe(name),
                    reason,
                });
                None
            }
        }
    }
}

/// Defines a section; see the module.
macro_rules! section {
    (
        $(#[$about:meta])+
        pub struct $section:ident: $title:literal;
        $(
            $(#[doc = $help:literal])+
            $field:ident: $type:ty =
                $name:literal, $parser:expr, $default:expr, $placeholder:literal, $reload:ident $(, $chart:ident)?;
        )+
    ) => {
        $(#[$about])+
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $section {
            $( $(#[doc = $help])+ pub $field: $type, )+
        }

        impl $crate::section::Section for $section {
            const TABLE: $crate::section::SectionTable = $crate::section::SectionTable {
                title: $title,
                parameters: &[$(
                    $crate::parameter::Parameter {
                        name: $name,
                        section: $title,
                        kind: $parser.kind(),
                        default: $default,
                        placeholder: $placeholder,
                        reload: $crate::parameter::ReloadMode::$reload,
                        secret: false,
                        is_set_by_chart: $crate::section::section!(@chart $($chart)?),
                        // Each line of a documentation comment begins with a blank.
                        help: concat!($($help),+).split_at(1).1,
                    },
                )+],
            };

            fn read(reader: &mut $crate::section::SectionReader<'_>) -> Option<Self> {
                // All of them first, so that every invalid value is reported.
                $( let $field: Option<$type> = reader.read(Self::TABLE, $name, &$parser); )+
                Some($section { $( $field: $field?, )+ })
            }
        }
    };
    (@chart) => { false };
    (@chart set_by_chart) => { true };
}
pub(crate) use section;

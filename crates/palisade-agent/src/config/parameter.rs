//! One parameter: how it is named in flags, the environment and files, and how it is shown. Parses no value.

use super::{PARAMETERS, ParameterKind, Section};

/// When a new value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadMode {
    /// Immediately, when the file is reread.
    Live,
    /// At the next start.
    Restart,
}

/// One parameter.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name: the flag without the leading dashes, and the key in the file.
    pub name: &'static str,
    /// Its section.
    pub section: Section,
    /// The values it accepts.
    pub kind: ParameterKind,
    /// The value if it is not set.
    pub default: &'static str,
    /// The placeholder of its value in usage texts.
    pub placeholder: &'static str,
    /// When a new value takes effect.
    pub reload: ReloadMode,
    /// Whether its value is a secret and must not be shown.
    pub secret: bool,
    /// Its purpose, with its unit.
    pub help: &'static str,
}

impl Parameter {
    /// The parameter with this name.
    pub fn by_name(name: &str) -> Option<&'static Parameter> {
        PARAMETERS.iter().find(|parameter| parameter.name == name)
    }

    /// The environment variable: `PALISADE_` and the name in upper case.
    pub fn env_variable(&self) -> String {
        format!("PALISADE_{}", self.name.to_uppercase().replace('-', "_"))
    }

    /// The flag.
    pub fn flag(&self) -> String {
        format!("--{}", self.name)
    }

    /// A value for display; secrets are masked.
    pub fn displayed(&self, value: &str) -> String {
        match (self.secret, value.is_empty()) {
            (true, false) => "(secret)".to_owned(),
            _ => value.to_owned(),
        }
    }

    /// The help text of the flag, with default and environment variable.
    pub fn flag_help(&self) -> String {
        let default = match self.default {
            "" => String::new(),
            default => format!(" [default: {default}]"),
        };
        format!("{}{default} [env: {}]", self.help, self.env_variable())
    }
}

/// A number within these bounds.
pub(super) const fn number_kind(least: u32, most: u32) -> ParameterKind {
    ParameterKind::Number { least, most }
}

/// A parameter that is not secret.
pub(super) const fn parameter(
    name: &'static str,
    section: Section,
    kind: ParameterKind,
    default: &'static str,
    value: &'static str,
    change: ReloadMode,
    help: &'static str,
) -> Parameter {
    Parameter {
        name,
        section,
        kind,
        default,
        placeholder: value,
        reload: change,
        secret: false,
        help,
    }
}

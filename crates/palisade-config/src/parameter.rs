//! One parameter: how it is named in flags, the environment and files, and how it is shown. Parses no value.

use crate::kind::ParameterKind;

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
    /// The heading of its section.
    pub section: &'static str,
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
    /// Whether the Helm chart sets it from other values, or it has no use in a cluster.
    pub is_set_by_chart: bool,
    /// Its purpose, with its unit.
    pub help: &'static str,
}

impl Parameter {
    /// The environment variable: `PALISADE_` and the name in upper case.
    pub fn env_variable(&self) -> String {
        env_variable(self.name)
    }

    /// The flag.
    pub fn flag(&self) -> String {
        flag(self.name)
    }

    /// A value for display; secrets are masked.
    pub fn displayed(&self, value: &str) -> String {
        if self.secret && !value.is_empty() {
            "(secret)".to_owned()
        } else {
            value.to_owned()
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

/// The environment variable of the parameter with this name.
pub(crate) fn env_variable(name: &str) -> String {
    format!("PALISADE_{}", name.to_uppercase().replace('-', "_"))
}

/// The flag of the parameter with this name.
pub(crate) fn flag(name: &str) -> String {
    format!("--{name}")
}

//! The texts of parameters, and where each comes from. Parses none of them.

use crate::error::ConfigProblem;
use crate::parameter::{Parameter, env_variable, flag};
use palisade_api::ParameterOrigin;
use std::collections::BTreeMap;

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ParameterSource {
    /// The command line.
    Flag,
    /// The environment.
    Environment,
    /// The configuration file, at this location.
    File(String),
    /// The default.
    Default,
}

impl ParameterSource {
    pub(crate) fn kind(&self) -> ParameterOrigin {
        match self {
            ParameterSource::Flag => ParameterOrigin::Flag,
            ParameterSource::Environment => ParameterOrigin::Environment,
            ParameterSource::File(_) => ParameterOrigin::File,
            ParameterSource::Default => ParameterOrigin::Default,
        }
    }

    /// The source of the value of the parameter with this name, as exactly as it is known.
    pub(crate) fn describe(&self, name: &str) -> String {
        match self {
            ParameterSource::Flag => flag(name),
            ParameterSource::Environment => env_variable(name),
            ParameterSource::File(location) => location.clone(),
            ParameterSource::Default => "the default".to_owned(),
        }
    }
}

/// The text of each parameter, and its source.
pub(crate) type ParameterTexts = BTreeMap<&'static str, (String, ParameterSource)>;

/// Collects the contradictions between values.
#[derive(Debug)]
pub(crate) struct Contradictions<'a> {
    pub(crate) texts: &'a ParameterTexts,
    pub(crate) problems: &'a mut Vec<ConfigProblem>,
}

impl Contradictions<'_> {
    /// Two parameters contradict each other.
    pub(crate) fn add(&mut self, one: &str, other: &str, reason: String) {
        self.problems.push(ConfigProblem::Contradiction {
            one: self.describe(one),
            other: self.describe(other),
            reason,
        });
    }

    /// A parameter with its source.
    fn describe(&self, name: &str) -> String {
        let source = self.texts.get(name).map(|(_, source)| source);
        let source = source.map(|source| source.describe(name));
        format!("{name} ({})", source.unwrap_or_default())
    }

    /// Whether a parameter of a section differs from its default.
    pub(crate) fn is_set(&self, parameters: &[Parameter], name: &str) -> bool {
        let parameter = parameters.iter().find(|parameter| parameter.name == name);
        let text = self.texts.get(name).map(|(text, _)| &**text);
        text != parameter.map(|parameter| parameter.default)
    }
}

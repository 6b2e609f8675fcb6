//! Rereading the configuration file while the agent runs.
//!
//! [`Config::reread`] is a function of the present configuration and the new text of the file. Live
//! parameters change immediately; changes to all others are reported as pending until the next start. A
//! rejected file changes nothing, and the reason is reported until the file is valid again.

use super::{
    Config, ConfigError, PARAMETERS, Parameter, ParameterSource, RawParameters, ReloadMode, file,
    take_from_file,
};
use palisade_api::{ConfigFileReport, ConfigReport, ParameterReport};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

/// The configuration file of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether it may be absent, because its path is the default.
    pub optional: bool,
    /// Whether it exists.
    pub exists: bool,
}

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("configuration: reading {}: {source}", path.display())]
pub struct ConfigReadError {
    /// Which file.
    pub path: PathBuf,
    /// The cause.
    pub source: std::io::Error,
}

impl ConfigFile {
    /// The text of the file; `None` if it is optional and absent.
    ///
    /// # Errors
    /// If the file exists and cannot be read, or if it is absent and not optional.
    pub fn read(&self) -> Result<Option<Vec<u8>>, ConfigReadError> {
        match palisade_sys::plain_file::read(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if self.optional && error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ConfigReadError {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

/// What of the file is not in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFileStatus {
    /// Parameters that change at the next start, with their new values for display.
    pub pending: BTreeMap<&'static str, String>,
    /// Why the present file is rejected.
    pub error: Option<String>,
}

/// The live changes of a reread: parameters with the old and the new value.
pub type ConfigChanges = Vec<(&'static str, String, String)>;

impl Config {
    /// What of the file is not in effect.
    pub fn file_status(&self) -> &ConfigFileStatus {
        &self.file_status
    }

    /// The configuration after a reread of the file (its name and text; `None` if it is optional and
    /// absent), with the changes. If the file is rejected, the configuration stays the same and has the
    /// reason in its status.
    pub fn reread(&self, text: Option<(&str, &[u8])>) -> (Config, ConfigChanges) {
        let (mut lines, problems) = text
            .map(|(name, text)| file::parse_file(name, text))
            .unwrap_or_default();
        let mut next = self.raw.clone();
        for parameter in PARAMETERS {
            let Some(raw) = next.get_mut(parameter.name) else {
                continue;
            };
            if matches!(raw.1, ParameterSource::File(_) | ParameterSource::Default) {
                *raw = take_from_file(&mut lines, parameter)
                    .unwrap_or_else(|| (parameter.default.to_owned(), ParameterSource::Default));
            }
        }
        match self.apply_live(&next, problems) {
            Ok((mut config, changed)) => {
                config.file.clone_from(&self.file);
                if let Some(file) = &mut config.file {
                    file.exists = text.is_some();
                }
                (config, changed)
            }
            Err(error) => (self.with_file_error(error.to_string()), Vec::new()),
        }
    }

    /// The same configuration, with the reason why the file is rejected.
    pub fn with_file_error(&self, reason: String) -> Config {
        let mut same = self.clone();
        same.file_status.error = Some(reason);
        same
    }

    fn apply_live(
        &self,
        wanted: &RawParameters,
        problems: Vec<super::ConfigProblem>,
    ) -> Result<(Config, ConfigChanges), ConfigError> {
        // The configuration after a restart, to validate the whole…
        let next = Config::from_raw(wanted.clone(), problems)?;
        let file = self
            .file
            .as_ref()
            .map(|file| file.path.display().to_string());
        if let Some(problem) = file.and_then(|file| next.own_file_problem(&file)) {
            let problems = vec![problem];
            return Err(ConfigError { problems });
        }
        let mut raw = self.raw.clone();
        let mut pending = BTreeMap::new();
        let mut changed = ConfigChanges::new();
        for parameter in PARAMETERS {
            let name = parameter.name;
            let (Some(now), Some(next)) = (raw.get_mut(name), wanted.get(name)) else {
                continue;
            };
            let differs = now.0 != next.0;
            if differs && parameter.reload == ReloadMode::Restart {
                pending.insert(name, parameter.displayed(&next.0));
                continue;
            }
            if differs {
                changed.push((
                    name,
                    parameter.displayed(&now.0),
                    parameter.displayed(&next.0),
                ));
            }
            now.clone_from(next);
        }
        // …and the configuration in effect until then.
        let mut config = Config::from_raw(raw, Vec::new())?;
        config.file_status.pending = pending;
        Ok((config, changed))
    }

    /// The present value of a parameter, for display.
    pub fn displayed_value(&self, name: &str) -> String {
        let raw = self.raw.get(name).zip(Parameter::by_name(name));
        raw.map_or_else(String::new, |((text, _), parameter)| {
            parameter.displayed(text)
        })
    }

    /// The output of `palisade config`.
    pub fn report(&self) -> ConfigReport {
        let parameters = PARAMETERS
            .iter()
            .filter_map(|p| self.parameter_report(p))
            .collect();
        ConfigReport {
            api_version: palisade_api::api_version(),
            parameters,
            file: self.file.as_ref().map(|file| ConfigFileReport {
                path: file.path.display().to_string(),
                found: file.exists,
                error: self.file_status.error.clone(),
            }),
        }
    }

    fn parameter_report(&self, parameter: &Parameter) -> Option<ParameterReport> {
        let (value, origin) = self.raw.get(parameter.name)?;
        let pending = self.file_status.pending.get(parameter.name);
        Some(ParameterReport {
            name: parameter.name.to_owned(),
            value: parameter.displayed(value),
            source: origin.kind(),
            default: parameter.default.to_owned(),
            help: parameter.help.to_owned(),
            section: parameter.section.title().to_owned(),
            values: parameter.kind.describe(),
            origin: origin.describe(parameter),
            changeable: parameter.reload == ReloadMode::Live,
            secret: parameter.secret,
            pending: pending.cloned(),
        })
    }
}

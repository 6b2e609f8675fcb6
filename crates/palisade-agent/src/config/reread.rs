//! The file read again while the agent runs: what counts at once, what waits, and what is told.
//!
//! [`Config::reread`] is a function of the configuration in force and the file's new text. What can
//! change while running does; everything else waits for the next start and is named. A file that is
//! refused changes nothing at all, and says why until one is read that is not.

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
    /// Where it is.
    pub path: PathBuf,
    /// Whether nobody named it, so that it may be absent.
    pub optional: bool,
    /// Whether it is there.
    pub exists: bool,
}

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("configuration: reading {}: {source}", path.display())]
pub struct ConfigReadError {
    /// Which file.
    pub path: PathBuf,
    /// What went wrong.
    pub source: std::io::Error,
}

impl ConfigFile {
    /// Its text; `None` where it is absent and may be.
    ///
    /// # Errors
    /// It is there and cannot be read, or it is not there and was named.
    pub fn read(&self) -> Result<Option<Vec<u8>>, ConfigReadError> {
        match std::fs::read(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if self.optional && error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ConfigReadError {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

/// What the file says that does not count, or not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigFileStatus {
    /// Parameters that will have another value after the next start, with that value as
    /// people may see it.
    pub pending: BTreeMap<&'static str, String>,
    /// Why the file as it is now is refused.
    pub error: Option<String>,
}

/// What a new text of the file changed at once: parameters with the value before and after.
pub type ConfigChanges = Vec<(&'static str, String, String)>;

impl Config {
    /// What the file says that does not count, or not yet.
    pub fn file_status(&self) -> &ConfigFileStatus {
        &self.file_status
    }

    /// The configuration after the file was read again (its name and text; `None` where it is
    /// absent and may be), and what of it changed. Where the file is refused, it is the same
    /// configuration with the reason.
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

    /// The same configuration, with the reason why the file does not count.
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
        // Valid as a whole, as a start would have it…
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
        // …and as it counts until then.
        let mut config = Config::from_raw(raw, Vec::new())?;
        config.file_status.pending = pending;
        Ok((config, changed))
    }

    /// The value in force of a parameter, as people may see it.
    pub fn displayed_value(&self, name: &str) -> String {
        let raw = self.raw.get(name).zip(Parameter::by_name(name));
        raw.map_or_else(String::new, |((text, _), parameter)| {
            parameter.displayed(text)
        })
    }

    /// What `palisade config` shows.
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
            source: origin.name().to_owned(),
            default: parameter.default.to_owned(),
            help: parameter.help.to_owned(),
            section: parameter.section.title().to_owned(),
            values: parameter.kind.describe(),
            said_by: origin.describe(parameter),
            changeable: parameter.reload == ReloadMode::Live,
            secret: parameter.secret,
            pending: pending.cloned(),
        })
    }
}

//! Rereading the configuration file while the agent runs, and the report of what is in effect.
//!
//! [`Config::reread`] is a function of the present configuration and the new text of the file. Live
//! parameters change immediately; changes to all others are reported as pending until the next start. A
//! rejected file changes nothing, and the reason is reported until the file is valid again.

use crate::config_file::ConfigFileStatus;
use crate::error::{ConfigError, ConfigProblem};
use crate::file::parse_file;
use crate::parameter::{Parameter, ReloadMode};
use crate::resolve::take_from_file;
use crate::sections::{Config, find_parameter, parameters};
use crate::source::{ParameterSource, ParameterTexts};
use palisade_api::{ConfigFileReport, ConfigReport, ParameterReport};
use std::collections::BTreeMap;

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
            .map(|(name, text)| parse_file(name, text))
            .unwrap_or_default();
        let mut next = self.texts.clone();
        for parameter in parameters() {
            let Some(value) = next.get_mut(parameter.name) else {
                continue;
            };
            if matches!(value.1, ParameterSource::File(_) | ParameterSource::Default) {
                *value = take_from_file(&mut lines, parameter)
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
        wanted: &ParameterTexts,
        problems: Vec<ConfigProblem>,
    ) -> Result<(Config, ConfigChanges), ConfigError> {
        // The configuration after a restart, to validate the whole…
        let next = Config::from_texts(wanted.clone(), problems)?;
        let file = self
            .file
            .as_ref()
            .map(|file| file.path.display().to_string());
        if let Some(problem) = file.and_then(|file| next.own_file_problem(&file)) {
            let problems = vec![problem];
            return Err(ConfigError { problems });
        }
        let mut texts = self.texts.clone();
        let mut pending = BTreeMap::new();
        let mut changed = ConfigChanges::new();
        for parameter in parameters() {
            let name = parameter.name;
            let (Some(now), Some(next)) = (texts.get_mut(name), wanted.get(name)) else {
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
        let mut config = Config::from_texts(texts, Vec::new())?;
        config.file_status.pending = pending;
        config.dry_run = self.dry_run;
        Ok((config, changed))
    }

    /// The present value of a parameter, for display.
    pub fn displayed_value(&self, name: &str) -> String {
        let text = self.texts.get(name).zip(find_parameter(name));
        text.map_or_else(String::new, |((text, _), parameter)| {
            parameter.displayed(text)
        })
    }

    /// The output of `palisade config`.
    pub fn report(&self) -> ConfigReport {
        let reports = parameters().filter_map(|parameter| self.parameter_report(parameter));
        ConfigReport {
            api_version: palisade_api::api_version(),
            parameters: reports.collect(),
            file: self.file.as_ref().map(|file| ConfigFileReport {
                path: file.path.display().to_string(),
                found: file.exists,
                error: self.file_status.error.clone(),
            }),
        }
    }

    fn parameter_report(&self, parameter: &Parameter) -> Option<ParameterReport> {
        let (value, source) = self.texts.get(parameter.name)?;
        let pending = self.file_status.pending.get(parameter.name);
        Some(ParameterReport {
            name: parameter.name.to_owned(),
            value: parameter.displayed(value),
            source: source.kind(),
            default: parameter.default.to_owned(),
            help: parameter.help.to_owned(),
            section: parameter.section.to_owned(),
            values: parameter.kind.describe(),
            origin: source.describe(parameter.name),
            changeable: parameter.reload == ReloadMode::Live,
            secret: parameter.secret,
            pending: pending.cloned(),
        })
    }
}

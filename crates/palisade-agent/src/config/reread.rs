//! The file read again while the agent runs: what counts at once, what waits, and what is told.
//!
//! [`Config::reread`] is a function of the configuration in force and the file's new text. What can
//! change while running does; everything else waits for the next start and is named. A file that is
//! refused changes nothing at all, and says why until one is read that is not.

use super::{Change, Config, ConfigError, Origin, PARAMETERS, Parameter, Said, file, said_in};
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
    pub found: bool,
}

/// The file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("configuration: reading {}: {source}", path.display())]
pub struct ReadError {
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
    pub fn read(&self) -> Result<Option<Vec<u8>>, ReadError> {
        match std::fs::read(&self.path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if self.optional && error.kind() == ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ReadError {
                path: self.path.clone(),
                source,
            }),
        }
    }
}

/// What the file says that does not count, or not yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// Parameters that will have another value after the next start, with that value as
    /// people may see it.
    pub pending: BTreeMap<&'static str, String>,
    /// Why the file as it is now is refused.
    pub trouble: Option<String>,
}

/// What a new text of the file changed at once: parameters with the value before and after.
pub type Changed = Vec<(&'static str, String, String)>;

impl Config {
    /// What the file says that does not count, or not yet.
    pub fn news(&self) -> &News {
        &self.news
    }

    /// The configuration after the file was read again (its name and text; `None` where it is
    /// absent and may be), and what of it changed. Where the file is refused, it is the same
    /// configuration with the reason.
    pub fn reread(&self, text: Option<(&str, &[u8])>) -> (Config, Changed) {
        let (mut lines, problems) = text
            .map(|(name, text)| file::read(name, text))
            .unwrap_or_default();
        let mut wanted = self.said.clone();
        for parameter in PARAMETERS {
            let Some(said) = wanted.get_mut(parameter.name) else {
                continue;
            };
            if matches!(said.1, Origin::File(_) | Origin::Default) {
                *said = said_in(&mut lines, parameter)
                    .unwrap_or_else(|| (parameter.default.to_owned(), Origin::Default));
            }
        }
        match self.toward(&wanted, problems) {
            Ok((mut config, changed)) => {
                config.file.clone_from(&self.file);
                if let Some(file) = &mut config.file {
                    file.found = text.is_some();
                }
                (config, changed)
            }
            Err(error) => (self.refusing(error.to_string()), Vec::new()),
        }
    }

    /// The same configuration, with the reason why the file does not count.
    pub fn refusing(&self, reason: String) -> Config {
        let mut same = self.clone();
        same.news.trouble = Some(reason);
        same
    }

    fn toward(
        &self,
        wanted: &Said,
        problems: Vec<super::Problem>,
    ) -> Result<(Config, Changed), ConfigError> {
        // Valid as a whole, as a start would have it…
        let next = Config::of(wanted.clone(), problems)?;
        let file = self
            .file
            .as_ref()
            .map(|file| file.path.display().to_string());
        if let Some(problem) = file.and_then(|file| next.reads_itself(&file)) {
            let problems = vec![problem];
            return Err(ConfigError { problems });
        }
        let mut mixed = self.said.clone();
        let mut pending = BTreeMap::new();
        let mut changed = Changed::new();
        for parameter in PARAMETERS {
            let name = parameter.name;
            let (Some(now), Some(next)) = (mixed.get_mut(name), wanted.get(name)) else {
                continue;
            };
            let differs = now.0 != next.0;
            if differs && parameter.change == Change::Restart {
                pending.insert(name, parameter.shown(&next.0));
                continue;
            }
            if differs {
                changed.push((name, parameter.shown(&now.0), parameter.shown(&next.0)));
            }
            now.clone_from(next);
        }
        // …and as it counts until then.
        let mut config = Config::of(mixed, Vec::new())?;
        config.news.pending = pending;
        Ok((config, changed))
    }

    /// The value in force of a parameter, as people may see it.
    pub fn shown(&self, name: &str) -> String {
        let said = self.said.get(name).zip(Parameter::named(name));
        said.map_or_else(String::new, |((text, _), parameter)| parameter.shown(text))
    }

    /// What `palisade config` shows.
    pub fn report(&self) -> ConfigReport {
        let parameters = PARAMETERS.iter().filter_map(|p| self.reported(p)).collect();
        ConfigReport {
            api_version: palisade_api::api_version(),
            parameters,
            file: self.file.as_ref().map(|file| ConfigFileReport {
                path: file.path.display().to_string(),
                found: file.found,
                error: self.news.trouble.clone(),
            }),
        }
    }

    fn reported(&self, parameter: &Parameter) -> Option<ParameterReport> {
        let (value, origin) = self.said.get(parameter.name)?;
        let pending = self.news.pending.get(parameter.name);
        Some(ParameterReport {
            name: parameter.name.to_owned(),
            value: parameter.shown(value),
            source: origin.text().to_owned(),
            default: parameter.default.to_owned(),
            help: parameter.help.to_owned(),
            section: parameter.section.title().to_owned(),
            values: parameter.kind.words(),
            said_by: origin.who(parameter),
            changeable: parameter.change == Change::Live,
            secret: parameter.secret,
            pending: pending.cloned(),
        })
    }
}

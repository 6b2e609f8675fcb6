//! The configuration of the agent, as commands resolve it: from flags, environment and file.

use crate::cli::AgentArgs;
use crate::exit::CommandError;
use palisade_agent::reload::read_config_file;
use palisade_config::{Config, ConfigFile};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Default path of the configuration file.
const DEFAULT_FILE: &str = "/etc/palisade/palisade.yaml";

/// Resolves the configuration from flags, environment and file.
pub(super) fn resolve_config(args: AgentArgs) -> Result<Config, CommandError> {
    let mut config = resolve(&args.parameters.0, args.config)?;
    config.dry_run = args.dry_run;
    Ok(config)
}

/// Resolves the configuration from the environment and this file.
pub(super) fn resolve_file(path: PathBuf) -> Result<Config, CommandError> {
    resolve(&BTreeMap::new(), Some(path))
}

fn resolve(
    flags: &BTreeMap<String, String>,
    path: Option<PathBuf>,
) -> Result<Config, CommandError> {
    let file = ConfigFile {
        optional: path.is_none(),
        path: path.unwrap_or_else(|| DEFAULT_FILE.into()),
        exists: false,
    };
    let text = read_config_file(&file).map_err(|error| CommandError::usage(error.to_string()))?;
    let name = file.path.display().to_string();
    let file_text = text.as_deref().map(|text| (&*name, text));
    let mut config = Config::resolve(flags, environment, file_text)
        .map_err(|error| CommandError::usage(error.to_string()))?;
    config.file = Some(ConfigFile {
        exists: text.is_some(),
        ..file
    });
    Ok(config)
}

#[allow(
    clippy::disallowed_methods,
    reason = "the only place where the environment is read for the configuration"
)]
pub(super) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(super) fn is_permission_error(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
        {
            return true;
        }
        let text = error.to_string();
        if text.contains("EPERM")
            || text.contains("EACCES")
            || text.contains("Operation not permitted")
        {
            return true;
        }
        next = error.source();
    }
    false
}

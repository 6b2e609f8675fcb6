//! `palisade agent`: resolves the configuration, starts the log, and runs the agent in this process.

use super::{endpoint, status};
use crate::cli::{AgentArgs, Format};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::answer;
use palisade_agent::clock::SystemClock;
use palisade_agent::config::{Config, ConfigFile};
use palisade_agent::core::chain;
use palisade_agent::log::Log;
use palisade_agent::manager::Manager;
use palisade_agent::run::RunError;
use std::io;

/// Where the configuration is looked for if nobody names a file.
const DEFAULT_FILE: &str = "/etc/palisade/palisade.yaml";

/// Runs the agent until it is told to stop; in dry mode, shows what it would do.
pub(crate) fn run(args: AgentArgs, format: Format) -> Outcome {
    let config = resolve(args)?;
    let log = Log::start(&config.log_level, config.log_json, SystemClock)
        .map_err(|error| Failure::found(chain(&error)))?;
    if config.dry_run {
        let dry = palisade_agent::dry::run(config);
        log.flush();
        let dry = dry.map_err(|error| failure(&error))?;
        answer(format, &dry, |dry| {
            format!(
                "Nothing is touched: this is what an agent that started now would do.\n\n{}\n{}\n{} writes\n{}",
                status::text(&dry.status),
                endpoint::table(&dry.endpoints),
                dry.plan.writes,
                dry.plan.text
            )
        })?;
        return Ok(Exit::Fine);
    }
    let ended = palisade_agent::run::run(config, log.clone(), &Manager::of(environment));
    log.flush();
    ended.map(|()| Exit::Fine).map_err(|error| failure(&error))
}

fn failure(error: &RunError) -> Failure {
    let text = chain(error);
    match is_permission(error) {
        true => Failure::new(Exit::NotPermitted, text).hint("sudo palisade agent …"),
        false if matches!(error, RunError::Part { .. } | RunError::Serving(_)) => {
            Failure::new(Exit::Failed, text)
        }
        false => Failure::found(text),
    }
}

/// The configuration that these flags, the environment and the file make.
pub(super) fn resolve(args: AgentArgs) -> Result<Config, Failure> {
    let file = ConfigFile {
        optional: args.config.is_none(),
        path: args.config.unwrap_or_else(|| DEFAULT_FILE.into()),
        found: false,
    };
    let text = file
        .read()
        .map_err(|error| Failure::usage(error.to_string()))?;
    let name = file.path.display().to_string();
    let said = text.as_deref().map(|text| (&*name, text));
    let mut config = Config::resolve(&args.parameters.0, environment, said)
        .map_err(|error| Failure::usage(error.to_string()))?;
    config.file = Some(ConfigFile {
        found: text.is_some(),
        ..file
    });
    Ok(config)
}

#[allow(
    clippy::disallowed_methods,
    reason = "the one place where the environment enters the configuration"
)]
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

pub(super) fn is_permission(error: &(dyn std::error::Error + 'static)) -> bool {
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

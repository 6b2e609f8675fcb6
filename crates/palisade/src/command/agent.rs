//! `palisade agent`: resolves the configuration, starts the log, and runs the agent in this process.

use super::{endpoint, status};
use crate::cli::{AgentArgs, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_agent::clock::SystemClock;
use palisade_agent::log::Log;
use palisade_agent::reload::read_config_file;
use palisade_agent::run_error::RunError;
use palisade_agent::service_manager::ServiceManager;
use palisade_api::SubsystemPlan;
use palisade_config::{Config, ConfigFile};
use palisade_source::error_chain;
use palisade_text::printable;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

/// Default path of the configuration file.
const DEFAULT_FILE: &str = "/etc/palisade/palisade.yaml";

/// Runs the agent until it is stopped; with --dry-run, shows what it would do.
pub(crate) fn run(args: AgentArgs, format: OutputFormat) -> CommandResult {
    let config = resolve_config(args)?;
    let log = Log::start(config.log.level, config.log.is_json, SystemClock)
        .map_err(|error| CommandError::problem(error_chain(&error)))?;
    if config.dry_run {
        let dry_run = palisade_agent::dry_run::run(config);
        log.flush();
        let dry_run = dry_run.map_err(|error| run_failure(&error))?;
        print_output(format, &dry_run, |dry| {
            format!(
                "Dry run, nothing is changed. An agent started now would write:\n\n{}\n{}\n{} writes\n{}{}",
                status::status_text(&dry.status),
                endpoint::endpoints_table(&dry.endpoints),
                dry.plan.writes,
                dry.plan.text,
                subsystem_plans(&dry.subsystems)
            )
        })?;
        return Ok(ExitStatus::Success);
    }
    let result = palisade_agent::run::run(
        config,
        log.clone(),
        &ServiceManager::from_environment(environment),
    );
    log.flush();
    result
        .map(|()| ExitStatus::Success)
        .map_err(|error| run_failure(&error))
}

fn run_failure(error: &RunError) -> CommandError {
    let text = error_chain(error);
    if is_permission_error(error) {
        CommandError::new(ExitStatus::NotPermitted, text).with_hint("sudo palisade agent …")
    } else if matches!(error, RunError::ThreadEnded { .. } | RunError::Serving(_)) {
        CommandError::new(ExitStatus::AgentFailed, text)
    } else {
        CommandError::problem(text)
    }
}

/// What subsystems besides policy would do, one line for each action.
fn subsystem_plans(plans: &[SubsystemPlan]) -> String {
    let lines = plans.iter().flat_map(|plan| {
        let name = &plan.name;
        (plan.actions.iter()).map(move |action| {
            let line = format!("{name}: {action}");
            printable(&line).into_owned() + "\n"
        })
    });
    lines.collect()
}

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
fn environment(name: &str) -> Option<String> {
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

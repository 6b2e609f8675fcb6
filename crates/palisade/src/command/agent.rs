//! `palisade agent`: resolves the configuration, starts the log, and runs the agent in this process.

use super::agent_config::{environment, is_permission_error, resolve_config};
use super::{endpoint, status};
use crate::cli::{AgentArgs, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_agent::log::Log;
use palisade_agent::run_error::RunError;
use palisade_agent::service_manager::ServiceManager;
use palisade_api::SubsystemPlan;
use palisade_node::clock::SystemClock;
use palisade_text::{error_chain, printable};

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

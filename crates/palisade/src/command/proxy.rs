//! `palisade proxy`: resolves the agent's configuration, starts the log, and runs the DNS proxy in this process.

use super::agent_config::{environment, is_permission_error, resolve_config};
use crate::cli::AgentArgs;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use palisade_agent::log::Log;
use palisade_agent::proxy_process;
use palisade_agent::service_manager::ServiceManager;
use palisade_node::clock::SystemClock;
use palisade_text::error_chain;

/// Runs the proxy until it is stopped, or until another one takes over.
pub(crate) fn run(args: AgentArgs) -> CommandResult {
    let config = resolve_config(args)?;
    if config.dry_run {
        return Err(CommandError::usage("the DNS proxy has no dry run"));
    }
    let log = Log::start(config.log.level, config.log.is_json, SystemClock)
        .map_err(|error| CommandError::problem(error_chain(&error)))?;
    let manager = ServiceManager::from_environment(environment);
    let result = proxy_process::run(&config, &manager);
    log.flush();
    result.map(|()| ExitStatus::Success).map_err(|error| {
        let text = error_chain(&error);
        if is_permission_error(&error) {
            CommandError::new(ExitStatus::NotPermitted, text).with_hint("sudo palisade proxy …")
        } else {
            CommandError::problem(text)
        }
    })
}

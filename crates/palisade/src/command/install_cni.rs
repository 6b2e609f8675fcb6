//! `palisade install-cni`: copies the CNI plugin into the plugin directory of this host's runtimes.

use super::agent_config;
use crate::cli::{InstallCniArgs, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_api::{CniInstallOutcome, CniInstallReport};
use palisade_text::error_chain;
use palisade_workloads::plugin_file::install_plugin;

/// Installs the plugin; success also if it was there already.
pub(crate) fn run(args: InstallCniArgs, format: OutputFormat) -> CommandResult {
    let config = agent_config::resolve_config(args.agent)?;
    let (path, outcome) =
        install_plugin(&args.from, &config.cni, &config.state).map_err(|error| {
            let text = error_chain(&error);
            if agent_config::is_permission_error(&error) {
                CommandError::new(ExitStatus::NotPermitted, text)
                    .with_hint("sudo palisade install-cni")
            } else {
                CommandError::problem(text)
                    .with_hint("give the plugin by --from, and its directory by --cni-bin-dir")
            }
        })?;
    let report = CniInstallReport {
        api_version: palisade_api::api_version(),
        path: path.display().to_string(),
        outcome,
    };
    print_output(format, &report, report_text)?;
    Ok(ExitStatus::Success)
}

fn report_text(report: &CniInstallReport) -> String {
    let outcome = match report.outcome {
        CniInstallOutcome::Installed => "installed",
        CniInstallOutcome::Replaced => "replaced by another version",
        CniInstallOutcome::Unchanged => "unchanged, it is this version already",
    };
    format!("CNI plugin {}: {outcome}", report.path)
}

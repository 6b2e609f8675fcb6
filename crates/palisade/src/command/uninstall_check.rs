//! `palisade uninstall-check`: shows what is left of Palisade on this host.

use super::agent_config;
use crate::cli::{OutputFormat, UninstallCheckArgs};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_agent::leftovers::find_leftovers;
use palisade_api::{LeftoverItem, LeftoverKind, UninstallReport};
use palisade_text::error_chain;
use palisade_text::printable;
use tokio::signal::unix::{SignalKind, signal};

/// Lists what is left; exit code 1 if something is.
pub(crate) fn run(args: UninstallCheckArgs, format: OutputFormat) -> CommandResult {
    let config = agent_config::resolve_config(args.agent)?;
    let items = find_leftovers(&config).map_err(|error| {
        let text = error_chain(&error);
        if agent_config::is_permission_error(&error) {
            CommandError::new(ExitStatus::NotPermitted, text)
                .with_hint("sudo palisade uninstall-check")
        } else {
            CommandError::problem(text)
        }
    })?;
    let report = UninstallReport {
        api_version: palisade_api::api_version(),
        clean: items.is_empty(),
        items,
    };
    print_output(format, &report, report_text)?;
    if report.clean && args.stay {
        wait_for_signal()?;
    }
    Ok(ExitStatus::of(!report.clean))
}

/// Returns at SIGTERM or SIGINT.
fn wait_for_signal() -> Result<(), CommandError> {
    let failed =
        |error: std::io::Error| CommandError::problem(format!("waiting for a signal: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .map_err(failed)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        Ok(())
    })
}

fn report_text(report: &UninstallReport) -> String {
    if report.clean {
        return "nothing of Palisade is left on this host".to_owned();
    }
    let line = |item: &LeftoverItem| {
        let about = item.about.as_ref();
        let about = about.map(|about| format!(" ({about})")).unwrap_or_default();
        let line = format!("{} {}{about}", kind_text(item.kind), item.name);
        printable(&line).into_owned() + "\n"
    };
    let mut text: String = report.items.iter().map(line).collect();
    text.push_str(remedy(report));
    text
}

fn kind_text(kind: LeftoverKind) -> &'static str {
    match kind {
        LeftoverKind::Agent => "agent",
        LeftoverKind::CniConfiguration => "CNI configuration",
        LeftoverKind::CniReference => "CNI configuration of others that names palisade-cni",
        LeftoverKind::CniPlugin => "CNI plugin",
        LeftoverKind::Interface => "interface",
        LeftoverKind::Route => "route",
        LeftoverKind::ChainedInterface => "interface of another plugin, with policy",
        LeftoverKind::Table => "table",
        LeftoverKind::Pins => "pins of the fast path",
        LeftoverKind::Setting => "setting",
        LeftoverKind::Socket => "socket",
        LeftoverKind::State => "state",
    }
}

/// What to do next.
fn remedy(report: &UninstallReport) -> &'static str {
    let has = |kind| report.items.iter().any(|item| item.kind == kind);
    let others = |item: &LeftoverItem| {
        matches!(
            item.kind,
            LeftoverKind::CniReference | LeftoverKind::CniPlugin
        )
    };
    match () {
        () if has(LeftoverKind::Agent) => "Stop the agent, then run `palisade cleanup`.",
        () if report.items.iter().all(others) => {
            "Remove these by the means that installed them; `palisade cleanup` leaves them."
        }
        () => "`palisade cleanup` removes what Palisade created.",
    }
}

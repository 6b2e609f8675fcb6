//! `palisade cleanup`: lists what Palisade created on this host, asks for confirmation, and removes it.

use super::agent_config;
use crate::cli::{CleanupArgs, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_agent::cleanup::{CleanupError, find};
use palisade_api::{CleanupItem, CleanupKind, CleanupReport};
use palisade_text::error_chain;
use palisade_text::printable;
use std::io::{self, IsTerminal, Write};

/// Removes everything; exit code 1 if an object could not be removed.
pub(crate) fn run(args: CleanupArgs, format: OutputFormat) -> CommandResult {
    let config = agent_config::resolve_config(args.agent)?;
    let leftovers = find(&config).map_err(|error| cleanup_failure(&error))?;
    let dry_run = config.dry_run;
    let items = if dry_run || leftovers.items.is_empty() {
        leftovers.items.clone()
    } else {
        if !args.yes && !confirm(&leftovers.items, format)? {
            return Ok(ExitStatus::Success);
        }
        leftovers.remove()
    };
    let failed = items.iter().any(|item| item.error.is_some());
    let report = CleanupReport {
        api_version: palisade_api::api_version(),
        dry_run,
        items,
    };
    print_output(format, &report, report_text)?;
    Ok(ExitStatus::of(failed))
}

fn cleanup_failure(error: &CleanupError) -> CommandError {
    let text = error_chain(error);
    match (error, agent_config::is_permission_error(error)) {
        (CleanupError::AgentRunning(_), _) => {
            CommandError::problem(text).with_hint("systemctl stop palisade")
        }
        (_, true) => {
            CommandError::new(ExitStatus::NotPermitted, text).with_hint("sudo palisade cleanup")
        }
        (_, false) => CommandError::problem(text),
    }
}

/// Asks for confirmation on a terminal.
fn confirm(items: &[CleanupItem], format: OutputFormat) -> Result<bool, CommandError> {
    if format == OutputFormat::Json || !io::stdin().is_terminal() {
        let what =
            "cleanup ends enforcement and needs confirmation, but there is no interactive terminal";
        return Err(CommandError::usage(what)
            .with_hint("confirm with --yes, or list what would be removed with --dry-run"));
    }
    let ask = || -> io::Result<String> {
        let mut out = io::stdout();
        for item in items {
            writeln!(out, "{}", printable(&item_name(item)))?;
        }
        write!(out, "Remove all of this? Policy enforcement ends. [y/N] ")?;
        out.flush()?;
        let mut reply = String::new();
        io::stdin().read_line(&mut reply)?;
        Ok(reply)
    };
    let reply = ask()
        .map_err(|error| CommandError::problem(format!("reading the confirmation: {error}")))?;
    Ok(["y", "yes"].contains(&reply.trim().to_lowercase().as_str()))
}

fn item_name(item: &CleanupItem) -> String {
    let about = item.about.as_deref().unwrap_or_default();
    let kind = match item.kind {
        CleanupKind::CniConfiguration => "CNI configuration",
        CleanupKind::CniPlugin => "CNI plugin",
        CleanupKind::Interface => "interface",
        CleanupKind::ChainedInterface => "interface of another plugin",
        CleanupKind::Route => "route",
        CleanupKind::Table => "table",
        CleanupKind::Pins => "pins of the fast path",
        CleanupKind::Setting => return format!("setting {} ({about})", item.name),
        CleanupKind::Socket => "socket",
        CleanupKind::State => "state",
    };
    let about = item.about.as_ref().map(|whose| format!(" of {whose}"));
    format!("{kind} {}{}", item.name, about.unwrap_or_default())
}

fn report_text(report: &CleanupReport) -> String {
    if report.items.is_empty() {
        return "nothing to remove".to_owned();
    }
    let line = |item: &CleanupItem| {
        let outcome = match (&item.error, item.removed) {
            (Some(error), _) => format!("FAILED: {error}"),
            (None, true) if item.kind == CleanupKind::Setting => "restored".to_owned(),
            (None, true) if item.kind == CleanupKind::ChainedInterface => "set down".to_owned(),
            (None, true) => "removed".to_owned(),
            (None, false) if report.dry_run && item.kind == CleanupKind::ChainedInterface => {
                "would be set down".to_owned()
            }
            (None, false) if report.dry_run && item.kind == CleanupKind::Setting => {
                "would be restored".to_owned()
            }
            (None, false) if report.dry_run => "would be removed".to_owned(),
            (None, false) => "kept: it contains other files".to_owned(),
        };
        let line = format!("{}: {outcome}", item_name(item));
        printable(&line).into_owned() + "\n"
    };
    report.items.iter().map(line).collect()
}

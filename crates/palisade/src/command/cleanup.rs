//! `palisade cleanup`: shows what Palisade made on this host, asks, and removes it.

use super::agent;
use crate::cli::{CleanupArgs, Format};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::answer;
use palisade_agent::cleanup::{CleanupError, Item, Kind, look};
use palisade_agent::core::chain;
use palisade_text::printable;
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

/// What `cleanup -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    api_version: &'static str,
    dry_run: bool,
    items: Vec<Item>,
}

/// Removes everything; exit 1 if something could not be.
pub(crate) fn run(args: CleanupArgs, format: Format) -> Outcome {
    let config = agent::resolve(args.agent)?;
    let found = look(&config).map_err(|error| failure(&error))?;
    let dry_run = config.dry_run;
    let items = if dry_run || found.items.is_empty() {
        found.items.clone()
    } else {
        if !args.yes && !is_wanted(&found.items, format)? {
            return Ok(Exit::Fine);
        }
        found.remove()
    };
    let failed = items.iter().any(|item| item.error.is_some());
    let report = Report {
        api_version: palisade_api::API_VERSION,
        dry_run,
        items,
    };
    answer(format, &report, text)?;
    Ok(if failed { Exit::Found } else { Exit::Fine })
}

fn failure(error: &CleanupError) -> Failure {
    let text = chain(error);
    match (error, agent::is_permission(error)) {
        (CleanupError::Runs(_), _) => Failure::found(text).hint("systemctl stop palisade"),
        (_, true) => Failure::new(Exit::NotPermitted, text).hint("sudo palisade cleanup"),
        (_, false) => Failure::found(text),
    }
}

/// Asks, on a terminal.
fn is_wanted(items: &[Item], format: Format) -> Result<bool, Failure> {
    if format == Format::Json || !io::stdin().is_terminal() {
        let what = "this removes what enforces policy here; nobody is there to be asked";
        return Err(Failure::usage(what).hint("--yes, or --dry-run to see what would be removed"));
    }
    let ask = || -> io::Result<String> {
        let mut out = io::stdout();
        for item in items {
            writeln!(out, "{}", printable(&name(item)))?;
        }
        write!(out, "Remove all this? Enforcement ends with it. [y/N] ")?;
        out.flush()?;
        let mut said = String::new();
        io::stdin().read_line(&mut said)?;
        Ok(said)
    };
    let said = ask().map_err(|error| Failure::found(format!("asking: {error}")))?;
    Ok(["y", "yes"].contains(&said.trim().to_lowercase().as_str()))
}

fn name(item: &Item) -> String {
    let about = item.about.as_deref().unwrap_or_default();
    let kind = match item.kind {
        Kind::CniConfiguration => "CNI configuration",
        Kind::Interface => "interface",
        Kind::ChainedInterface => "interface of another plugin",
        Kind::Table => "table",
        Kind::Setting => return format!("setting {} ({about})", item.name),
        Kind::Socket => "socket",
        Kind::State => "state",
    };
    let about = item.about.as_ref().map(|whose| format!(" of {whose}"));
    format!("{kind} {}{}", item.name, about.unwrap_or_default())
}

fn text(report: &Report) -> String {
    if report.items.is_empty() {
        return "there is nothing of Palisade here".to_owned();
    }
    let line = |item: &Item| {
        let how = match (&item.error, item.removed) {
            (Some(error), _) => format!("FAILED: {error}"),
            (None, true) if item.kind == Kind::Setting => "put back".to_owned(),
            (None, true) if item.kind == Kind::ChainedInterface => "set down".to_owned(),
            (None, true) => "removed".to_owned(),
            (None, false) if report.dry_run && item.kind == Kind::ChainedInterface => {
                "would be set down".to_owned()
            }
            (None, false) if report.dry_run && item.kind == Kind::Setting => {
                "would be put back".to_owned()
            }
            (None, false) if report.dry_run => "would be removed".to_owned(),
            (None, false) => "stays: something else is in it".to_owned(),
        };
        let line = format!("{}: {how}", name(item));
        printable(&line).into_owned() + "\n"
    };
    report.items.iter().map(line).collect()
}

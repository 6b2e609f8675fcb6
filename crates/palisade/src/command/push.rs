//! `palisade push`: makes the objects of a folder those that agents read from etcd.

use super::agent_config;
use crate::cli::{OutputFormat, PushArgs};
use crate::command::manifests::{self, problem_reports};
use crate::command::status::problem_text;
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::{pluralize, print_output};
use palisade_agent::options::etcd_options;
use palisade_api::{ProblemSeverity, PushReport};
use palisade_etcd::{EtcdError, PushError, PushMode, PushObject, push};
use palisade_source::{LoadedInput, load_manifests};
use palisade_text::error_chain;
use palisade_text::printable;

/// Writes the objects; nothing if one of them has an error.
pub(crate) fn run(args: PushArgs, format: OutputFormat) -> CommandResult {
    let config = agent_config::resolve_config(args.agent)?;
    let Some(options) = etcd_options(&config.etcd) else {
        let error = CommandError::usage("no etcd is configured, so there is nowhere to write to");
        return Err(error.with_hint("palisade push --etcd 10.0.0.1:2379 -f DIR"));
    };
    manifests::check_paths_exist(&args.files.files)?;
    let loaded = load_manifests(&args.files.files);
    refuse_errors(&loaded)?;
    if loaded.manifests.is_empty() && !args.allow_empty {
        let error = CommandError::problem(
            "there is no object to push; everything pushed before would be deleted",
        );
        return Err(error.with_hint("check the path after -f, or add --allow-empty"));
    }
    let objects = loaded.manifests.into_iter().map(|object| PushObject {
        id: object.id,
        manifest: object.manifest.to_string(),
    });
    let objects: Vec<PushObject> = objects.collect();
    let mode = if config.dry_run {
        PushMode::DryRun
    } else {
        PushMode::Write
    };
    let outcome = push(&options, &objects, mode).map_err(|error| push_failure(&error))?;
    if let Some(leftover) = &outcome.leftover {
        let leftover = printable(leftover);
        eprintln!(
            "palisade: an old push could not be removed; the next one tries it again: {leftover}"
        );
    }
    let (not_enforced, ignored) = manifests::split_ignored(loaded.ignored);
    let report = PushReport {
        api_version: palisade_api::api_version(),
        dry_run: config.dry_run,
        location: options.location(),
        revision: outcome.revision,
        created: outcome.plan.created,
        changed: outcome.plan.changed,
        deleted: outcome.plan.deleted,
        unchanged: outcome.plan.unchanged,
        not_enforced,
        ignored,
    };
    print_output(format, &report, report_text)?;
    Ok(ExitStatus::Success)
}

/// Prints the problems; fails if there is an error.
fn refuse_errors(loaded: &LoadedInput) -> Result<(), CommandError> {
    let problems = problem_reports(loaded);
    for problem in &problems {
        eprintln!("{}", problem_text(problem));
    }
    let errors = problems
        .iter()
        .filter(|problem| problem.severity == ProblemSeverity::Error)
        .map(palisade_api::ProblemReport::count)
        .sum();
    match errors {
        0 => Ok(()),
        errors => {
            let message = format!("nothing was written: {}", pluralize(errors, "error"));
            let hint = "correct them, and check with palisade validate -f DIR";
            Err(CommandError::problem(message).with_hint(hint))
        }
    }
}

fn push_failure(error: &PushError) -> CommandError {
    let text = error_chain(error);
    let cause = match error {
        PushError::Request { source, .. } => Some(source),
        _ => None,
    };
    match (error, cause) {
        (PushError::Conflict, _) => CommandError::problem(text)
            .with_hint("see what changed with --dry-run, then push again"),
        (_, Some(EtcdError::Login { .. })) => CommandError::new(ExitStatus::NotPermitted, text)
            .with_hint("check etcd-user, and the first line of etcd-password-file"),
        (_, Some(EtcdError::Refused { message, .. })) if message.contains("permission denied") => {
            CommandError::new(ExitStatus::NotPermitted, text).with_hint(
                "etcdctl role grant-permission ROLE --prefix=true readwrite PREFIX/, for the role of etcd-user",
            )
        }
        (_, Some(EtcdError::Refused { message, .. })) if message.contains("user name is empty") => {
            CommandError::new(ExitStatus::NotPermitted, text)
                .with_hint("set etcd-user and etcd-password-file")
        }
        (_, Some(EtcdError::Connection(_) | EtcdError::Timeout { .. })) => {
            CommandError::new(ExitStatus::NotReached, text)
                .with_hint("check etcd and etcd-ca-file, and that etcd runs")
        }
        _ => CommandError::problem(text),
    }
}

fn report_text(report: &PushReport) -> String {
    let mut out = String::new();
    let tense = |done: &'static str, would: &'static str| if report.dry_run { would } else { done };
    for (paths, word) in [
        (&report.created, tense("created", "would be created")),
        (&report.changed, tense("changed", "would be changed")),
        (&report.deleted, tense("deleted", "would be deleted")),
    ] {
        for path in paths {
            out.push_str(&format!("{}: {word}\n", printable(path)));
        }
    }
    out.push_str(&format!(
        "{} created, {} changed, {} deleted, {} unchanged; {} at revision {}",
        report.created.len(),
        report.changed.len(),
        report.deleted.len(),
        report.unchanged,
        tense("read back", "compared"),
        report.revision,
    ));
    out.push_str(&manifests::not_enforced_text(&report.not_enforced));
    let ignored: usize = report.ignored.values().sum();
    if ignored > 0 {
        let kinds: Vec<&str> = report.ignored.keys().map(|kind| &**kind).collect();
        out.push_str(&format!(
            "; {} not written, not policy related ({})",
            pluralize(ignored, "object"),
            printable(&kinds.join(", "))
        ));
    }
    out
}

//! `palisade diff`: the connections that a change of manifests allows or denies.

use super::connections::{connection_scope, connections_table, group_members_text, is_ungrouped};
use super::manifests;
use crate::cli::{DiffArgs, OutputFormat};
use crate::exit::{CommandError, CommandResult, ExitStatus};
use crate::output::print_output;
use palisade_analysis::{ConnectionDiff, StateView};
use palisade_text::printable;

/// Shows the difference; exit code 1 if there is one, or if the manifests have errors.
pub(crate) fn run(args: &DiffArgs, format: OutputFormat) -> CommandResult {
    let (old, new) = match &args.files[..] {
        [old, new] => (old, Some(new)),
        [of] if args.audit => (of, None),
        files => {
            let given = files.len();
            return Err(CommandError::usage(format!(
                "diff needs -f OLD -f NEW, two files or directories, or --audit -f PATH; {given} given"
            )));
        }
    };
    if old.as_os_str() == "-" && new.is_some_and(|new| new.as_os_str() == "-") {
        return Err(CommandError::usage("only one of OLD and NEW can be `-`"));
    }
    let old = manifests::load_state(std::slice::from_ref(old))?;
    let new = match new {
        Some(new) => Some(manifests::load_state(std::slice::from_ref(new))?),
        None => None,
    };
    let exits = [Some(&old), new.as_ref()].into_iter().flatten();
    let problems = exits
        .map(|loaded| loaded.exit)
        .any(|exit| exit == ExitStatus::ProblemsFound);
    let is_single = new.is_none();
    let (old, new) = (
        &old.state,
        new.as_ref().map_or(&old.state, |new| &new.state),
    );
    let view = |state, audit| match audit {
        true => StateView::audit(state),
        false => StateView::from(state),
    };
    let (old, new) = (view(old, args.audit && !is_single), view(new, args.audit));
    let diff = match is_ungrouped(format, &args.scope, &[old.state, new.state]) {
        true => palisade_analysis::diff(old, new),
        false => {
            let scope = connection_scope(&args.scope);
            let found = palisade_analysis::grouped_diff(old, new, &scope);
            found.map_err(|error| CommandError::usage(error.to_string()))?
        }
    };
    print_output(format, &diff.report(args.scope.members), |_| {
        diff_text(&diff) + &group_members_text(&[&diff.opened, &diff.closed], &args.scope)
    })?;
    Ok(ExitStatus::of(!diff.is_empty() || problems))
}

fn diff_text(diff: &ConnectionDiff) -> String {
    if diff.is_empty() {
        return "no difference in allowed connections".to_owned();
    }
    let mut out = String::new();
    for (title, workloads) in [
        ("Added workloads", &diff.appeared),
        ("Removed workloads", &diff.vanished),
    ] {
        if !workloads.is_empty() {
            let names: Vec<String> = workloads
                .iter()
                .map(|workload| printable(&workload.to_string()).into_owned())
                .collect();
            out.push_str(&format!("{title}: {}\n", names.join(", ")));
        }
    }
    for (title, connections) in [("Opened:", &diff.opened), ("Closed:", &diff.closed)] {
        if !connections.is_empty() {
            out.push_str(&format!("{title}\n{}", connections_table(connections)));
        }
    }
    out
}

//! `palisade diff`: what a change of manifests opens and closes.

use super::connections::{groups, scope, single, table, with_members};
use super::manifests;
use crate::cli::{DiffArgs, Format};
use crate::exit::{Exit, Failure, Outcome};
use crate::output::answer;
use palisade_analysis::Diff;
use palisade_text::printable;
use serde::Serialize;

/// What `diff -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    api_version: &'static str,
    #[serde(flatten)]
    diff: Diff,
}

/// Shows what a change opens and closes; exit 1 if it does either, or if problems were found.
pub(crate) fn run(args: &DiffArgs, format: Format) -> Outcome {
    let [old, new] = &args.files[..] else {
        let given = args.files.len();
        return Err(Failure::usage(format!(
            "diff takes -f OLD -f NEW, and was given {given} of them"
        )));
    };
    if old.as_os_str() == "-" && new.as_os_str() == "-" {
        return Err(Failure::usage("only one of OLD and NEW can be `-`"));
    }
    let old = manifests::read(std::slice::from_ref(old))?;
    let new = manifests::read(std::slice::from_ref(new))?;
    let problems = [old.exit, new.exit].contains(&Exit::Found);
    let diff = match single(format, &args.scope, &[&old.state, &new.state]) {
        true => palisade_analysis::diff(&old.state, &new.state),
        false => {
            let scope = scope(&args.scope);
            let found = palisade_analysis::grouped_diff(&old.state, &new.state, &scope);
            let mut found = found.map_err(|error| Failure::usage(error.to_string()))?;
            for list in [&mut found.opened, &mut found.closed] {
                *list = with_members(std::mem::take(list), &args.scope);
            }
            found
        }
    };
    let same = diff.is_empty();
    let answered = Answer {
        api_version: palisade_api::API_VERSION,
        diff,
    };
    answer(format, &answered, |answered| {
        let diff = &answered.diff;
        text(diff) + &groups(&[&diff.opened, &diff.closed], &args.scope)
    })?;
    Ok(match same && !problems {
        true => Exit::Fine,
        false => Exit::Found,
    })
}

fn text(diff: &Diff) -> String {
    if diff.is_empty() {
        return "nothing is opened or closed".to_owned();
    }
    let mut out = String::new();
    for (title, workloads) in [
        ("Workloads that appear", &diff.appeared),
        ("Workloads that vanish", &diff.vanished),
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
            out.push_str(&format!("{title}\n{}", table(connections)));
        }
    }
    out
}

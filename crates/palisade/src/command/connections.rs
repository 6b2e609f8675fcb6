//! `palisade connections`: every connection that manifests allow, from the analysis, printed.

use super::manifests;
use crate::cli::{ConnectionsArgs, Format, ScopeArgs};
use crate::exit::{Failure, Outcome};
use crate::output::{Table, answer, or_dash};
use palisade_analysis::{Connection, Party, Scope};
use palisade_model::State;
use serde::Serialize;
use std::collections::BTreeSet;

/// What `connections -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Connections {
    api_version: &'static str,
    connections: Vec<Connection>,
}

/// Up to how many pods JSON has each pair and each prefix by itself.
const SINGLE: usize = 64;

/// Lists every allowed connection.
pub(crate) fn run(args: &ConnectionsArgs, format: Format) -> Outcome {
    let manifests::Read { state, exit } = manifests::read(&args.files.files)?;
    let connections = match single(format, &args.scope, &[&state]) {
        true => palisade_analysis::connections(&state),
        false => {
            let found = palisade_analysis::grouped_connections(&state, &scope(&args.scope));
            let found = found.map_err(|error| Failure::usage(error.to_string()))?;
            with_members(found, &args.scope)
        }
    };
    let answered = Connections {
        api_version: palisade_api::API_VERSION,
        connections,
    };
    answer(format, &answered, |answered| {
        match answered.connections.is_empty() {
            true if state.endpoints.values().all(|e| e.host) => "there is no workload".to_owned(),
            true => "no connection is allowed".to_owned(),
            false => {
                let table = table(&answered.connections);
                table + &groups(&[&answered.connections], &args.scope)
            }
        }
    })?;
    Ok(exit)
}

/// Whether every pair and prefix is answered by itself.
pub(crate) fn single(format: Format, scope: &ScopeArgs, states: &[&State]) -> bool {
    let pods: usize = states.iter().map(|state| state.endpoints.len()).sum();
    let all = scope.from.is_none() && scope.to.is_none() && scope.namespace.is_none();
    format == Format::Json && all && !scope.members && pods <= SINGLE
}

/// What was asked for on the command line.
pub(crate) fn scope(args: &ScopeArgs) -> Scope {
    Scope {
        from: args.from.clone(),
        to: args.to.clone(),
        namespace: args.namespace.clone(),
    }
}

/// The same, with the members of groups where these are asked for.
pub(crate) fn with_members(list: Vec<Connection>, args: &ScopeArgs) -> Vec<Connection> {
    if !args.members {
        return list;
    }
    let told = |connection: Connection| Connection {
        src: connection.src.with_members(),
        dst: connection.dst.with_members(),
        ..connection
    };
    list.into_iter().map(told).collect()
}

/// The groups of these lists with their members, if they are asked for.
pub(crate) fn groups(lists: &[&[Connection]], args: &ScopeArgs) -> String {
    let rows = lists.iter().copied().flatten();
    let parties = rows.flat_map(|row| [&row.src, &row.dst]);
    let groups: BTreeSet<&Party> = parties
        .filter(|party| matches!(party, Party::Group(_)) && args.members)
        .collect();
    let mut out = String::new();
    for group in groups {
        out.push_str(&format!("\n{group}:\n"));
        for member in group.workloads() {
            out.push_str(&format!("  {member}\n"));
        }
    }
    out
}

/// Connections as rows.
pub(crate) fn table(connections: &[Connection]) -> String {
    let mut table = Table::new(&["FROM", "TO", "FAMILY", "CONNECTIONS"]);
    for row in connections {
        let family = row.family.map(|family| family.to_string());
        table.row([
            row.src.to_string(),
            row.dst.to_string(),
            or_dash(family.unwrap_or_default()),
            row.connections.to_string(),
        ]);
    }
    table.to_string()
}

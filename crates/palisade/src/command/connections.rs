//! `palisade connections`: every connection that manifests allow, computed by the analysis.

use super::manifests;
use crate::cli::{ConnectionsArgs, OutputFormat, ScopeArgs};
use crate::exit::{CommandError, CommandResult};
use crate::output::{TextTable, or_dash, print_output};
use palisade_analysis::{Connection, ConnectionEnd, ConnectionFilter, HostConnection, StateView};
use palisade_api::ConnectionList;
use palisade_model::{Direction, FailsafePorts, State};
use std::collections::BTreeSet;

/// Maximum number of pods for which JSON has each pair and each prefix separately.
const MAX_UNGROUPED_PODS: usize = 64;

/// Lists every allowed connection.
pub(crate) fn run(args: &ConnectionsArgs, format: OutputFormat) -> CommandResult {
    let manifests::LoadedManifests { state, exit } = manifests::load_state(&args.files.files)?;
    let view = match args.audit {
        true => StateView::audit(&state),
        false => StateView::from(&state),
    };
    let connections = match is_ungrouped(format, &args.scope, &[&state]) {
        true => palisade_analysis::connections(view),
        false => {
            let found =
                palisade_analysis::grouped_connections(view, &connection_scope(&args.scope));
            found.map_err(|error| CommandError::usage(error.to_string()))?
        }
    };
    let hosts = match is_about_hosts(&args.scope) {
        true => palisade_analysis::host_connections(view, &FailsafePorts::default()),
        false => Vec::new(),
    };
    let reports = connections.iter().map(|row| row.report(args.scope.members));
    let report = ConnectionList {
        api_version: palisade_api::api_version(),
        connections: reports.collect(),
        hosts: hosts.iter().map(HostConnection::report).collect(),
    };
    print_output(format, &report, |_| {
        let of_workloads = match connections.is_empty() {
            true if state.endpoints.values().all(|e| e.host) => "no workloads".to_owned(),
            true => "no connection is allowed".to_owned(),
            false => {
                let table = connections_table(&connections);
                table + &group_members_text(&[&connections], &args.scope)
            }
        };
        match hosts.is_empty() {
            true => of_workloads,
            false => format!(
                "{}\n\nHosts, with failsafe ports, without what they forward:\n{}",
                of_workloads.trim_end(),
                hosts_table(&hosts)
            ),
        }
    })?;
    Ok(exit)
}

/// Whether every pair and prefix is listed separately.
pub(crate) fn is_ungrouped(format: OutputFormat, scope: &ScopeArgs, states: &[&State]) -> bool {
    let pods: usize = states.iter().map(|state| state.endpoints.len()).sum();
    let all = scope.from.is_none() && scope.to.is_none() && scope.namespace.is_none();
    format == OutputFormat::Json && all && !scope.members && pods <= MAX_UNGROUPED_PODS
}

/// The filter given on the command line.
pub(crate) fn connection_scope(args: &ScopeArgs) -> ConnectionFilter {
    ConnectionFilter {
        from: args.from.clone(),
        to: args.to.clone(),
        namespace: args.namespace.clone(),
    }
}

/// The groups of these lists with their members, if they are requested.
pub(crate) fn group_members_text(lists: &[&[Connection]], args: &ScopeArgs) -> String {
    let rows = lists.iter().copied().flatten();
    let parties = rows.flat_map(|row| [&row.src, &row.dst]);
    let groups: BTreeSet<&ConnectionEnd> = parties
        .filter(|party| matches!(party, ConnectionEnd::Group(_)) && args.members)
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

/// Whether hosts are shown: the names of a scope are those of workloads.
pub(crate) fn is_about_hosts(scope: &ScopeArgs) -> bool {
    scope.from.is_none() && scope.to.is_none() && scope.namespace.is_none()
}

/// Formats what hosts let in and out as a table.
pub(crate) fn hosts_table(hosts: &[HostConnection]) -> String {
    let mut table = TextTable::new(&["FROM", "TO", "CONNECTIONS"]);
    for row in hosts {
        let address = row.address.map(|address| format!(" [{address}]"));
        let host = format!(
            "host:{}{} ({})",
            row.node,
            address.unwrap_or_default(),
            row.interface
        );
        let nets: Vec<String> = row.peers.0.iter().map(ToString::to_string).collect();
        let peers = nets.join(", ");
        let [from, to] = match row.direction {
            Direction::Ingress => [peers, host],
            Direction::Egress => [host, peers],
        };
        table.row([from, to, row.connections.to_string()]);
    }
    table.to_string()
}

/// Formats connections as a table.
pub(crate) fn connections_table(connections: &[Connection]) -> String {
    let mut table = TextTable::new(&["FROM", "TO", "FAMILY", "CONNECTIONS"]);
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

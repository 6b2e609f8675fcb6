//! `palisade connections`: every connection that manifests allow, computed by the analysis.

use super::manifests;
use crate::cli::{ConnectionsArgs, OutputFormat, ScopeArgs};
use crate::connection_args::HostToEndpoint;
use crate::exit::{CommandError, CommandResult};
use crate::output::{TextTable, or_dash, print_output};
use palisade_analysis::{
    Connection, ConnectionEnd, ConnectionFilter, ConnectionFilterError, ForwardedConnection,
    HostConnection, StateView,
};
use palisade_api::{ConnectionList, RecordedUse};
use palisade_model::{Direction, FailsafePorts, State};
use std::collections::BTreeSet;

/// Maximum number of pods for which JSON has each pair and each prefix separately.
const MAX_UNGROUPED_PODS: usize = 64;

/// What is not listed for each workload.
const OPEN_TO_OWN_NODE: &str = "Besides, every workload is reachable from its own node, whatever policies say (host-to-endpoint: allow).";

/// Lists every allowed connection.
pub(crate) fn run(args: &ConnectionsArgs, format: OutputFormat) -> CommandResult {
    let read = manifests::load_state(&args.files.files)?;
    let (state, exit) = (&read.state, read.exit);
    let view = if args.audit {
        StateView::audit(state)
    } else {
        StateView::from(state)
    };
    let scope = connection_scope(&args.scope);
    let connections = if is_ungrouped(format, &args.scope, &[state]) {
        palisade_analysis::filtered_connections(view, &scope)
    } else {
        palisade_analysis::grouped_connections(view, &scope)
    };
    let connections = connections.map_err(|error| match &error {
        ConnectionFilterError::NoWorkload(name) => read.unknown_name(name, error.to_string()),
        ConnectionFilterError::NoNamespace(_) => CommandError::usage(error.to_string()),
    })?;
    let failsafe = FailsafePorts::default();
    let (hosts, forwarded) = if is_about_hosts(&args.scope) {
        (
            palisade_analysis::host_connections(view, &failsafe),
            palisade_analysis::forwarded_connections(view, &failsafe),
        )
    } else {
        Default::default()
    };
    let reports = connections.iter().map(|row| row.report(args.scope.members));
    let report = ConnectionList {
        api_version: palisade_api::api_version(),
        connections: reports.collect(),
        open_to_own_node: args.host_to_endpoint == HostToEndpoint::Allow,
        hosts: hosts.iter().map(HostConnection::report).collect(),
        forwarded: forwarded.iter().map(ForwardedConnection::report).collect(),
    };
    print_output(format, &report, |_| {
        let of_workloads = if !connections.is_empty() {
            let table = connections_table(&connections, None);
            table + &group_members_text(&[&connections], &args.scope)
        } else if state.endpoints.values().all(|e| e.is_host()) {
            "no workloads".to_owned()
        } else {
            "no connection is allowed".to_owned()
        };
        let mut parts = vec![of_workloads.trim_end().to_owned()];
        if report.open_to_own_node && state.endpoints.values().any(|e| !e.is_host()) {
            parts.push(OPEN_TO_OWN_NODE.to_owned());
        }
        if !hosts.is_empty() {
            let table = hosts_table(&hosts, None);
            parts.push(format!("Hosts, with failsafe ports:\n{}", table.trim_end()));
        }
        if !forwarded.is_empty() {
            let table = forwarded_table(&forwarded);
            parts.push(format!(
                "Forwarded by hosts, where a policy judges it:\n{table}"
            ));
        }
        match parts.len() {
            1 => of_workloads,
            _ => parts.join("\n\n"),
        }
    })?;
    Ok(exit)
}

/// Whether every pair and prefix is listed separately: in JSON, with few pods, and unless the members of groups are
/// asked for.
pub(crate) fn is_ungrouped(format: OutputFormat, scope: &ScopeArgs, states: &[&State]) -> bool {
    let pods: usize = states.iter().map(|state| state.endpoints.len()).sum();
    format == OutputFormat::Json && !scope.members && pods <= MAX_UNGROUPED_PODS
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

/// The heading of the uses of connections.
const RECORDED: &str = "RECORDED";

/// A table with these columns, and one for uses if there are any.
fn table_with_uses(columns: &[&'static str], uses: Option<&[RecordedUse]>) -> TextTable {
    let uses = uses.map(|_| RECORDED);
    let columns: Vec<&str> = columns.iter().copied().chain(uses).collect();
    TextTable::new(&columns)
}

/// The cell of the uses of a row.
fn use_cell(uses: Option<&[RecordedUse]>, row: usize) -> Option<String> {
    let recorded = uses?.get(row)?;
    let Some(last) = &recorded.last else {
        return Some("never".to_owned());
    };
    let counts = [(recorded.allowed, "allowed"), (recorded.denied, "denied")];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    Some(format!("{}, last {last}", counts.join(", ")))
}

/// Formats what hosts let in and out as a table, with the uses of each row if there are any.
pub(crate) fn hosts_table(hosts: &[HostConnection], uses: Option<&[RecordedUse]>) -> String {
    let mut table = table_with_uses(&["FROM", "TO", "CONNECTIONS"], uses);
    for (index, row) in hosts.iter().enumerate() {
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
        let cells = [from, to, row.connections.to_string()].into_iter();
        table.row(cells.chain(use_cell(uses, index)));
    }
    table.to_string()
}

/// Formats what hosts let pass of what they forward as a table.
pub(crate) fn forwarded_table(forwarded: &[ForwardedConnection]) -> String {
    let mut table = TextTable::new(&["FROM", "TO", "AT", "CONNECTIONS"]);
    for row in forwarded {
        let side = match row.direction {
            Direction::Ingress => "arriving",
            Direction::Egress => "leaving",
        };
        let [from, to] = [&row.sources, &row.destinations].map(|blocks| {
            let nets: Vec<String> = blocks.0.iter().map(ToString::to_string).collect();
            nets.join(", ")
        });
        let at = format!("host:{} ({}, {side})", row.node, row.interface);
        table.row([from, to, at, row.connections.to_string()]);
    }
    table.to_string()
}

/// Formats connections as a table, with the uses of each if there are any.
pub(crate) fn connections_table(
    connections: &[Connection],
    uses: Option<&[RecordedUse]>,
) -> String {
    let mut table = table_with_uses(&["FROM", "TO", "FAMILY", "CONNECTIONS"], uses);
    for (index, row) in connections.iter().enumerate() {
        let family = row.family.map(|family| family.to_string());
        let cells = [
            row.src.to_string(),
            row.dst.to_string(),
            or_dash(family.unwrap_or_default()),
            row.connections.to_string(),
        ];
        table.row(cells.into_iter().chain(use_cell(uses, index)));
    }
    table.to_string()
}

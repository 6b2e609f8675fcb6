//! `palisade connections`: every connection that manifests allow, from the analysis, printed.

use super::manifests;
use crate::cli::{Files, Format};
use crate::exit::Outcome;
use crate::output::{Table, answer, or_dash};
use palisade_analysis::Connection;
use palisade_model::State;
use serde::Serialize;

/// What `connections -o json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Connections {
    api_version: &'static str,
    connections: Vec<Connection>,
}

/// Lists every allowed connection.
pub(crate) fn run(files: &Files, format: Format) -> Outcome {
    let manifests::Read { state, exit } = manifests::read(&files.files)?;
    let connections = palisade_analysis::connections(&state);
    let answered = Connections {
        api_version: palisade_api::API_VERSION,
        connections,
    };
    answer(format, &answered, |answered| {
        match answered.connections.is_empty() {
            true if state.endpoints.values().all(|e| e.host) => "there is no workload".to_owned(),
            true => "no connection is allowed".to_owned(),
            false => table(&answered.connections, &[&state]),
        }
    })?;
    Ok(exit)
}

/// Connections of these states as rows, what is outside in few of them.
pub(crate) fn table(connections: &[Connection], states: &[&State]) -> String {
    let mut table = Table::new(&["FROM", "TO", "FAMILY", "CONNECTIONS"]);
    for row in palisade_analysis::summary(connections, states) {
        let family = row.family.map(|family| family.to_string());
        table.row([
            row.from,
            row.to,
            or_dash(family.unwrap_or_default()),
            row.connections.to_string(),
        ]);
    }
    table.to_string()
}

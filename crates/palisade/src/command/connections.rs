//! `palisade connections`.

use super::manifests;
use crate::cli::{Files, Format};
use crate::exit::{Exit, Outcome};
use crate::output::{Table, answer, or_dash};
use palisade_analysis::Connection;
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
    let state = manifests::state(&files.files)?;
    let connections = palisade_analysis::connections(&state);
    let answered = Connections {
        api_version: palisade_api::API_VERSION,
        connections,
    };
    answer(format, &answered, |answered| {
        match answered.connections.is_empty() {
            true => "no connection is allowed (or there is no workload)".to_owned(),
            false => table(&answered.connections),
        }
    })?;
    Ok(Exit::Fine)
}

/// Connections as rows.
pub(crate) fn table(connections: &[Connection]) -> String {
    let mut table = Table::new(&["FROM", "TO", "FAMILY", "CONNECTIONS"]);
    for connection in connections {
        table.row([
            connection.src.to_string(),
            connection.dst.to_string(),
            or_dash(
                connection
                    .family
                    .map(|family| family.to_string())
                    .unwrap_or_default(),
            ),
            connection.connections.to_string(),
        ]);
    }
    table.to_string()
}

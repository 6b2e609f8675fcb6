//! Reads recorded flows for the commands that judge them: from files, or from the agent.

use crate::cli::FlowArgs;
use crate::client::ApiClient;
use crate::exit::CommandError;
use palisade_api::path;
use palisade_flows::filter::{MAX_LIMIT, parse_time};
use palisade_node::clock::{Clock, SystemClock, rfc3339};
use palisade_preview::Record;
use palisade_text::printable;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Reads the record.
pub(crate) fn read(args: &FlowArgs, client: &ApiClient) -> Result<Record, CommandError> {
    let since = match &args.since {
        Some(text) => {
            let since = parse_time(text, SystemClock.wall()).ok_or_else(|| {
                CommandError::usage(format!(
                    "--since {text}: neither a time (2026-11-21T07:32:05Z) nor a time span (24h)"
                ))
            })?;
            Some(rfc3339(Duration::from_secs(since)))
        }
        None => None,
    };
    let mut record = Record::default();
    if args.flow_files.is_empty() {
        let since_query = since.as_ref().map(|since| {
            let since = super::explain::percent_encode(since);
            format!("&since={since}")
        });
        let since_query = since_query.unwrap_or_default();
        let path = format!("{}?limit={MAX_LIMIT}{since_query}", path::FLOWS);
        record.add(client.get(&path)?, since.as_deref());
        return Ok(record);
    }
    for path in &args.flow_files {
        read_file(&mut record, path, since.as_deref())?;
    }
    Ok(record)
}

/// Adds the lists of a file, one or several.
fn read_file(record: &mut Record, path: &Path, since: Option<&str>) -> Result<(), CommandError> {
    let name = printable(&path.display().to_string()).into_owned();
    let mut text = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text))
    };
    read.map_err(|error| CommandError::usage(format!("reading {name}: {error}")))?;
    record.read(&text, since).map_err(|error| {
        CommandError::usage(format!(
            "{name} has no recorded flows as `palisade flows -o json` prints them: {error}"
        ))
    })
}

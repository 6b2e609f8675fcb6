//! Reads recorded flows for the commands that judge them: from files, or from the agent.

use crate::cli::FlowArgs;
use crate::client::ApiClient;
use crate::exit::CommandError;
use palisade_api::{API_VERSION, RecordedFlowList};
use palisade_node::clock::{Clock, SystemClock, rfc3339};
use palisade_preview::Record;
use palisade_text::printable;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

/// Where the agent has its record.
const FLOWS_PATH: &str = "/v1/flows";

/// Reads the record.
pub(crate) fn read(args: &FlowArgs, client: &ApiClient) -> Result<Record, CommandError> {
    let since = match &args.since {
        Some(text) => {
            let age = parse_age(text).ok_or_else(|| {
                CommandError::usage(format!(
                    "--since {text}: not a number with s, m, h or d, as 24h"
                ))
            })?;
            Some(rfc3339(SystemClock.wall().saturating_sub(age)))
        }
        None => None,
    };
    let mut record = Record::default();
    if args.files.is_empty() {
        let query = since.as_ref().map(|since| {
            let since = super::explain::percent_encode(since);
            format!("?since={since}")
        });
        let path = format!("{FLOWS_PATH}{}", query.unwrap_or_default());
        record.add(client.get(&path)?, since.as_deref());
        return Ok(record);
    }
    for path in &args.files {
        for list in read_file(path)? {
            record.add(list, since.as_deref());
        }
    }
    Ok(record)
}

/// The lists of a file, one or several.
fn read_file(path: &Path) -> Result<Vec<RecordedFlowList>, CommandError> {
    let name = printable(&path.display().to_string()).into_owned();
    let mut text = Vec::new();
    let read = if path.as_os_str() == "-" {
        io::stdin().lock().read_to_end(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut text))
    };
    read.map_err(|error| CommandError::usage(format!("reading {name}: {error}")))?;
    let lists = serde_json::Deserializer::from_slice(&text).into_iter::<RecordedFlowList>();
    let lists: Result<Vec<RecordedFlowList>, _> = lists.collect();
    let lists = lists.map_err(|error| {
        CommandError::usage(format!(
            "{name} has no recorded flows as `palisade flows -o json` prints them: {error}"
        ))
    })?;
    let unknown = |list: &&RecordedFlowList| list.api_version != API_VERSION;
    match lists.iter().find(unknown) {
        Some(list) => Err(CommandError::usage(format!(
            "{name}: apiVersion {:?} is not {API_VERSION}",
            list.api_version
        ))),
        None => Ok(lists),
    }
}

/// A time as a number with a unit.
fn parse_age(text: &str) -> Option<Duration> {
    let unit = text.chars().last()?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let number: u64 = text.strip_suffix(unit)?.parse().ok()?;
    number.checked_mul(seconds).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages() {
        let hours = |hours: u64| Some(Duration::from_secs(hours * 3_600));
        for (text, expected) in [
            ("24h", hours(24)),
            ("7d", hours(168)),
            ("90m", Some(Duration::from_secs(5_400))),
            ("5s", Some(Duration::from_secs(5))),
            ("24", None),
            ("h", None),
            ("", None),
            ("-1h", None),
            ("99999999999999999999d", None),
        ] {
            assert_eq!(parse_age(text), expected, "{text}");
        }
    }
}

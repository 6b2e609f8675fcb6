//! Which flow logs are wanted: the file that Cilium's `hubble-flowlogs-config-path` names.
//!
//! Promises: the fields are those of Cilium 1.18; one that is not known, a name or a path that is there twice, and a
//! filter or mask that cannot be used are refused.
//!
//! Never: reads a file.

use crate::field_mask::FieldMask;
use crate::filter::FlowFilters;
use crate::json::read_filter;
use crate::proto::flow::FlowFilter;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// The size of a file at which the next one begins, in MiB, where none is given.
const DEFAULT_MEBIBYTES: u32 = 10;

/// How many former files stay where nothing is given.
const DEFAULT_BACKUPS: u32 = 5;

/// The path that stands for the standard output.
pub(super) const STANDARD_OUTPUT: &str = "stdout";

/// The most flow logs.
const MAX_LOGS: usize = 64;

/// The file.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FlowLogFile {
    #[serde(default)]
    flow_logs: Vec<FlowLogEntry>,
}

/// A log, as the file has it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FlowLogEntry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    file_path: PathBuf,
    #[serde(default)]
    field_mask: Vec<String>,
    #[serde(default)]
    include_filters: Vec<serde_json::Value>,
    #[serde(default)]
    exclude_filters: Vec<serde_json::Value>,
    #[serde(default)]
    file_max_size_mb: u32,
    #[serde(default)]
    file_max_backups: u32,
    #[serde(default)]
    file_compress: bool,
    #[serde(default)]
    end: Option<jiff::Timestamp>,
}

/// A log that is wanted.
pub(super) struct FlowLogDefinition {
    entry: FlowLogEntry,
    /// What of a flow is written; everything if absent.
    pub(super) mask: Option<FieldMask>,
    /// Which flows.
    pub(super) filters: FlowFilters,
}

impl FlowLogDefinition {
    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.entry.name
    }

    /// Where it is written.
    pub(super) fn path(&self) -> &std::path::Path {
        &self.entry.file_path
    }

    /// The size at which the next file begins, in bytes.
    pub(super) fn max_bytes(&self) -> u64 {
        let mebibytes = match self.entry.file_max_size_mb {
            0 => DEFAULT_MEBIBYTES,
            mebibytes => mebibytes,
        };
        u64::from(mebibytes) << 20
    }

    /// How many former files stay.
    pub(super) fn max_backups(&self) -> usize {
        let backups = match self.entry.file_max_backups {
            0 => DEFAULT_BACKUPS,
            backups => backups,
        };
        usize::try_from(backups).unwrap_or(usize::MAX)
    }

    /// Whether former files are compressed.
    pub(super) fn compresses(&self) -> bool {
        self.entry.file_compress
    }

    /// Whether it has ended at this time since the epoch.
    pub(super) fn has_ended(&self, now: Duration) -> bool {
        let end = self.entry.end.map(|end| end.as_millisecond());
        end.is_some_and(|end| u128::try_from(end).unwrap_or_default() <= now.as_millis())
    }

    /// Whether another one means the same.
    pub(super) fn is_same(&self, other: &FlowLogDefinition) -> bool {
        self.entry == other.entry
    }
}

/// Reads the definitions of a file.
///
/// # Errors
/// What of it cannot be used, with the log that has it.
pub(super) fn read_definitions(
    value: &serde_json::Value,
) -> Result<Vec<FlowLogDefinition>, String> {
    let file: FlowLogFile = if value.is_null() {
        FlowLogFile::default()
    } else {
        FlowLogFile::deserialize(value).map_err(|error| error.to_string())?
    };
    if file.flow_logs.len() > MAX_LOGS {
        return Err(format!("there are at most {MAX_LOGS} flow logs"));
    }
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    for entry in &file.flow_logs {
        let failed = |reason: &str| Err(format!("flow log {:?}: {reason}", entry.name));
        if entry.name.is_empty() {
            return failed("it needs a name");
        }
        if !names.insert(entry.name.clone()) {
            return failed("another one has its name");
        }
        let is_standard = entry.file_path.as_os_str() == STANDARD_OUTPUT;
        if !is_standard && !entry.file_path.is_absolute() {
            return failed("filePath is neither an absolute path nor stdout");
        }
        if !paths.insert(entry.file_path.clone()) {
            return failed("another one has its filePath");
        }
    }
    file.flow_logs.into_iter().map(read_definition).collect()
}

fn read_definition(entry: FlowLogEntry) -> Result<FlowLogDefinition, String> {
    let failed = |reason: String| format!("flow log {:?}: {reason}", entry.name);
    let filters = |field: &str, values: &[serde_json::Value]| {
        let read = |(index, value): (usize, &serde_json::Value)| {
            read_filter(value).map_err(|error| failed(format!("{field}[{index}]: {error}")))
        };
        values
            .iter()
            .enumerate()
            .map(read)
            .collect::<Result<Vec<FlowFilter>, String>>()
    };
    let included = filters("includeFilters", &entry.include_filters)?;
    let excluded = filters("excludeFilters", &entry.exclude_filters)?;
    Ok(FlowLogDefinition {
        mask: FieldMask::new(&entry.field_mask).map_err(failed)?,
        filters: FlowFilters::new(&included, &excluded).map_err(failed)?,
        entry,
    })
}

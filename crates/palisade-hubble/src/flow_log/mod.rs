//! Logs of flows: files of JSON lines that `hubble observe --input-file` reads, as Cilium's dynamic exporter writes them.
//!
//! The logs are those of a file that is read again when it changes.
//!
//! Promises: a file of definitions that cannot be used leaves the former logs in force; what cannot be written is counted
//! and told, and tried again; what was missed is a line of its own.
//!
//! Never: holds up who records flows.

mod definition;
mod rotated_file;
#[cfg(test)]
mod tests;

use crate::flow::{FlowMaker, timestamp};
use crate::json::export_json;
use crate::proto::flow::{Flow, LostEvent, LostEventSource};
use crate::proto::observer::ExportEvent;
use crate::proto::observer::export_event::ResponseTypes;
use definition::{FlowLogDefinition, STANDARD_OUTPUT, read_definitions};
use palisade_flows::recent::RecentLine;
use palisade_manifest::Limits;
use rotated_file::{RotatedFile, RotationLimits};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Why flows are not logged as they should be.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FlowLogError {
    /// The file of definitions cannot be read.
    #[error("reading {}, which defines flow logs", path.display())]
    Definitions {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        source: Arc<io::Error>,
    },
    /// The file of definitions has a fault.
    #[error("{} defines flow logs and cannot be used: {reason}; the former definitions stay in force", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// A log cannot be written.
    #[error("writing the flow log {name:?} to {}", path.display())]
    Write {
        /// The name of the log.
        name: String,
        /// Its file.
        path: PathBuf,
        /// What the system answered.
        source: Arc<io::Error>,
    },
    /// A flow has no form in JSON.
    #[error("writing a flow as JSON for the flow log {name:?}")]
    Json {
        /// The name of the log.
        name: String,
        /// Why.
        source: Arc<serde_json::Error>,
    },
}

impl FlowLogError {
    /// One word for it.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            FlowLogError::Definitions { .. } => "DefinitionsNotRead",
            FlowLogError::Invalid { .. } => "DefinitionsInvalid",
            FlowLogError::Write { .. } | FlowLogError::Json { .. } => "NotWritten",
        }
    }
}

/// What others may know of the logs.
#[derive(Clone, Default)]
pub struct FlowLogStatus(Arc<Mutex<StatusState>>);

#[derive(Default)]
struct StatusState {
    error: Option<FlowLogError>,
    /// For each log the lines that were written, and those that were not.
    lines: Vec<(String, [u64; 2])>,
}

impl FlowLogStatus {
    /// What is wrong, if anything is.
    #[must_use]
    pub fn error(&self) -> Option<FlowLogError> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.error.clone()
    }

    /// For each log the lines that were written, and those that were not.
    #[must_use]
    pub fn lines(&self) -> Vec<(String, [u64; 2])> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.clone()
    }

    fn set(&self, error: Option<FlowLogError>, lines: Vec<(String, [u64; 2])>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(error) = &error {
            let is_new = state
                .error
                .as_ref()
                .is_none_or(|known| known.to_string() != error.to_string());
            if is_new {
                let cause = std::error::Error::source(error).map(ToString::to_string);
                tracing::warn!(%error, cause = cause.as_deref(), "flows are not logged as configured");
            }
        }
        *state = StatusState { error, lines };
    }
}

/// Where a log is written.
enum LogOutput {
    File(RotatedFile),
    StandardOutput(io::Stdout),
}

impl LogOutput {
    fn open(definition: &FlowLogDefinition) -> io::Result<Self> {
        if definition.path() == Path::new(STANDARD_OUTPUT) {
            return Ok(LogOutput::StandardOutput(io::stdout()));
        }
        let limits = RotationLimits {
            max_bytes: definition.max_bytes(),
            max_backups: definition.max_backups(),
            compresses: definition.compresses(),
        };
        RotatedFile::open(definition.path(), limits).map(LogOutput::File)
    }

    fn write_line(&mut self, line: &str, now: Duration) -> io::Result<()> {
        match self {
            LogOutput::File(file) => file.write_line(line, now),
            LogOutput::StandardOutput(output) => writeln!(output, "{line}"),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            LogOutput::File(file) => file.flush(),
            LogOutput::StandardOutput(output) => output.flush(),
        }
    }
}

/// A log.
struct FlowLog {
    definition: FlowLogDefinition,
    /// Absent until it could be opened, and after a fault.
    output: Option<LogOutput>,
    error: Option<FlowLogError>,
    written: u64,
    failed: u64,
    /// Of those that were written, how many the kernel does not have yet.
    unflushed: u64,
}

impl FlowLog {
    fn new(definition: FlowLogDefinition) -> Self {
        let mut log = FlowLog {
            definition,
            output: None,
            error: None,
            written: 0,
            failed: 0,
            unflushed: 0,
        };
        log.open();
        log
    }

    /// Opens what is not open.
    fn open(&mut self) {
        if self.output.is_some() {
            return;
        }
        match LogOutput::open(&self.definition) {
            Ok(output) => {
                self.output = Some(output);
                self.error = None;
            }
            Err(error) => self.fail(error),
        }
    }

    /// What is buffered is lost; the file is opened again later.
    fn fail(&mut self, source: io::Error) {
        self.output = None;
        let unflushed = std::mem::take(&mut self.unflushed);
        self.written -= unflushed;
        self.failed += unflushed;
        self.error = Some(FlowLogError::Write {
            name: self.definition.name().to_owned(),
            path: self.definition.path().to_owned(),
            source: Arc::new(source),
        });
    }

    fn write(&mut self, event: &ExportEvent, now: Duration) {
        let line = match export_json(event) {
            Ok(line) => line,
            Err(source) => {
                self.failed += 1;
                self.error = Some(FlowLogError::Json {
                    name: self.definition.name().to_owned(),
                    source: Arc::new(source),
                });
                return;
            }
        };
        let result = self
            .output
            .as_mut()
            .map(|output| output.write_line(&line, now));
        match result {
            Some(Ok(())) => {
                self.written += 1;
                self.unflushed += 1;
            }
            Some(Err(error)) => {
                self.failed += 1;
                self.fail(error);
            }
            None => self.failed += 1,
        }
    }

    fn write_flow(&mut self, line: &RecentLine, flow: &Flow, now: Duration) {
        if self.definition.has_ended(now) || !self.definition.filters.select(flow) {
            return;
        }
        let mut flow = flow.clone();
        let mask = self.definition.mask.as_ref();
        if mask.is_none_or(|mask| mask.has("extensions")) {
            FlowMaker::extend(line, &mut flow);
        }
        let (time, node_name) = (flow.time, flow.node_name.clone());
        if let Some(mask) = mask {
            flow = mask.apply(&flow);
        }
        let event = ExportEvent {
            node_name,
            time,
            response_types: Some(ResponseTypes::Flow(flow)),
        };
        self.write(&event, now);
    }

    fn flush(&mut self) {
        match self.output.as_mut().map(LogOutput::flush) {
            Some(Err(error)) => self.fail(error),
            Some(Ok(())) => self.unflushed = 0,
            None => {}
        }
    }
}

/// The logs that a file defines.
pub(crate) struct FlowLogs {
    path: PathBuf,
    /// What the definitions were read from.
    text: Option<Vec<u8>>,
    error: Option<FlowLogError>,
    logs: Vec<FlowLog>,
    status: FlowLogStatus,
    /// This node, as flows have it.
    node: String,
}

impl FlowLogs {
    /// The logs that a file defines, told about there.
    pub(crate) fn new(path: PathBuf, node: String, status: FlowLogStatus) -> Self {
        FlowLogs {
            path,
            text: None,
            error: None,
            logs: Vec::new(),
            status,
            node,
        }
    }

    /// Reads the definitions if they have changed, and opens what is not open.
    pub(crate) fn reread(&mut self) {
        match std::fs::read(&self.path) {
            Ok(text) if self.text.as_ref() == Some(&text) => {}
            Ok(text) => {
                self.error = self.define(&text).err();
                self.text = Some(text);
            }
            Err(source) => {
                self.text = None;
                self.error = Some(FlowLogError::Definitions {
                    path: self.path.clone(),
                    source: Arc::new(source),
                });
            }
        }
        for log in &mut self.logs {
            log.open();
        }
        self.tell_status();
    }

    fn define(&mut self, text: &[u8]) -> Result<(), FlowLogError> {
        let path = self.path.clone();
        let invalid = |reason| FlowLogError::Invalid {
            path: path.clone(),
            reason,
        };
        let value = parse(&self.path, text).map_err(&invalid)?;
        let mut former = std::mem::take(&mut self.logs);
        let definitions = match read_definitions(&value) {
            Ok(definitions) => definitions,
            Err(reason) => {
                self.logs = former;
                return Err(invalid(reason));
            }
        };
        for definition in definitions {
            let same = former
                .iter()
                .position(|log| log.definition.is_same(&definition));
            let log = match same {
                Some(index) => former.swap_remove(index),
                None => {
                    // Its file may be that of one that ends now.
                    former.iter_mut().for_each(FlowLog::flush);
                    FlowLog::new(definition)
                }
            };
            self.logs.push(log);
        }
        former.iter_mut().for_each(FlowLog::flush);
        Ok(())
    }

    /// Writes the flows of a line.
    pub(crate) fn write(&mut self, line: &RecentLine, flows: &[Flow], now: Duration) {
        for log in &mut self.logs {
            for flow in flows {
                log.write_flow(line, flow, now);
            }
        }
    }

    /// Writes that events were lost.
    pub(crate) fn write_lost(&mut self, source: LostEventSource, count: u64, now: Duration) {
        let event = ExportEvent {
            node_name: self.node.clone(),
            time: Some(timestamp(now)),
            response_types: Some(ResponseTypes::LostEvents(LostEvent {
                source: source as i32,
                num_events_lost: count,
                cpu: None,
            })),
        };
        for log in &mut self.logs {
            if !log.definition.has_ended(now) {
                log.write(&event, now);
            }
        }
    }

    /// Hands over to the kernel what was written.
    pub(crate) fn flush(&mut self) {
        self.logs.iter_mut().for_each(FlowLog::flush);
        self.tell_status();
    }

    fn tell_status(&self) {
        let of_logs = self.logs.iter().find_map(|log| log.error.clone());
        let lines = self.logs.iter().map(|log| {
            let name = log.definition.name().to_owned();
            (name, [log.written, log.failed])
        });
        self.status
            .set(self.error.clone().or(of_logs), lines.collect());
    }
}

/// The value of a file in YAML or JSON.
fn parse(path: &Path, text: &[u8]) -> Result<serde_json::Value, String> {
    let name = path.display().to_string();
    let mut parsed = palisade_manifest::parse(&name, text, &Limits::default());
    if let Some(problem) = parsed.problems.pop() {
        return Err(problem.to_string());
    }
    match (parsed.documents.pop(), parsed.documents.is_empty()) {
        (None, _) => Ok(serde_json::Value::Null),
        (Some(document), true) => Ok(palisade_manifest::to_json(&document.root)),
        (Some(_), false) => Err("it has several documents".to_owned()),
    }
}

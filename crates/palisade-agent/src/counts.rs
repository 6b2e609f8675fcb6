//! The counter journal: the file in which counters survive a restart of the agent.
//!
//! The first line has the schema number, then follows one entry per line. Entries are appended, and
//! from time to time the file is rewritten. Entries survive the end of the process, but not a power
//! failure, which also resets the kernel's counters. The file does not affect enforcement: an
//! unreadable part costs only counters.

use palisade_dataplane::{CounterJournal, JournalEntry};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The schema this build writes.
const SCHEMA: u32 = 2;

#[derive(Serialize, Deserialize)]
struct CountsHeader {
    schema: u32,
}

/// Why the counter journal could not be read.
#[derive(Debug, thiserror::Error)]
pub enum CountsError {
    /// Reading failed.
    #[error("reading {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A line is invalid; the lines before it were read.
    #[error("reading {path}: line {line} is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
        /// The cause.
        source: serde_json::Error,
    },
    /// Another version of Palisade wrote it.
    #[error("reading {path}: schema {found} is not supported (this build reads schema {SCHEMA})")]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

/// The counter journal.
#[derive(Debug)]
pub struct CountsFile {
    path: PathBuf,
    /// The file, open for appending after the first write.
    file: Option<File>,
}

impl CountsFile {
    /// The counter journal of a state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        CountsFile {
            path: state_dir.join("counts.log"),
            file: None,
        }
    }

    /// Reads the entries, with the error that ended reading, if any; no entries if the file does not
    /// exist. An unterminated last line was being written when the process died, and is ignored.
    pub fn read(&self) -> (Vec<JournalEntry>, Option<CountsError>) {
        let path = self.path.clone();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), None),
            Err(source) => return (Vec::new(), Some(CountsError::Io { path, source })),
        };
        let mut entries = Vec::new();
        let complete_length = text
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let lines = text[..complete_length].split(|b| *b == b'\n');
        for (line, text) in (1..).zip(lines).filter(|(_, text)| !text.is_empty()) {
            let read = match line {
                1 => serde_json::from_slice::<CountsHeader>(text).map(|head| head.schema),
                _ => serde_json::from_slice(text).map(|entry| {
                    entries.push(entry);
                    SCHEMA
                }),
            };
            let error = match read {
                Ok(SCHEMA) => continue,
                Ok(found) => CountsError::Schema { path, found },
                Err(source) => CountsError::Damaged { path, line, source },
            };
            return (entries, Some(error));
        }
        (entries, None)
    }
}

fn write_entries(entries: &[JournalEntry], text: &mut Vec<u8>) -> io::Result<()> {
    for entry in entries {
        serde_json::to_writer(&mut *text, entry)?;
        text.push(b'\n');
    }
    Ok(())
}

impl CounterJournal for CountsFile {
    fn append(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        let mut text = Vec::new();
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = File::options();
                let options = options.append(true).create(true).mode(0o640);
                let file = options.open(&self.path)?;
                if file.metadata()?.len() == 0 {
                    serde_json::to_writer(&mut text, &CountsHeader { schema: SCHEMA })?;
                    text.push(b'\n');
                }
                none.insert(file)
            }
        };
        write_entries(entries, &mut text)?;
        file.write_all(&text)
    }

    fn replace(&mut self, entries: &[JournalEntry]) -> io::Result<()> {
        let mut text = serde_json::to_vec(&CountsHeader { schema: SCHEMA })?;
        text.push(b'\n');
        write_entries(entries, &mut text)?;
        self.file = None;
        palisade_sys::atomic_file::write_atomically(&self.path, &text).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_dataplane::JournalAccount;
    use palisade_model::{Direction, PolicyId, RuleOrigin};
    use palisade_tables::Credit;

    fn entries() -> Vec<JournalEntry> {
        let rule = Credit::Rule {
            policy: PolicyId {
                object: crate::workload_store::pod_id("shop", "web"),
                part: 0,
            },
            direction: Direction::Ingress,
            origin: RuleOrigin {
                index: 3,
                name: Some("n".into()),
                fingerprint: u64::MAX,
                line: None,
            },
        };
        vec![
            JournalEntry::Account(0, JournalAccount::Rule(rule)),
            JournalEntry::Account(1, JournalAccount::Reason("spoofed".to_owned())),
            JournalEntry::Place("p_port 00ab".to_owned(), vec![0]),
            JournalEntry::Going("p_port 00ab".to_owned(), vec![0, 1], 1, u64::MAX),
            JournalEntry::Gone,
            JournalEntry::Stayed,
            JournalEntry::Add(0, 1, 2),
            JournalEntry::Told(1, 3, 4),
        ]
    }

    #[test]
    fn what_is_added_is_read_back_and_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = CountsFile::in_state_dir(dir.path());
        assert!(matches!(file.read(), (none, None) if none.is_empty()));
        let mut first = entries();
        let rest = first.split_off(3);
        file.append(&first).unwrap();
        file.append(&rest).unwrap();
        let mut next = CountsFile::in_state_dir(dir.path());
        assert_eq!(next.read().0, entries());
        next.append(&first).unwrap();
        next.replace(&rest).unwrap();
        next.append(&first).unwrap();
        let (found, error) = CountsFile::in_state_dir(dir.path()).read();
        assert_eq!(found, [rest, first].concat());
        assert!(error.is_none());
    }

    #[test]
    fn what_is_damaged_costs_only_what_comes_after() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counts.log");
        let read = |text: &str| {
            palisade_sys::atomic_file::write_atomically(&path, text.as_bytes()).unwrap();
            CountsFile::in_state_dir(dir.path()).read()
        };
        let good = "{\"schema\":2}\n\"gone\"\n";
        let torn = read(&format!("{good}{{\"add\":[0,"));
        assert!(matches!(torn, (found, None) if found == [JournalEntry::Gone]));
        let (found, error) = read(&format!("{good}{{\"add\":[0]}}\n\"gone\"\n"));
        assert_eq!(found, [JournalEntry::Gone]);
        assert!(matches!(error, Some(CountsError::Damaged { line: 3, .. })));
        for text in ["x\n", "{\"schema\":1,\"counts\":[]}\n"] {
            let (found, error) = read(text);
            assert!(found.is_empty() && error.is_some(), "{text}");
        }
    }
}

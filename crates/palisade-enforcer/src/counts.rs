//! The file of the counter journal, in which counters survive a restart of the agent.
//!
//! Its content belongs to [`CounterLedger`]. It is appended to, and from time to time rewritten. It survives
//! the end of the process, but not a power failure, which also resets the kernel's counters. The file does
//! not affect enforcement: an unreadable part costs only counters.

use palisade_dataplane::{CounterJournal, CounterLedger, JournalError};
use palisade_sys::fault;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Why the counter journal could not be read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CountsError {
    /// Reading failed.
    #[error("reading {path}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A part of the content is invalid.
    #[error("reading {path}")]
    Content {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: JournalError,
    },
}

/// The counter journal.
#[derive(Debug)]
pub(crate) struct CountsFile {
    path: PathBuf,
    /// The file, open for appending after the first write.
    file: Option<File>,
}

impl CountsFile {
    /// The counter journal of a state directory.
    pub(crate) fn in_state_dir(state_dir: &Path) -> Self {
        CountsFile {
            path: state_dir.join("counts.log"),
            file: None,
        }
    }

    /// Restores a ledger from the file, which need not exist; the ledger journals to the file from now on.
    ///
    /// # Errors
    /// Why the file was not read to its end; what comes before is restored.
    pub(crate) fn restore(self, ledger: &mut CounterLedger) -> Result<(), CountsError> {
        let path = self.path.clone();
        let (text, failure) = match palisade_sys::plain_file::read(&path) {
            Ok(_) if fault::is_injected("counts-not-restored") => (Vec::new(), None),
            Ok(text) => (text, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
            Err(source) => (Vec::new(), Some(source)),
        };
        let damage = ledger.restore(Box::new(self), &text);
        match (failure, damage) {
            (Some(source), _) => Err(CountsError::Io { path, source }),
            (None, Some(source)) => Err(CountsError::Content { path, source }),
            (None, None) => Ok(()),
        }
    }
}

impl CounterJournal for CountsFile {
    fn append(&mut self, text: &[u8]) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let mut options = File::options();
                let options = options.append(true).create(true).mode(0o640);
                none.insert(palisade_sys::plain_file::open_with(options, &self.path)?)
            }
        };
        file.write_all(text)
    }

    fn replace(&mut self, text: &[u8]) -> io::Result<()> {
        self.file = None;
        palisade_sys::atomic_file::write_atomically(&self.path, text).map_err(io::Error::other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_kept_and_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counts.log");
        let mut file = CountsFile::in_state_dir(dir.path());
        let read = || std::fs::read_to_string(&path).unwrap();
        file.append(b"a\n").unwrap();
        file.append(b"b\n").unwrap();
        assert_eq!(read(), "a\nb\n");
        let mut next = CountsFile::in_state_dir(dir.path());
        next.append(b"c\n").unwrap();
        assert_eq!(read(), "a\nb\nc\n");
        next.replace(b"d\n").unwrap();
        next.append(b"e\n").unwrap();
        assert_eq!(read(), "d\ne\n");
    }

    #[test]
    fn damage_is_an_error_that_names_the_line_and_the_file_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counts.log");
        let restore = || {
            let mut ledger = CounterLedger::default();
            CountsFile::in_state_dir(dir.path()).restore(&mut ledger)
        };
        restore().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"schema\":4}\n");
        palisade_sys::atomic_file::write_atomically(&path, b"{\"schema\":2}\nx\n").unwrap();
        let error = palisade_text::error_chain(&restore().unwrap_err());
        assert!(error.contains("counts.log: line 2 is damaged: "), "{error}");
        restore().unwrap();
    }
}

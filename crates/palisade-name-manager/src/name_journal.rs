//! The file in which known addresses survive the process: lines of JSON, appended to, and rewritten from time to time.
//!
//! It survives the end of the process, but not a power failure, after which no workload has its addresses either.
//! Promises: a line that is damaged costs what it says, and the others are read. Never: holds back an answer.

use palisade_names::{StoredAddress, StoredName};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The name of the file in the state directory.
pub const JOURNAL_FILE: &str = "names.log";
/// The file is rewritten when it has grown by so many bytes, and to twice what it had.
const LEAST_GROWTH: u64 = 1 << 20;

/// The journal of names.
#[derive(Debug)]
pub struct NameJournal {
    path: PathBuf,
    /// Whether nothing is written: in a dry run.
    is_read_only: bool,
    /// The file, open for appending after the first write.
    file: Option<File>,
    /// The bytes that it had when it was written as a whole, and has now.
    sizes: (u64, u64),
    /// Whether the last write failed, which is logged once.
    has_failed: bool,
}

impl NameJournal {
    /// The journal of a state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        NameJournal {
            path: state_dir.join(JOURNAL_FILE),
            is_read_only: false,
            file: None,
            sizes: (0, 0),
            has_failed: false,
        }
    }

    /// The same, which writes nothing.
    pub fn read_only(state_dir: &Path) -> Self {
        NameJournal {
            is_read_only: true,
            ..NameJournal::in_state_dir(state_dir)
        }
    }

    /// What is stored, in the order in which it was; and how many lines are damaged.
    ///
    /// # Errors
    /// If the file exists but cannot be read.
    pub fn read(&self) -> io::Result<(Vec<StoredName>, usize)> {
        let text = match palisade_sys::plain_file::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
            text => text?,
        };
        let (mut names, mut damaged) = (Vec::new(), 0);
        let lines = text.split(|byte| *byte == b'\n');
        for line in lines.filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(name) => names.push(name),
                Err(_) => damaged += 1,
            }
        }
        Ok((names, damaged))
    }

    /// Adds addresses of a name.
    pub fn append(&mut self, name: &StoredName) {
        if self.is_read_only {
            return;
        }
        let written = write_line(&mut self.file, &self.path, name);
        match &written {
            Ok(bytes) => self.sizes.1 += bytes,
            Err(_) => self.file = None,
        }
        self.record(written.map(drop));
    }

    /// Whether it has grown so much that it is to be rewritten.
    pub fn is_overgrown(&self) -> bool {
        let (written, present) = self.sizes;
        present - written.min(present) > written.max(LEAST_GROWTH)
    }

    /// Writes these names in place of everything.
    pub fn replace(&mut self, names: &[StoredName]) {
        if self.is_read_only {
            return;
        }
        self.file = None;
        let mut text = Vec::new();
        let encoded = names.iter().try_for_each(|name| {
            serde_json::to_writer(&mut text, name)?;
            text.push(b'\n');
            Ok(())
        });
        let written = encoded.and_then(|()| {
            palisade_sys::atomic_file::write_atomically(&self.path, &text).map_err(io::Error::other)
        });
        if written.is_ok() {
            self.sizes = (text.len() as u64, text.len() as u64);
        }
        self.record(written);
    }

    fn record(&mut self, written: io::Result<()>) {
        match written {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(%error, "storing the addresses of names failed; a restart would forget them");
                }
            }
        }
    }
}

fn write_line(file: &mut Option<File>, path: &Path, name: &StoredName) -> io::Result<u64> {
    let file = match file {
        Some(file) => file,
        none => {
            let mut options = File::options();
            let options = options.append(true).create(true).mode(0o640);
            none.insert(palisade_sys::plain_file::open_with(options, path)?)
        }
    };
    let mut line = serde_json::to_vec(name)?;
    line.push(b'\n');
    file.write_all(&line)?;
    Ok(line.len() as u64)
}

/// The line of an answer.
pub(crate) fn stored_answer(
    name: &palisade_model::DomainName,
    workload: &palisade_model::EndpointId,
    addresses: impl Iterator<Item = (std::net::IpAddr, u64)>,
) -> StoredName {
    StoredName {
        name: name.clone(),
        addresses: addresses
            .map(|(address, expires)| StoredAddress {
                address,
                workload: workload.clone(),
                expires,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, expires: u64) -> StoredName {
        let workload = palisade_model::EndpointId {
            namespace: Some("n".into()),
            name: "w".into(),
            kind: palisade_model::ObjectKind::new("", "Pod"),
        };
        let address = "192.0.2.1".parse().unwrap();
        stored_answer(
            &text.parse().unwrap(),
            &workload,
            [(address, expires)].into_iter(),
        )
    }

    #[test]
    fn what_is_added_is_read_and_can_be_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = NameJournal::in_state_dir(dir.path());
        assert_eq!(journal.read().unwrap(), (vec![], 0));
        journal.append(&name("a.example", 1));
        journal.append(&name("b.example", 2));
        let next = NameJournal::in_state_dir(dir.path());
        let both = vec![name("a.example", 1), name("b.example", 2)];
        assert_eq!(next.read().unwrap(), (both, 0));
        journal.replace(&[name("c.example", 3)]);
        journal.append(&name("d.example", 4));
        let both = vec![name("c.example", 3), name("d.example", 4)];
        assert_eq!(next.read().unwrap(), (both, 0));
        assert!(!journal.is_overgrown());
    }

    #[test]
    fn a_damaged_line_costs_itself_alone() {
        let dir = tempfile::tempdir().unwrap();
        let mut journal = NameJournal::in_state_dir(dir.path());
        let path = dir.path().join(JOURNAL_FILE);
        palisade_sys::atomic_file::write_atomically(&path, b"{\"name\":\"a\n").unwrap();
        journal.append(&name("b.example", 2));
        assert_eq!(journal.read().unwrap(), (vec![name("b.example", 2)], 1));
    }

    #[test]
    fn a_dry_run_stores_nothing() {
        let dir = tempfile::tempdir().unwrap();
        NameJournal::in_state_dir(dir.path()).append(&name("a.example", 1));
        let mut journal = NameJournal::read_only(dir.path());
        journal.append(&name("b.example", 2));
        journal.replace(&[]);
        assert_eq!(journal.read().unwrap(), (vec![name("a.example", 1)], 0));
    }
}

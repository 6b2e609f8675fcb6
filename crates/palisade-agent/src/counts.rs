//! Counts of rules whose kernel objects are gone, kept over restarts.
//!
//! What is still counted in the kernel is read from there after a restart; what an edit took out of
//! it would be forgotten. The file is written whole, carries a schema number, and is worth nothing
//! for enforcement: one that cannot be read costs the counts in it and nothing else.

use palisade_dataplane::{Count, Harvested};
use palisade_tables::Credit;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// The schema this build writes.
const SCHEMA: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    schema: u32,
    counts: Vec<Kept>,
}

#[derive(Serialize, Deserialize)]
struct Kept {
    credit: Credit,
    packets: u64,
    bytes: u64,
}

/// Why the counts could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CountsError {
    /// Reading or writing failed.
    #[error("{doing} {path}")]
    Io {
        /// `reading` or `writing`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The content makes no sense.
    #[error("reading {path}: it is damaged")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: serde_json::Error,
    },
    /// Another version of Palisade wrote it.
    #[error("reading {path}: schema {found}, but this build knows {SCHEMA}")]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

/// The file of counts, and what it holds as far as this process knows.
#[derive(Debug)]
pub struct CountsFile {
    path: PathBuf,
    saved: Harvested,
}

impl CountsFile {
    /// The counts kept in a state directory.
    pub fn within(state_dir: &Path) -> Self {
        CountsFile {
            path: state_dir.join("counts.json"),
            saved: Harvested::new(),
        }
    }

    /// Reads them; none where there is no file yet.
    ///
    /// # Errors
    /// If the file is there but cannot be read, is damaged, or is of another schema.
    pub fn read(&mut self) -> Result<Harvested, CountsError> {
        let path = self.path.clone();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Harvested::new()),
            Err(source) => {
                let doing = "reading";
                return Err(CountsError::Io {
                    doing,
                    path,
                    source,
                });
            }
        };
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let damaged = |source| CountsError::Damaged {
            path: path.clone(),
            source,
        };
        let found = serde_json::from_slice::<Head>(&text)
            .map_err(damaged)?
            .schema;
        if found != SCHEMA {
            return Err(CountsError::Schema { path, found });
        }
        let file: File = serde_json::from_slice(&text).map_err(damaged)?;
        let kept = file.counts.into_iter().map(|kept| {
            let (packets, bytes) = (kept.packets, kept.bytes);
            (kept.credit, Count { packets, bytes })
        });
        self.saved = kept.collect();
        Ok(self.saved.clone())
    }

    /// Writes them, unless the file holds the very same.
    ///
    /// # Errors
    /// If the file cannot be written; the old one is then still whole.
    pub fn save(&mut self, counts: Harvested) -> Result<(), CountsError> {
        if counts == self.saved {
            return Ok(());
        }
        let kept = counts.iter().map(|(credit, count)| Kept {
            credit: credit.clone(),
            packets: count.packets,
            bytes: count.bytes,
        });
        let file = File {
            schema: SCHEMA,
            counts: kept.collect(),
        };
        let error = |source| CountsError::Io {
            doing: "writing",
            path: self.path.clone(),
            source,
        };
        let text = serde_json::to_vec(&file).map_err(|e| error(e.into()))?;
        palisade_sys::atomic_file::write_atomically(&self.path, &text)
            .map_err(|e| error(io::Error::other(e)))?;
        self.saved = counts;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_model::{Direction, PolicyId, RuleOrigin};

    fn counts() -> Harvested {
        let rule = Credit::Rule {
            policy: PolicyId {
                object: crate::record::pod_id("shop", "web"),
                part: 0,
            },
            direction: Direction::Ingress,
            origin: RuleOrigin {
                index: 3,
                name: Some("n".into()),
                fingerprint: 0,
                line: None,
            },
        };
        let missing = Credit::MissingProfile {
            profile: "p".into(),
            direction: Direction::Egress,
        };
        let count = |packets| Count {
            packets,
            bytes: u64::MAX,
        };
        [(rule, count(1)), (missing, count(2))].into()
    }

    #[test]
    fn what_is_saved_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut file = CountsFile::within(dir.path());
        assert_eq!(file.read().unwrap(), Harvested::new());
        file.save(counts()).unwrap();
        assert_eq!(CountsFile::within(dir.path()).read().unwrap(), counts());
    }

    #[test]
    fn what_is_no_such_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("counts.json");
        let read = |text: &str| {
            palisade_sys::atomic_file::write_atomically(&path, text.as_bytes()).unwrap();
            CountsFile::within(dir.path()).read()
        };
        let cases = [
            "",
            "{\"schema\": 1}",
            "[]",
            "{\"schema\": 1, \"counts\": [{}]}",
        ];
        for damaged in cases {
            assert!(
                matches!(read(damaged), Err(CountsError::Damaged { .. })),
                "{damaged}"
            );
        }
        let other = read("{\"schema\": 2, \"counts\": 7}");
        assert!(matches!(other, Err(CountsError::Schema { found: 2, .. })));
    }
}

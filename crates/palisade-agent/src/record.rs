//! What the agent remembers of an attached workload, and the file it remembers it in.
//!
//! The file carries a schema number; one of a newer schema is refused, so that a downgrade loses
//! nothing. It is written whole by temporary file, fsync and rename.

use palisade_model::{EndpointId, NamedPort, ObjectId, Str};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The schema this build writes.
const SCHEMA: u32 = 1;

/// An attached network namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// Its Kubernetes namespace.
    pub namespace: Str,
    /// Its name.
    pub name: Str,
    /// The network namespace, as it was given: a name under `/run/netns`, or a path.
    pub netns: String,
    /// The interface inside it.
    pub inside: String,
    /// The host-side interface.
    pub interface: Str,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Labels that were given; `None`: those of the Pod of its name.
    pub labels: Option<BTreeMap<Str, Str>>,
    /// Named ports that were given; empty: those of the Pod of its name.
    pub ports: Vec<NamedPort>,
    /// When it was attached, in seconds since 1970.
    pub created: u64,
    /// Whether attaching it has not ended yet. One that a crash left so is cleared away: whoever
    /// asked for it had no answer.
    #[serde(default)]
    pub pending: bool,
}

impl Record {
    /// The endpoint it stands for: the Pod of its name.
    pub fn id(&self) -> EndpointId {
        pod_id(&self.namespace, &self.name)
    }
}

/// The id of the Pod of a name.
pub fn pod_id(namespace: &str, name: &str) -> EndpointId {
    ObjectId {
        namespace: Some(namespace.into()),
        name: name.into(),
        group: "".into(),
        kind: "Pod".into(),
    }
}

#[derive(Serialize, Deserialize)]
struct File {
    schema: u32,
    workloads: Vec<Record>,
}

/// Why the records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
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
    #[error("reading {path}: it is damaged; move it away to start without attached workloads")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What went wrong.
        source: serde_json::Error,
    },
    /// A newer Palisade wrote it.
    #[error(
        "reading {path}: schema {found} is newer than {SCHEMA}, which this build knows; \
         enforcement in the kernel stays as it is; start the newer version again"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

/// The file of records.
#[derive(Clone, Debug)]
pub struct Records {
    path: PathBuf,
}

impl Records {
    /// The records kept in a state directory.
    pub fn within(state_dir: &Path) -> Self {
        Records {
            path: state_dir.join("workloads.json"),
        }
    }

    /// Reads them; none where there is no file yet.
    ///
    /// # Errors
    /// If the file is there but cannot be read, is damaged, or was written by a newer version.
    pub fn read(&self) -> Result<Vec<Record>, RecordError> {
        let path = self.path.clone();
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(RecordError::Io {
                    doing: "reading",
                    path,
                    source,
                });
            }
        };
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
        }
        let head: Result<Head, _> = serde_json::from_slice(&text);
        match head {
            Ok(head) if head.schema > SCHEMA => Err(RecordError::Newer {
                path,
                found: head.schema,
            }),
            Ok(_) => serde_json::from_slice::<File>(&text)
                .map(|file| file.workloads)
                .map_err(|source| RecordError::Damaged { path, source }),
            Err(source) => Err(RecordError::Damaged { path, source }),
        }
    }

    /// Writes them.
    ///
    /// # Errors
    /// If the file cannot be written; the old one is then still whole.
    pub fn write<'a>(&self, records: impl Iterator<Item = &'a Record>) -> Result<(), RecordError> {
        let file = File {
            schema: SCHEMA,
            workloads: records.cloned().collect(),
        };
        let error = |source| RecordError::Io {
            doing: "writing",
            path: self.path.clone(),
            source,
        };
        let text = serde_json::to_vec_pretty(&file).map_err(|e| error(e.into()))?;
        palisade_sys::atomic_file::write_atomically(&self.path, &text)
            .map_err(|e| error(io::Error::other(e)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            namespace: "shop".into(),
            name: "web".into(),
            netns: "web".to_owned(),
            inside: "eth0".to_owned(),
            interface: "pal0".into(),
            addresses: vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()],
            labels: Some(BTreeMap::from([("app".into(), "web".into())])),
            ports: Vec::new(),
            created: 7,
            pending: false,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::within(dir.path());
        assert_eq!(records.read().unwrap(), []);
        records.write([record()].iter()).unwrap();
        assert_eq!(records.read().unwrap(), [record()]);
    }

    #[test]
    fn damage_and_newer_schemas_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::within(dir.path());
        let put = |text: &str| {
            palisade_sys::atomic_file::write_atomically(
                &dir.path().join("workloads.json"),
                text.as_bytes(),
            )
            .unwrap()
        };
        put("{\"schema\": 1, \"workl");
        assert!(matches!(records.read(), Err(RecordError::Damaged { .. })));
        put("{\"schema\": 2, \"other\": 1}");
        assert!(matches!(
            records.read(),
            Err(RecordError::Newer { found: 2, .. })
        ));
    }
}

//! The record of an attached workload, and the file that stores the records.
//!
//! The file has a schema number. A file of an older schema is read, and is written in the newest schema
//! with the next change; one of a newer schema is rejected, so that a downgrade loses nothing. It is
//! replaced atomically by temporary file, fsync and rename.

use palisade_api::CniAttachment;
use palisade_model::{EndpointId, NamedPort, ObjectId, ObjectKind, Str};
use palisade_sys::netns::NetNs;
use palisade_sys::plain_file::FileError;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The schema this build writes. Schema 1 had no containers, MTUs, masquerading or chained interfaces.
const SCHEMA: u32 = 2;

/// The record of an attached network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRecord {
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
    /// Its own labels; `None`: those of the Pod of the same name.
    pub labels: Option<BTreeMap<Str, Str>>,
    /// Its own named ports; empty: those of the Pod of the same name.
    pub ports: Vec<NamedPort>,
    /// When it was attached, in seconds since 1970.
    pub created: u64,
    /// Whether the attach is not complete. A pending workload is removed after a crash, because its
    /// caller got no response.
    #[serde(default)]
    pub pending: bool,
    /// The container, if a runtime attached it; `None`: attached by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// Its MTU, in bytes; `None` (schema 1): the configured MTU of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Whether its traffic to external networks is masqueraded; `None`: as configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub masquerade: Option<bool>,
    /// Whether another plugin created the interface and deletes it; the agent then only applies policy.
    #[serde(default)]
    pub chained: bool,
    /// The index of the host-side interface; `None` in records of older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The namespace it was attached from, whatever `netns` refers to now; `None` in records of older
    /// agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns_identity: Option<NetnsIdentity>,
    /// The uid of the user who attached it, unless that was root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
}

/// The identity of a network namespace: constant, and unique among the existing namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NetnsIdentity {
    /// The device of the nsfs file system.
    pub device: u64,
    /// The inode of the namespace.
    pub inode: u64,
}

impl NetnsIdentity {
    /// The identity of an open namespace.
    pub fn of(netns: &NetNs) -> Self {
        let id = netns.id();
        NetnsIdentity {
            device: id.dev,
            inode: id.ino,
        }
    }
}

/// An interface that lost its workload, and stays closed until it is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosedInterface {
    /// Its name.
    pub interface: Str,
    /// Its index.
    pub index: u32,
}

/// The CNI identity of an attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// The container id.
    pub id: String,
    /// The name of the CNI network.
    pub network: String,
    /// The pod's UID, if the runtime passed it: a Pod of the same name with another UID is not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Whether it is the sandbox of a pod, so that it waits for its Pod's labels.
    #[serde(default)]
    pub pod: bool,
}

impl WorkloadRecord {
    /// The endpoint id, which is that of the Pod of the same name.
    pub fn id(&self) -> EndpointId {
        pod_id(&self.namespace, &self.name)
    }

    /// The CNI attachment, if a runtime attached it.
    pub fn attachment(&self) -> Option<CniAttachment> {
        let container = self.container.as_ref()?;
        Some(CniAttachment {
            container: container.id.clone(),
            network: container.network.clone(),
            interface: self.inside.clone(),
        })
    }

    /// Whether it stays closed until its Pod is known: true for containers, and for workloads of
    /// unprivileged users.
    pub fn needs_pod(&self) -> bool {
        let is_pod = self.container.as_ref().is_some_and(|c| c.pod);
        self.labels.is_none() && (is_pod || self.owner.is_some())
    }
}

/// The id of the Pod with this name.
pub fn pod_id(namespace: &str, name: &str) -> EndpointId {
    ObjectId {
        namespace: Some(namespace.into()),
        name: name.into(),
        kind: ObjectKind::new("", "Pod"),
    }
}

#[derive(Serialize, Deserialize)]
struct WorkloadFile {
    schema: u32,
    workloads: Vec<WorkloadRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    closed: Vec<ClosedInterface>,
}

/// The content of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredWorkloads {
    /// The records.
    pub records: Vec<WorkloadRecord>,
    /// The closed interfaces.
    pub closed: Vec<ClosedInterface>,
    /// Whether the file does not exist: nothing was saved yet, or it was lost.
    pub is_absent: bool,
    /// Whether the file has an older schema.
    pub is_older: bool,
}

/// Why the records could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadStoreError {
    /// Reading or writing failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content is invalid.
    #[error(
        "reading {path}: the file is damaged; move it away to start without attached workloads"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// A newer version of Palisade wrote the file.
    #[error(
        "reading {path}: schema {found} is newer than schema {SCHEMA} of this build; \
         enforcement in the kernel stays as it is; start the newer version again"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
}

/// The store of workload records.
#[derive(Clone, Debug)]
pub struct WorkloadStore {
    path: PathBuf,
    read_only: bool,
}

impl WorkloadStore {
    /// The store of a state directory.
    pub fn in_state_dir(state_dir: &Path) -> Self {
        WorkloadStore {
            path: state_dir.join("workloads.json"),
            read_only: false,
        }
    }

    /// The same store, which discards writes.
    pub fn read_only(state_dir: &Path) -> Self {
        WorkloadStore {
            read_only: true,
            ..WorkloadStore::in_state_dir(state_dir)
        }
    }

    /// Reads the records; none if the file does not exist.
    ///
    /// # Errors
    /// If the file exists but cannot be read, is damaged, or was written by a newer version.
    pub fn read(&self) -> Result<StoredWorkloads, WorkloadStoreError> {
        let path = self.path.clone();
        let text = match palisade_sys::plain_file::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(StoredWorkloads {
                    is_absent: true,
                    ..StoredWorkloads::default()
                });
            }
            Err(source) => return Err(FileError::of("reading", &path)(source).into()),
        };
        #[derive(Deserialize)]
        struct SchemaHeader {
            schema: u32,
        }
        let head: Result<SchemaHeader, _> = serde_json::from_slice(&text);
        match head {
            Ok(head) if head.schema > SCHEMA => Err(WorkloadStoreError::Newer {
                path,
                found: head.schema,
            }),
            Ok(_) => serde_json::from_slice::<WorkloadFile>(&text)
                .map(|file| StoredWorkloads {
                    is_older: file.schema < SCHEMA,
                    records: file.workloads,
                    closed: file.closed,
                    is_absent: false,
                })
                .map_err(|source| WorkloadStoreError::Damaged { path, source }),
            Err(source) => Err(WorkloadStoreError::Damaged { path, source }),
        }
    }

    /// Writes the records and the closed interfaces.
    ///
    /// # Errors
    /// If the file cannot be written; the former file is then intact.
    pub fn write<'a>(
        &self,
        records: impl IntoIterator<Item = &'a WorkloadRecord>,
        closed: impl IntoIterator<Item = &'a ClosedInterface>,
    ) -> Result<(), WorkloadStoreError> {
        if self.read_only {
            return Ok(());
        }
        let file = WorkloadFile {
            schema: SCHEMA,
            workloads: records.into_iter().cloned().collect(),
            closed: closed.into_iter().cloned().collect(),
        };
        let error = FileError::of("writing", &self.path);
        let text = serde_json::to_vec_pretty(&file).map_err(|e| error(e.into()))?;
        palisade_sys::atomic_file::write_atomically(&self.path, &text)
            .map_err(|e| error(io::Error::other(e)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> WorkloadRecord {
        WorkloadRecord {
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
            container: Some(Container {
                id: "c0".to_owned(),
                network: "pods".to_owned(),
                uid: Some("u0".to_owned()),
                pod: true,
            }),
            mtu: Some(1400),
            masquerade: Some(true),
            chained: false,
            index: Some(9),
            netns_identity: Some(NetnsIdentity {
                device: 4,
                inode: 4_026_532_008,
            }),
            owner: Some(1000),
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let records = WorkloadStore::in_state_dir(dir.path());
        let nothing = records.read().unwrap();
        assert!(nothing.is_absent && nothing.records.is_empty());
        let closed = ClosedInterface {
            interface: "veth0".into(),
            index: 7,
        };
        records.write([&record()], [&closed]).unwrap();
        let found = records.read().unwrap();
        assert_eq!(
            (found.records, found.closed),
            (vec![record()], vec![closed])
        );
        assert!(!found.is_absent);
    }

    #[test]
    fn damage_and_newer_schemas_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let records = WorkloadStore::in_state_dir(dir.path());
        let put = |text: &str| {
            palisade_sys::atomic_file::write_atomically(
                &dir.path().join("workloads.json"),
                text.as_bytes(),
            )
            .unwrap()
        };
        put("{\"schema\": 1, \"workl");
        assert!(matches!(
            records.read(),
            Err(WorkloadStoreError::Damaged { .. })
        ));
        put("{\"schema\": 3, \"other\": 1}");
        assert!(matches!(
            records.read(),
            Err(WorkloadStoreError::Newer { found: 3, .. })
        ));
    }

    #[test]
    fn the_first_schema_is_read_and_becomes_the_newest() {
        let dir = tempfile::tempdir().unwrap();
        let records = WorkloadStore::in_state_dir(dir.path());
        let path = dir.path().join("workloads.json");
        let text = r#"{"schema": 1, "workloads": [{
            "namespace": "shop", "name": "web", "netns": "web", "inside": "eth0",
            "interface": "pal0", "addresses": ["10.0.0.2", "fd00::2"],
            "labels": {"app": "web"}, "ports": [], "created": 7, "pending": false}]}"#;
        palisade_sys::atomic_file::write_atomically(&path, text.as_bytes()).unwrap();
        let old = WorkloadRecord {
            container: None,
            mtu: None,
            masquerade: None,
            index: None,
            netns_identity: None,
            owner: None,
            ..record()
        };
        let found = records.read().unwrap();
        assert_eq!(
            (&*found.records, found.is_older),
            (&[old.clone()][..], true)
        );
        records.write([&old], []).unwrap();
        let found = records.read().unwrap();
        assert_eq!((&*found.records, found.is_older), (&[old][..], false));
        let text = std::fs::read_to_string(path).unwrap();
        assert!(text.contains("\"schema\": 2"), "{text}");
    }
}

//! Makes a set of objects the pushed ones: all of them come into force together, or none does.
//!
//! Few changes are one transaction in the bundle that counts. Many are written as a new bundle, which
//! nobody reads until the last transaction names it in the pointer. Both compare the revision of the pointer,
//! so of two pushes at the same time one fails and changes nothing. Bundles that do not count are removed
//! afterwards, as far as they existed when the push counted: never those that another push is writing.
//!
//! Never: writes or deletes an object that was not pushed.

use crate::client::EtcdClient;
use crate::error::EtcdError;
use crate::key_layout::{BundlePointer, KeyLayout, path_of};
use crate::messages::{
    COMPARE_MOD_REVISION, Compare, CompareTarget, DeleteRangeRequest, KeyValue, PutRequest,
    RangeRequest, RequestOp, RequestOperation, TxnRequest,
};
use crate::options::EtcdOptions;
use crate::push_plan::{PathValues, PushObject, PushPlan, split};
use crate::reader::{ReadPoint, prefix_end, read_point, read_prefix};
use rand::Rng;
use thiserror::Error;

/// Whether a push writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushMode {
    /// It writes.
    Write,
    /// It only says what it would change.
    DryRun,
}

/// What a push did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushOutcome {
    /// What changed.
    pub plan: PushPlan,
    /// The revision of etcd at which the objects were read back, or compared.
    pub revision: i64,
    /// Old bundles that could not be removed; the next push tries it again.
    pub leftover: Option<String>,
}

/// Why a push failed.
#[derive(Debug, Error)]
pub enum PushError {
    /// A request failed. Nothing of the push is in force, unless the request was the last one.
    #[error("{doing}")]
    Request {
        /// What the push was doing.
        doing: &'static str,
        /// Why.
        source: EtcdError,
    },
    /// Another push came first.
    #[error("another push came first: nothing of this one is in force")]
    Conflict,
    /// What was read back is not what was written.
    #[error("the objects that were read back at revision {revision} differ from the folder in {}", .paths.join(", "))]
    Different {
        /// The revision.
        revision: i64,
        /// The first keys that differ.
        paths: Vec<String>,
    },
    /// The client could not start.
    #[error("starting the client of etcd")]
    Start(#[source] std::io::Error),
}

/// Makes these objects the pushed ones, and reads them back.
///
/// # Errors
/// If etcd cannot be reached, refuses, or another push came first.
pub fn push(
    options: &EtcdOptions,
    objects: &[PushObject],
    mode: PushMode,
) -> Result<PushOutcome, PushError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(PushError::Start)?;
    let layout = KeyLayout::new(&options.prefix);
    let mut pusher = Pusher {
        client: EtcdClient::new(options.clone()),
        layout,
    };
    let pair = |object: &PushObject| (path_of(&object.id), object.manifest.as_bytes().to_vec());
    let wanted = objects.iter().map(pair).collect();
    runtime.block_on(pusher.push(&wanted, mode))
}

struct Pusher {
    client: EtcdClient,
    layout: KeyLayout,
}

impl Pusher {
    async fn push(
        &mut self,
        wanted: &PathValues,
        mode: PushMode,
    ) -> Result<PushOutcome, PushError> {
        let failed = |source| PushError::Request {
            doing: "reading the objects that were pushed before",
            source,
        };
        let point = read_point(&mut self.client, &self.layout).await;
        let point = point.map_err(failed)?;
        let present = match &point.pointer {
            Some(pointer) => self.read(&pointer.bundle, point.revision).await,
            None => Ok(PathValues::new()),
        };
        let present = present.map_err(failed)?;
        let plan = PushPlan::new(&present, wanted);
        if plan.is_empty() || mode == PushMode::DryRun {
            return Ok(PushOutcome {
                plan,
                revision: point.revision,
                leftover: None,
            });
        }
        let pushes = point.pointer.as_ref().map_or(0, |pointer| pointer.pushes) + 1;
        let (bundle, revision) = match &point.pointer {
            Some(pointer) if plan.fits_one_transaction(wanted) => {
                let bundle = pointer.bundle.clone();
                let next = BundlePointer::new(&bundle, pushes, wanted.len());
                let operations = self.operations(&bundle, &plan, wanted);
                let revision = self.switch(&point, &next, operations).await?;
                (bundle, revision)
            }
            _ => {
                let bundle = format!("{:016x}", rand::rng().random::<u64>());
                let next = BundlePointer::new(&bundle, pushes, wanted.len());
                let switched = self.write_bundle(&point, &next, wanted).await;
                if switched.is_err() {
                    // Nobody reads it; what cannot be removed now is removed by the next push.
                    let _ = self.remove_bundle(&bundle).await;
                }
                (bundle, switched?)
            }
        };
        self.verify(&bundle, revision, wanted).await?;
        let leftover = self.remove_others(&bundle, revision).await.err();
        Ok(PushOutcome {
            plan,
            revision,
            leftover: leftover.map(|error| error.to_string()),
        })
    }

    /// The objects of a bundle by path.
    async fn read(&mut self, bundle: &str, revision: i64) -> Result<PathValues, EtcdError> {
        let prefix = self.layout.bundle(bundle);
        let mut values = PathValues::new();
        let take = |page: Vec<KeyValue>| {
            for kv in page {
                let key = String::from_utf8_lossy(&kv.key);
                let path = key.get(prefix.len()..).unwrap_or_default();
                values.insert(path.to_owned(), kv.value);
            }
        };
        read_prefix(&mut self.client, &prefix, revision, take).await?;
        Ok(values)
    }

    /// The operations of a plan in a bundle.
    fn operations(
        &self,
        bundle: &str,
        plan: &PushPlan,
        wanted: &PathValues,
    ) -> Vec<RequestOperation> {
        let prefix = self.layout.bundle(bundle);
        let puts = plan.written().filter_map(|path| {
            let value = wanted.get(path)?;
            Some(put(format!("{prefix}{path}"), value.clone()))
        });
        let deletes = plan.deleted.iter().map(|path| {
            RequestOperation::DeleteRange(DeleteRangeRequest {
                key: format!("{prefix}{path}").into_bytes(),
                range_end: Vec::new(),
            })
        });
        puts.chain(deletes).collect()
    }

    /// Writes a bundle and makes it count; returns the revision.
    async fn write_bundle(
        &mut self,
        point: &ReadPoint,
        next: &BundlePointer,
        wanted: &PathValues,
    ) -> Result<i64, PushError> {
        let prefix = self.layout.bundle(&next.bundle);
        for part in split(wanted) {
            let puts = part
                .into_iter()
                .map(|(path, value)| put(format!("{prefix}{path}"), value.clone()));
            let request = TxnRequest {
                compare: Vec::new(),
                success: puts.map(operation).collect(),
            };
            let written = self.client.txn("writing objects", request).await;
            written.map_err(|source| PushError::Request {
                doing: "writing the objects; nothing of this push is in force",
                source,
            })?;
        }
        self.switch(point, next, Vec::new()).await
    }

    /// Performs operations and writes the pointer, if that is still as it was; returns the revision.
    async fn switch(
        &mut self,
        point: &ReadPoint,
        next: &BundlePointer,
        mut operations: Vec<RequestOperation>,
    ) -> Result<i64, PushError> {
        let failed = |source| PushError::Request {
            doing: "bringing the push into force; run it again to see whether it is",
            source,
        };
        let pointer = self.layout.pointer();
        let text = serde_json::to_vec(next).map_err(|error| {
            failed(EtcdError::Pointer {
                key: pointer.clone(),
                reason: error.to_string(),
            })
        })?;
        operations.push(put(pointer.clone(), text));
        let request = TxnRequest {
            compare: vec![Compare {
                target: COMPARE_MOD_REVISION,
                key: pointer.into_bytes(),
                value: Some(CompareTarget::ModRevision(point.pointer_revision)),
            }],
            success: operations.into_iter().map(operation).collect(),
        };
        let answer = self.client.txn("the last transaction", request).await;
        let answer = answer.map_err(failed)?;
        if answer.succeeded {
            Ok(answer.header.map_or(0, |header| header.revision))
        } else {
            Err(PushError::Conflict)
        }
    }

    /// Reads back what counts since a revision.
    async fn verify(
        &mut self,
        bundle: &str,
        revision: i64,
        wanted: &PathValues,
    ) -> Result<(), PushError> {
        let read = self.read(bundle, revision).await;
        let read = read.map_err(|source| PushError::Request {
            doing: "reading the objects back; the push is in force",
            source,
        })?;
        let different = PushPlan::new(&read, wanted);
        let paths = different.written().chain(&different.deleted);
        let paths: Vec<String> = paths.take(10).cloned().collect();
        if paths.is_empty() {
            Ok(())
        } else {
            Err(PushError::Different { revision, paths })
        }
    }

    /// Removes the other bundles that existed at a revision.
    async fn remove_others(&mut self, counting: &str, revision: i64) -> Result<(), EtcdError> {
        let all = self.layout.bundles();
        let mut from = all.clone().into_bytes();
        loop {
            let request = RangeRequest {
                key: from,
                range_end: prefix_end(&all),
                limit: 1,
                revision,
                keys_only: true,
            };
            let answer = self.client.range("reading old pushes", request).await?;
            let Some(kv) = answer.kvs.first() else {
                return Ok(());
            };
            let key = String::from_utf8_lossy(&kv.key);
            let below = key.get(all.len()..).unwrap_or_default();
            let bundle = below.split('/').next().unwrap_or_default().to_owned();
            from = prefix_end(&self.layout.bundle(&bundle));
            if bundle != counting {
                self.remove_bundle(&bundle).await?;
            }
        }
    }

    async fn remove_bundle(&mut self, bundle: &str) -> Result<(), EtcdError> {
        let prefix = self.layout.bundle(bundle);
        let all = RequestOperation::DeleteRange(DeleteRangeRequest {
            range_end: prefix_end(&prefix),
            key: prefix.into_bytes(),
        });
        let request = TxnRequest {
            compare: Vec::new(),
            success: vec![operation(all)],
        };
        let removed = self.client.txn("removing an old push", request).await;
        removed.map(drop)
    }
}

fn put(key: String, value: Vec<u8>) -> RequestOperation {
    RequestOperation::Put(PutRequest {
        key: key.into_bytes(),
        value,
    })
}

fn operation(request: RequestOperation) -> RequestOp {
    RequestOp {
        request: Some(request),
    }
}

//! Reads keys of a prefix by pages, all at one revision.

use crate::client::EtcdClient;
use crate::error::EtcdError;
use crate::key_layout::{BundlePointer, KeyLayout};
use crate::messages::{KeyValue, RangeRequest};

/// The number of keys of a page.
const PAGE: i64 = 500;

/// The present revision, and what the pointer says there.
#[derive(Clone, Debug)]
pub(crate) struct ReadPoint {
    /// The revision.
    pub(crate) revision: i64,
    /// What identifies the etcd: another one has other revisions.
    pub(crate) cluster: u64,
    /// The pointer, if anything was pushed.
    pub(crate) pointer: Option<BundlePointer>,
    /// The revision at which the pointer was written; 0 if there is none.
    pub(crate) pointer_revision: i64,
}

/// Reads the pointer at the present revision.
pub(crate) async fn read_point(
    client: &mut EtcdClient,
    layout: &KeyLayout,
) -> Result<ReadPoint, EtcdError> {
    let request = RangeRequest {
        key: layout.pointer().into_bytes(),
        ..RangeRequest::default()
    };
    let answer = client.range("reading which push counts", request).await?;
    let header = answer.header.unwrap_or_default();
    let key = answer.kvs.first();
    Ok(ReadPoint {
        revision: header.revision,
        cluster: header.cluster_id,
        pointer: key
            .map(|key| layout.parse_pointer(&key.value))
            .transpose()?,
        pointer_revision: key.map_or(0, |key| key.mod_revision),
    })
}

/// Whether etcd keeps a revision, and so those that follow it. A watch from one that it does not keep begins
/// well, and is ended a moment later.
pub(crate) async fn is_kept(
    client: &mut EtcdClient,
    layout: &KeyLayout,
    revision: i64,
) -> Result<bool, EtcdError> {
    let request = RangeRequest {
        key: layout.pointer().into_bytes(),
        revision,
        keys_only: true,
        ..RangeRequest::default()
    };
    match client.range("reading a former revision", request).await {
        Ok(_) => Ok(true),
        Err(EtcdError::Compacted(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Reads all keys of a prefix at a revision, in their order, page by page.
pub(crate) async fn read_prefix(
    client: &mut EtcdClient,
    prefix: &str,
    revision: i64,
    mut take: impl FnMut(Vec<KeyValue>),
) -> Result<(), EtcdError> {
    let mut from = prefix.as_bytes().to_vec();
    loop {
        let request = RangeRequest {
            key: from,
            range_end: prefix_end(prefix),
            limit: PAGE,
            revision,
            keys_only: false,
        };
        let answer = client.range("reading the objects", request).await?;
        let last = answer.kvs.last().map(|kv| kv.key.clone());
        take(answer.kvs);
        match last {
            Some(mut last) if answer.more => {
                // The first key after the last one.
                last.push(0);
                from = last;
            }
            _ => return Ok(()),
        }
    }
}

/// The end of the range of all keys that begin with a prefix.
pub(crate) fn prefix_end(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    // Text has no byte 0xff.
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_ends_after_its_prefix() {
        assert_eq!(prefix_end("/palisade/"), b"/palisade0");
    }
}

//! The messages of etcd's API version 3 that are used, as its `rpc.proto` and `kv.proto` number them.
//!
//! They are written out here so that building needs no compiler of protocol buffers. Fields that are not used
//! are left out: a reader skips them.

use prost::{Enumeration, Message, Oneof};

/// What each answer begins with.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// A key, its value and the revision at which it was written.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
}

/// Reads the keys from `key` on, below `range_end`; one key if that is empty.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

/// The keys that were read, in their order.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

/// Writes a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// Deletes keys; the range is that of a [`RangeRequest`].
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
}

/// One operation of a transaction.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "RequestOperation", tags = "2, 3")]
    pub(crate) request: Option<RequestOperation>,
}

/// What an operation does.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum RequestOperation {
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// A condition of a transaction: the revision of a key is this one, 0 for a key that does not exist. `result`
/// stays 0 (equal).
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    #[prost(oneof = "CompareTarget", tags = "6")]
    pub(crate) value: Option<CompareTarget>,
}

/// The value of [`Compare::target`] for the revision of a key.
pub(crate) const COMPARE_MOD_REVISION: i32 = 2;

/// What a key is compared with.
#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum CompareTarget {
    #[prost(int64, tag = "6")]
    ModRevision(i64),
}

/// Operations that are done together if all conditions hold.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
}

/// Whether the conditions held.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

/// What is sent on the stream of a watch.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(oneof = "WatchOperation", tags = "1, 3")]
    pub(crate) request: Option<WatchOperation>,
}

/// Begins a watch, or asks how far it is.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WatchOperation {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
    #[prost(message, tag = "3")]
    Progress(WatchProgressRequest),
}

/// Watches a range from a revision on.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    #[prost(bool, tag = "4")]
    pub(crate) progress_notify: bool,
}

/// Asks for an answer without events.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct WatchProgressRequest {}

/// What a watch delivers: complete revisions.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(int64, tag = "2")]
    pub(crate) watch_id: i64,
    #[prost(bool, tag = "3")]
    pub(crate) created: bool,
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(crate) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(crate) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<KeyEvent>,
}

/// A change of a key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyEvent {
    #[prost(enumeration = "KeyEventType", tag = "1")]
    pub(crate) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) kv: Option<KeyValue>,
}

/// How a key changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
pub(crate) enum KeyEventType {
    /// It was written.
    Put = 0,
    /// It was deleted, or its lease ended.
    Delete = 1,
}

/// Asks for a token.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// The token.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoding_is_that_of_the_protocol() {
        let compare = Compare {
            target: COMPARE_MOD_REVISION,
            key: b"k".to_vec(),
            value: Some(CompareTarget::ModRevision(0)),
        };
        // Field 2 = 2, field 3 = "k", field 6 = 0: a member of a oneof is written even if it is 0.
        assert_eq!(compare.encode_to_vec(), [0x10, 2, 0x1a, 1, b'k', 0x30, 0]);
        let event = KeyEvent {
            kind: KeyEventType::Delete.into(),
            kv: None,
        };
        let response = WatchResponse {
            watch_id: 7,
            events: vec![event],
            ..WatchResponse::default()
        };
        assert_eq!(response.encode_to_vec(), [0x10, 7, 0x5a, 2, 8, 1]);
    }
}

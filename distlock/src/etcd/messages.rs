//! The messages of etcd's API (version 3) that these locks exchange, with the fields that they read
//! or write. The numbers are those of etcd's `rpc.proto` and `kv.proto`; fields that are missing
//! here are skipped by the decoder. So no compiler of `.proto` files takes part in a build.

use prost::{Message, Oneof};

/// Which member answered, and in which term of its leader.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(crate) struct ResponseHeader {
    #[prost(uint64, tag = "2")]
    pub(crate) member_id: u64,
    /// The revision of the store.
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
    #[prost(uint64, tag = "4")]
    pub(crate) raft_term: u64,
}

/// `prost` derives a `Debug` that shows the password: this is never printed.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(int64, tag = "2")]
    pub(crate) create_revision: i64,
    #[prost(bytes = "vec", tag = "5")]
    pub(crate) value: Vec<u8>,
    /// 0 if the key ends with no lease.
    #[prost(int64, tag = "6")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first key after the range; empty for the one key.
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) range_end: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// One of the constants `ASCENDING` and `DESCENDING`.
    #[prost(int32, tag = "5")]
    pub(crate) sort_order: i32,
    #[prost(int32, tag = "6")]
    pub(crate) sort_target: i32,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
    /// Keys that were created earlier are left out.
    #[prost(int64, tag = "12")]
    pub(crate) min_create_revision: i64,
    /// Keys that were created later are left out; 0 for none.
    #[prost(int64, tag = "13")]
    pub(crate) max_create_revision: i64,
}

/// The order of a range.
pub(crate) const ASCENDING: i32 = 1;
/// The order of a range.
pub(crate) const DESCENDING: i32 = 2;
/// Sorts a range by the create revision.
pub(crate) const BY_CREATION: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    /// Whether the limit has cut off others.
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
    #[prost(int64, tag = "3")]
    pub(crate) lease: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
}

/// Compares the create revision of a key. By their defaults the result is `EQUAL`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub(crate) key: Vec<u8>,
    /// One of a `oneof`, whose members are sent although they are 0.
    #[prost(int64, optional, tag = "5")]
    pub(crate) create_revision: Option<i64>,
}

/// The target of [`Compare`] that is the create revision.
pub(crate) const COMPARE_CREATION: i32 = 1;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RequestOp {
    #[prost(oneof = "Operation", tags = "1, 2, 3")]
    pub(crate) request: Option<Operation>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Operation {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

/// Of a response, what is read: that of a range.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ResponseOp {
    #[prost(message, optional, tag = "1")]
    pub(crate) range: Option<RangeResponse>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) failure: Vec<RequestOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(crate) responses: Vec<ResponseOp>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantRequest {
    /// In seconds.
    #[prost(int64, tag = "1")]
    pub(crate) ttl: i64,
    #[prost(int64, tag = "2")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseGrantResponse {
    /// In seconds; at least the shortest that the server allows.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseRevokeResponse {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseKeepAliveResponse {
    /// Made before the lease is renewed.
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<ResponseHeader>,
    /// In seconds, from now on; 0 if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveRequest {
    #[prost(int64, tag = "1")]
    pub(crate) id: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LeaseTimeToLiveResponse {
    /// The whole seconds that are left; negative if there is no such lease.
    #[prost(int64, tag = "3")]
    pub(crate) ttl: i64,
    /// In seconds. A leader that is new has not begun to count, and says that more is left.
    #[prost(int64, tag = "4")]
    pub(crate) granted_ttl: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) create: Option<WatchCreateRequest>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchCreateRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub(crate) key: Vec<u8>,
    /// The first revision whose events are sent.
    #[prost(int64, tag = "3")]
    pub(crate) start_revision: i64,
    /// Which events are not sent.
    #[prost(int32, repeated, tag = "5")]
    pub(crate) filters: Vec<i32>,
}

/// The filter that leaves out the events of puts.
pub(crate) const NO_PUT: i32 = 0;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WatchResponse {
    #[prost(bool, tag = "4")]
    pub(crate) canceled: bool,
    #[prost(message, repeated, tag = "11")]
    pub(crate) events: Vec<Event>,
}

/// A change of the key that is watched.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Event {}

impl Operation {
    pub(crate) fn op(self) -> RequestOp {
        RequestOp { request: Some(self) }
    }
}

impl Compare {
    /// Whether the key was created at that revision; 0 for a key that is not there.
    pub(crate) fn created_at(key: &str, revision: i64) -> Self {
        Self { target: COMPARE_CREATION, key: key.into(), create_revision: Some(revision) }
    }
}

//! The calls of etcd's API that these locks make, each to the member at the other end of a channel.
//! Every call asks the member to refuse if it knows no leader.

use futures_util::stream::{self, StreamExt};
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::messages::{
    AuthenticateRequest, AuthenticateResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveRequest, LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse,
    LeaseTimeToLiveRequest, LeaseTimeToLiveResponse, NO_PUT, RangeRequest, RangeResponse,
    TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};

/// The channel to a member, and what says in each request on it which user asks.
#[derive(Clone)]
pub(crate) struct MemberConnection {
    pub(crate) channel: Channel,
    pub(crate) token: Option<AuthToken>,
    /// The number of the login that the token is from.
    pub(crate) login: Option<usize>,
}

/// What a cluster gives a user for a password.
pub(crate) type AuthToken = MetadataValue<Ascii>;

/// Logs a user in.
pub(crate) async fn authenticate(
    channel: Channel,
    request: AuthenticateRequest,
) -> Result<AuthToken, Status> {
    let connection = MemberConnection { channel, token: None, login: None };
    let answer: AuthenticateResponse =
        unary(connection, "/etcdserverpb.Auth/Authenticate", request).await?;
    let token: Result<AuthToken, _> = answer.token.parse();
    let mut token = token.map_err(|_| Status::internal("the token is no text"))?;
    token.set_sensitive(true);
    Ok(token)
}

/// Reads a range as the last committed revision has it (linearizable).
pub(crate) async fn range(
    connection: MemberConnection,
    request: RangeRequest,
) -> Result<RangeResponse, Status> {
    unary(connection, "/etcdserverpb.KV/Range", request).await
}

/// Carries out a transaction.
pub(crate) async fn txn(
    connection: MemberConnection,
    request: TxnRequest,
) -> Result<TxnResponse, Status> {
    unary(connection, "/etcdserverpb.KV/Txn", request).await
}

/// Makes a lease of that id; returns its TTL in seconds.
pub(crate) async fn grant_lease(
    connection: MemberConnection,
    id: i64,
    ttl: i64,
) -> Result<i64, Status> {
    let request = LeaseGrantRequest { ttl, id };
    let granted: LeaseGrantResponse =
        unary(connection, "/etcdserverpb.Lease/LeaseGrant", request).await?;
    Ok(granted.ttl)
}

/// Ends a lease and removes its keys.
pub(crate) async fn revoke_lease(connection: MemberConnection, id: i64) -> Result<(), Status> {
    let request = LeaseRevokeRequest { id };
    let _revoked: LeaseRevokeResponse =
        unary(connection, "/etcdserverpb.Lease/LeaseRevoke", request).await?;
    Ok(())
}

/// Reads how many seconds are left of a lease; negative if there is none of that id.
pub(crate) async fn lease_time_to_live(
    connection: MemberConnection,
    id: i64,
) -> Result<i64, Status> {
    let request = LeaseTimeToLiveRequest { id };
    let read: LeaseTimeToLiveResponse =
        unary(connection, "/etcdserverpb.Lease/LeaseTimeToLive", request).await?;
    Ok(read.ttl.min(read.granted_ttl))
}

/// Renews leases; returns one answer each, in their order.
pub(crate) async fn keep_alive(
    connection: MemberConnection,
    ids: Vec<i64>,
) -> Result<Vec<LeaseKeepAliveResponse>, Status> {
    let mut answers = Vec::with_capacity(ids.len());
    let requests = stream::iter(ids.clone()).map(|id| LeaseKeepAliveRequest { id });
    let path = PathAndQuery::from_static("/etcdserverpb.Lease/LeaseKeepAlive");
    let mut client = ready(connection.channel).await?;
    let codec = ProstCodec::<LeaseKeepAliveRequest, LeaseKeepAliveResponse>::default();
    let mut stream =
        client.streaming(with_leader(requests, connection.token), path, codec).await?.into_inner();
    while answers.len() < ids.len() {
        let answer = stream.message().await?;
        answers.push(answer.ok_or_else(|| Status::unavailable("the stream has ended early"))?);
    }
    Ok(answers)
}

/// Returns when that key was deleted at that revision or later, or when the member gives up the
/// watch.
pub(crate) async fn deleted(
    connection: MemberConnection,
    key: Vec<u8>,
    start_revision: i64,
) -> Result<(), Status> {
    let create = WatchCreateRequest { key, start_revision, filters: vec![NO_PUT] };
    // The end of the requests would end the watch.
    let requests = stream::iter([WatchRequest { create: Some(create) }]).chain(stream::pending());
    let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
    let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
    let mut client = ready(connection.channel).await?;
    let mut stream =
        client.streaming(with_leader(requests, connection.token), path, codec).await?.into_inner();
    while let Some(answer) = stream.message().await? {
        if answer.canceled {
            return Err(Status::unavailable("the watch was cancelled"));
        }
        if !answer.events.is_empty() {
            return Ok(());
        }
    }
    Err(Status::unavailable("the watch has ended"))
}

async fn unary<Q, A>(
    connection: MemberConnection,
    path: &'static str,
    request: Q,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut client = ready(connection.channel).await?;
    let codec = ProstCodec::<Q, A>::default();
    let answer = client
        .unary(with_leader(request, connection.token), PathAndQuery::from_static(path), codec)
        .await?;
    Ok(answer.into_inner())
}

async fn ready(channel: Channel) -> Result<Grpc<Channel>, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    Ok(client)
}

/// The request of that user, for members that know a leader.
fn with_leader<T>(message: T, token: Option<AuthToken>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("token", token);
    }
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    request
}

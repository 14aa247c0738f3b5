//! The heartbeat: keep-alives of many leases, then one read of their keys, on one member.

use futures_util::future::BoxFuture;
use tokio::time::Instant;
use tonic::Status;

use super::client::{EtcdClient, RESPONSE_TIMEOUT};
use super::contender::{KEEP_ALIVES_PER_TTL, KeepAlive, range_of, seconds};
use super::key::{contender_key, lease_id};
use super::messages::{Operation, RangeRequest, TxnRequest};
use super::rpc::{self, MemberConnection};
use crate::{Renewal, Renewer, Request, Validity};

/// The holds of one call: etcd takes 128 operations in a transaction.
const MAX_HOLDS: usize = 100;

/// The ids of the requests are those of the leases ([`lease_id`]).
impl Renewer for EtcdClient {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let shortest = holds.iter().map(|hold| hold.lease).min().unwrap_or(RESPONSE_TIMEOUT);
            let until = Instant::now() + RESPONSE_TIMEOUT.min(shortest / KEEP_ALIVES_PER_TTL);
            let renewed = self.call(until, |connection| keep_all_alive(connection, holds)).await;
            renewed.unwrap_or_else(|_| vec![Renewal::Unknown; holds.len()])
        })
    }

    fn batch(&self) -> usize {
        MAX_HOLDS
    }
}

/// Says `Unavailable` if the leader has changed between the keep-alives and the read: those may
/// have come from the former one.
async fn keep_all_alive(
    connection: MemberConnection,
    holds: &[Request],
) -> Result<Vec<Renewal>, Status> {
    let sent = Instant::now();
    let ids = holds.iter().map(|hold| lease_id(hold.id)).collect();
    let answers = rpc::keep_alive(connection.clone(), ids).await?;
    let read = |hold: &Request| {
        let key = contender_key(&hold.name, lease_id(hold.id)).into_bytes();
        Operation::Range(RangeRequest { key, keys_only: true, ..RangeRequest::default() }).op()
    };
    let reads = TxnRequest { success: holds.iter().map(read).collect(), ..TxnRequest::default() };
    let read = rpc::txn(connection, reads).await?;
    let confirmation = read.header.unwrap_or_default();
    let mut renewals = Vec::with_capacity(holds.len());
    for (at, (hold, answer)) in holds.iter().zip(answers).enumerate() {
        let kept_alive = KeepAlive { sent, header: answer.header.unwrap_or_default() };
        if !kept_alive.is_confirmed_by(confirmation) {
            return Err(Status::unavailable("the leader has changed"));
        }
        // No other contender writes a key with that lease in its name.
        let is_there = range_of(&read, at).kvs.iter().any(|kv| kv.lease == lease_id(hold.id));
        renewals.push(if answer.ttl > 0 && is_there {
            Renewal::Renewed(Validity::of_lease(sent, seconds(answer.ttl)))
        } else {
            Renewal::Lost
        });
    }
    Ok(renewals)
}

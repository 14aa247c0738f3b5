//! One contender: its lease, its key, its place in the queue, and its end.
//!
//! When a lease ends is known to the leader alone, and a member that was the leader until a moment
//! ago may still answer a keep-alive. So a keep-alive counts only after a read that a majority has
//! confirmed, from the same member and in the same term ([`KeepAlive::is_confirmed_by`]).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};
use tonic::Status;

use super::client::{EtcdClient, EtcdError, RETRY_PAUSE, deadline};
use super::key::{child, contender_key, is_lease_id, lease_id, prefix, range_end};
use super::messages::{
    BY_CREATION, Compare, DESCENDING, KeyValue, Operation, PutRequest, RangeRequest, RangeResponse,
    RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};
use super::rpc::{self, MemberConnection};
use crate::{Owner, Request, Validity, WakeEvent};

/// A waiter asks again after that long without an event.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Of the time between two keep-alives of a lease, three fit into its TTL.
pub(crate) const KEEP_ALIVES_PER_TTL: u32 = 3;
/// Keys that are read at once where locks with longer names stand between two contenders.
const PAGE: i64 = 1000;

/// An answered keep-alive, which may have come from a leader of the past.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeepAlive {
    pub(crate) sent: Instant,
    pub(crate) header: ResponseHeader,
}

impl KeepAlive {
    /// Whether that answer shows that the member and its leader were the same during the
    /// keep-alive and until a majority confirmed a later read. Then a leader that comes after
    /// gives the lease its whole TTL once more.
    pub(crate) fn is_confirmed_by(&self, read: ResponseHeader) -> bool {
        let key = |header: ResponseHeader| (header.member_id, header.raft_term);
        key(self.header) == key(read)
    }
}

/// Where a contender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContenderPlace {
    /// No key is before its own.
    First,
    /// Another one is.
    Behind,
    /// Its own key is not there.
    Absent,
}

/// The key right before a contender's own.
struct Predecessor {
    key: Vec<u8>,
    /// The revision at which it was seen.
    seen_at: i64,
    has_lease: bool,
}

/// One contender for a lock. Its lease is its own and never used again.
pub(crate) struct EtcdContender {
    client: Arc<EtcdClient>,
    pub(crate) prefix: Arc<str>,
    pub(crate) key: Arc<str>,
    lease: i64,
    /// What is asked for, in seconds.
    asked_ttl: i64,
    /// What the server has granted.
    pub(crate) ttl: Duration,
    /// When the first request for the lease was sent.
    asked: Option<Instant>,
    /// The create revision of the key, once that is known.
    pub(crate) created: Option<i64>,
    /// When the last request was sent that is known to have given the lease its whole TTL.
    confirmed: Option<Instant>,
    /// The last keep-alive since.
    kept_alive: Mutex<Option<KeepAlive>>,
    predecessor: Option<Predecessor>,
}

impl EtcdContender {
    pub(crate) fn new(client: &Arc<EtcdClient>, request: &Request, asked_ttl: i64) -> Self {
        let lease = lease_id(request.id);
        Self {
            client: Arc::clone(client),
            prefix: prefix(&request.name).into(),
            key: contender_key(&request.name, lease).into(),
            lease,
            asked_ttl,
            ttl: seconds(asked_ttl),
            asked: None,
            created: None,
            confirmed: None,
            kept_alive: Mutex::default(),
            predecessor: None,
        }
    }

    /// Whether another contender was before it when the server last answered.
    pub(crate) fn is_behind(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Whether the key before it ends with no lease.
    pub(crate) fn has_no_expiry(&self) -> bool {
        self.predecessor.as_ref().is_some_and(|predecessor| !predecessor.has_lease)
    }

    /// The validity of its hold.
    pub(crate) fn validity(&self) -> Validity {
        let sent = self.confirmed.or(self.asked);
        Validity::of_lease(sent.unwrap_or_else(Instant::now), self.ttl)
    }

    /// Makes lease and key unless they are there, and says where the contender stands. One that
    /// stands first has at least half of its TTL left.
    pub(crate) async fn place(
        &mut self,
        owner: &Owner,
        until: Instant,
    ) -> Result<ContenderPlace, EtcdError> {
        let place = match self.created {
            Some(created) => self.look(created, until).await?,
            None => self.enter(owner, until).await?,
        };
        let is_old = || self.confirmed.is_none_or(|confirmed| confirmed.elapsed() > self.ttl / 2);
        match (place, self.created) {
            (ContenderPlace::First, Some(created)) if is_old() => {
                let kept_alive = self.client.keep_alive(self.lease, until).await?;
                self.keep(kept_alive);
                self.look(created, until).await
            }
            _ => Ok(place),
        }
    }

    /// Makes the lease and the key. Both may be there already, of an earlier call without an
    /// answer.
    async fn enter(&mut self, owner: &Owner, until: Instant) -> Result<ContenderPlace, EtcdError> {
        let asked = *self.asked.get_or_insert_with(Instant::now);
        let grant = |connection| rpc::grant_lease(connection, self.lease, self.asked_ttl);
        match self.client.call(until, grant).await {
            Ok(ttl) => self.ttl = seconds(ttl),
            Err(EtcdError::LeaseExists) => {}
            Err(failure) => return Err(failure),
        }
        self.confirmed = Some(asked);
        let own = RangeRequest { key: self.key.as_bytes().into(), ..RangeRequest::default() };
        let put = PutRequest {
            key: self.key.as_bytes().into(),
            value: owner.as_str().into(),
            lease: self.lease,
        };
        let txn = TxnRequest {
            compare: vec![Compare::created_at(&self.key, 0)],
            success: vec![Operation::Put(put).op(), self.contenders(0, 2)],
            failure: vec![Operation::Range(own).op()],
        };
        let answer =
            self.client.call(until, |connection| rpc::txn(connection, txn.clone())).await?;
        let header = header(answer.header)?;
        if answer.succeeded {
            // The transaction has changed the store, so its revision is the key's.
            self.created = Some(header.revision);
            return self.judge(header.revision, range_of(&answer, 1), header, until).await;
        }
        let Some(own) = range_of(&answer, 0).kvs.into_iter().next() else {
            return Ok(ContenderPlace::Absent);
        };
        self.created = Some(own.create_revision);
        self.look(own.create_revision, until).await
    }

    /// Reads where it stands.
    async fn look(&mut self, created: i64, until: Instant) -> Result<ContenderPlace, EtcdError> {
        let own = Compare::created_at(&self.key, created);
        let read = self.contenders(created, 2);
        let txn = TxnRequest { compare: vec![own], success: vec![read], failure: vec![] };
        // A transaction that changes nothing reads what a majority has confirmed.
        let answer =
            self.client.call(until, |connection| rpc::txn(connection, txn.clone())).await?;
        let header = header(answer.header)?;
        if !answer.succeeded {
            return Ok(ContenderPlace::Absent);
        }
        if let Some(kept_alive) = self.take_kept_alive()
            && kept_alive.is_confirmed_by(header)
        {
            self.confirmed = Some(kept_alive.sent);
        }
        self.judge(created, range_of(&answer, 0), header, until).await
    }

    /// Finds the predecessor among keys that were read in descending order of creation. Keys of
    /// locks with longer names are in the way of none.
    async fn judge(
        &mut self,
        created: i64,
        mut read: RangeResponse,
        header: ResponseHeader,
        until: Instant,
    ) -> Result<ContenderPlace, EtcdError> {
        self.predecessor = None;
        loop {
            let is_before = |kv: &&KeyValue| kv.create_revision < created;
            let contender = read
                .kvs
                .iter()
                .filter(is_before)
                .find_map(|kv| Some((kv, child(&self.prefix, &kv.key)?)));
            if let Some((kv, child)) = contender {
                if !is_lease_id(child) {
                    return Err(EtcdError::NoContender);
                }
                self.predecessor = Some(Predecessor {
                    key: kv.key.clone(),
                    seen_at: header.revision,
                    has_lease: kv.lease != 0,
                });
                return Ok(ContenderPlace::Behind);
            }
            let Some(oldest) = read.kvs.last().filter(|_| read.more) else {
                return Ok(ContenderPlace::First);
            };
            let txn = TxnRequest {
                success: vec![self.contenders(oldest.create_revision - 1, PAGE)],
                ..TxnRequest::default()
            };
            let answer =
                self.client.call(until, |connection| rpc::txn(connection, txn.clone())).await?;
            read = range_of(&answer, 0);
        }
    }

    /// Reads the newest keys under the prefix that are not newer than that revision; 0 for any.
    fn contenders(&self, max_create_revision: i64, limit: i64) -> RequestOp {
        let range = RangeRequest {
            key: self.prefix.as_bytes().into(),
            range_end: range_end(&self.prefix),
            limit,
            sort_order: DESCENDING,
            sort_target: BY_CREATION,
            keys_only: true,
            max_create_revision,
            ..RangeRequest::default()
        };
        Operation::Range(range).op()
    }

    /// Waits until the predecessor was deleted, or until the place must be read again. Keeps the
    /// own lease alive.
    pub(crate) async fn await_gone(&self) -> WakeEvent {
        let Some(predecessor) = &self.predecessor else { return WakeEvent::Retry };
        let member = self.client.present();
        let (key, from) = (predecessor.key.clone(), predecessor.seen_at + 1);
        let deleted = async {
            let watched = match self.client.connection(&member).await {
                Ok(connection) => rpc::deleted(connection, key, from).await,
                Err(status) => Err(status),
            };
            if watched.is_err() {
                sleep(RETRY_PAUSE).await;
            }
        };
        tokio::select! {
            () = deleted => {}
            () = self.client.replaced(&member) => {}
            () = self.stay_alive() => {}
            () = sleep(POLL_INTERVAL) => {}
        }
        WakeEvent::Retry
    }

    /// Keeps the lease alive; returns when that fails.
    async fn stay_alive(&self) {
        let pause = self.ttl / KEEP_ALIVES_PER_TTL;
        let mut last = self.last_kept_alive();
        loop {
            sleep_until(last.map_or_else(Instant::now, |last| last + pause)).await;
            match self.client.keep_alive(self.lease, deadline()).await {
                Ok(kept_alive) => last = Some(self.keep(kept_alive)),
                Err(_) => return,
            }
        }
    }

    fn last_kept_alive(&self) -> Option<Instant> {
        let kept_alive = self.kept_alive.lock().unwrap_or_else(PoisonError::into_inner);
        kept_alive.map(|kept_alive| kept_alive.sent).or(self.confirmed)
    }

    fn keep(&self, kept_alive: KeepAlive) -> Instant {
        // Each change is one step that does not panic.
        *self.kept_alive.lock().unwrap_or_else(PoisonError::into_inner) = Some(kept_alive);
        kept_alive.sent
    }

    fn take_kept_alive(&self) -> Option<KeepAlive> {
        self.kept_alive.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the lease, and the key with it. A request for either that is still on its way makes no
    /// key: it needs the lease.
    pub(crate) async fn leave(&self, until: Instant) -> Result<(), EtcdError> {
        self.client.revoke(self.lease, until).await
    }
}

impl EtcdClient {
    /// Renews one lease.
    async fn keep_alive(&self, lease: i64, until: Instant) -> Result<KeepAlive, EtcdError> {
        let ask = async |connection: MemberConnection| {
            let sent = Instant::now();
            let answers = rpc::keep_alive(connection, vec![lease]).await?;
            Ok((sent, answers.into_iter().next()))
        };
        match self.call(until, ask).await? {
            (sent, Some(answer)) if answer.ttl > 0 => {
                Ok(KeepAlive { sent, header: header(answer.header)? })
            }
            _ => Err(EtcdError::LeaseNotFound),
        }
    }

    /// Ends a lease. One that is not there has ended.
    pub(crate) async fn revoke(&self, lease: i64, until: Instant) -> Result<(), EtcdError> {
        match self.call(until, |connection| rpc::revoke_lease(connection, lease)).await {
            Err(EtcdError::LeaseNotFound) => Ok(()),
            outcome => outcome,
        }
    }
}

pub(crate) fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

pub(crate) fn header(header: Option<ResponseHeader>) -> Result<ResponseHeader, EtcdError> {
    header.ok_or_else(|| Status::internal("an answer without a header").into())
}

/// The answer to that operation of a transaction, which reads a range.
pub(crate) fn range_of(answer: &TxnResponse, at: usize) -> RangeResponse {
    let response = answer.responses.get(at).and_then(|response| response.range.clone());
    response.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keep_alive_counts_if_the_same_member_confirms_a_read_in_the_same_term() {
        let header = |member_id, raft_term| ResponseHeader { member_id, revision: 7, raft_term };
        let kept_alive = KeepAlive { sent: Instant::now(), header: header(1, 5) };
        assert!(kept_alive.is_confirmed_by(header(1, 5)));
        assert!(!kept_alive.is_confirmed_by(header(1, 6)), "another leader since");
        assert!(!kept_alive.is_confirmed_by(header(2, 5)), "a member that may know more");
    }
}

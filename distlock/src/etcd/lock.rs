//! `etcd`: the recipe of `Mutex` in etcd's Go package `concurrency`, with its keys, so that all
//! exclude each other, `etcdctl lock` too.
//!
//! How it works: each acquisition has a lease of its own, and puts the key `<name>/<lease id>` in a
//! transaction that the lease ends with. The key with the lowest create revision holds the lock.
//! Each other contender watches only the key before its own, and reads its place again when that
//! one is deleted. If an answer is lost, the same lease and key are asked for once more.
//!
//! Guarantees exclusion, the order of arrival, and a token that rises with every ownership: the
//! create revision of the key. Validity lasts for the TTL of the lease, counted from the sending of
//! the grant, or of a keep-alive that a majority has confirmed after it was answered. A dead holder
//! keeps the lock for the TTL of [`EtcdServer`], and at most 150 ms longer. The lease itself is at
//! least half a second shorter: it has whole seconds, and etcd looks twice a second for those that
//! have ended. The caller's lease does not matter.
//!
//! Does not guarantee:
//! - that a holder that is paused past its lease stops in time, unless the resource checks its
//!   token;
//! - the time of a take-over across a change of the leader, which gives each lease its whole TTL
//!   once more;
//! - a TTL that is shorter than the server allows: one and a half of its election time-outs.
//!
//! Source: etcd, `client/v3/concurrency/mutex.go`, and Why etcd, Jepsen's analysis of 3.4.3 for
//! locks and fencing. Tests: `tests/etcd.rs`, `tests/etcd_faults.rs`, `tests/etcd_cluster.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::BoxFuture;
use uuid::Uuid;

use crate::etcd::EtcdServer;
use crate::etcd::client::{EtcdClient, EtcdError, deadline, is_refusal};
use crate::etcd::contender::{ContenderPlace, EtcdContender, range_of};
use crate::etcd::inspector::EtcdInspector;
use crate::etcd::key::{child, lease_id, range_end};
use crate::etcd::messages::{Compare, DeleteRangeRequest, Operation, RangeRequest, TxnRequest};
use crate::etcd::rpc;
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Release,
    RenewalTarget, Renewer, Request, Token, Validity, WakeStrategy, guarantees,
};

/// How often an attempt makes its key again if that is removed.
const MAX_KEY_ATTEMPTS: u32 = 3;

pub(crate) struct EtcdLock {
    server: EtcdServer,
}

impl EtcdLock {
    pub(crate) fn new(server: &EtcdServer) -> Self {
        Self { server: server.clone() }
    }
}

impl Locker for EtcdLock {
    fn name(&self) -> &'static str {
        LockKind::Etcd.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Etcd)
    }

    /// Whether a majority confirms a read.
    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let read =
                RangeRequest { key: b"/".into(), keys_only: true, ..RangeRequest::default() };
            let ask = |connection| rpc::range(connection, read.clone());
            self.server.client.call(deadline(), ask).await?;
            Ok(())
        })
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(EtcdInspector { client: Arc::clone(&self.server.client) }))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(EtcdAcquisition { server: self.server.clone(), request, contender: None })
    }
}

struct EtcdAcquisition {
    server: EtcdServer,
    request: Request,
    /// From the moment at which a lease may exist.
    contender: Option<EtcdContender>,
}

impl Acquisition for EtcdAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let until = deadline();
            for _ in 0..MAX_KEY_ATTEMPTS {
                let contender = match &mut self.contender {
                    Some(contender) => contender,
                    none => {
                        // A lease is never used again, and its id is in the name of the key.
                        self.request.id = Uuid::new_v4();
                        let EtcdServer { client, lease_ttl } = &self.server;
                        none.insert(EtcdContender::new(client, &self.request, *lease_ttl))
                    }
                };
                let was_behind = contender.is_behind();
                match contender.place(&self.request.owner, until).await {
                    Ok(ContenderPlace::First) => return Ok(self.hold()),
                    Ok(ContenderPlace::Behind) => return Ok(None),
                    // It is behind another key, as far as is known, and keeps its place.
                    Err(EtcdError::Unanswered(_)) if was_behind => return Ok(None),
                    Ok(ContenderPlace::Absent) => {
                        contender.leave(until).await?;
                        self.contender = None;
                    }
                    Err(EtcdError::LeaseNotFound) => self.contender = None,
                    Err(failure) => return Err(failure.into()),
                }
            }
            Err(LockError::Backend("another program removes the keys of this lock".into()))
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        match &self.contender {
            Some(contender) if contender.is_behind() => {
                WakeStrategy::Signal(Box::pin(async { Ok(contender.await_gone().await) }))
            }
            _ => WakeStrategy::Poll,
        }
    }

    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.contender.as_ref().is_some_and(EtcdContender::has_no_expiry) })
    }

    fn is_queued(&self) -> bool {
        self.contender.is_some()
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let Some(contender) = self.contender.take() else { return Ok(()) };
            Ok(contender.leave(deadline()).await?)
        })
    }
}

impl EtcdAcquisition {
    fn hold(&mut self) -> Option<Box<dyn Hold>> {
        let contender = self.contender.take()?;
        let created = contender.created?;
        // Renewed by the rhythm of its lease.
        let request = Request { lease: contender.ttl, ..self.request.clone() };
        Some(Box::new(EtcdHold {
            client: Arc::clone(&self.server.client),
            validity: contender.validity(),
            prefix: contender.prefix,
            key: contender.key,
            created,
            request,
            may_be_released: AtomicBool::new(false),
        }) as Box<dyn Hold>)
    }
}

/// If it is dropped without a release, its lease ends by itself.
struct EtcdHold {
    client: Arc<EtcdClient>,
    prefix: Arc<str>,
    key: Arc<str>,
    /// The create revision of the key.
    created: i64,
    request: Request,
    validity: Validity,
    /// Whether a release has deleted the key, or was sent and has no answer.
    may_be_released: AtomicBool,
}

impl Hold for EtcdHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn token(&self) -> Option<Token> {
        u64::try_from(self.created).ok().map(Token)
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.client) as Arc<dyn Renewer>;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    /// Deletes the key, which wakes the next contender, and then ends the lease.
    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let until = deadline();
            let delete = DeleteRangeRequest { key: self.key.as_bytes().into() };
            let others = RangeRequest {
                key: self.prefix.as_bytes().into(),
                range_end: range_end(&self.prefix),
                keys_only: true,
                ..RangeRequest::default()
            };
            let txn = TxnRequest {
                compare: vec![Compare::created_at(&self.key, self.created)],
                success: vec![Operation::DeleteRange(delete).op()],
                failure: vec![Operation::Range(others).op()],
            };
            let ask = async |connection| {
                let before = self.may_be_released.swap(true, Ordering::Relaxed);
                let answer = rpc::txn(connection, txn.clone()).await;
                let did_nothing = match &answer {
                    Ok(answer) => !answer.succeeded,
                    Err(status) => is_refusal(status),
                };
                if did_nothing {
                    self.may_be_released.store(before, Ordering::Relaxed);
                }
                answer
            };
            let answer = self.client.call(until, ask).await?;
            // It ends by itself if this fails.
            let _revoked = self.client.revoke(lease_id(self.request.id), until).await;
            // An earlier request may have deleted it, and its answer was lost.
            if *self.may_be_released.get_mut() {
                return Ok(Release::Released);
            }
            let others = range_of(&answer, 0).kvs;
            let is_held = others.iter().any(|kv| child(&self.prefix, &kv.key).is_some());
            Ok(if is_held { Release::HeldByOther } else { Release::Gone })
        })
    }
}

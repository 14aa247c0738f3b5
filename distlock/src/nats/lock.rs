//! `nats`: a key of a bucket of NATS `JetStream`, created if it is not there, deleted at release.
//!
//! How it works: the value is the owner and the id of the acquisition. Every write names the
//! revision that must be the key's last. So one of two creates wins, a release that comes late
//! frees no successor's lock, and an abandoned create that is late by less than the TTL comes to
//! nothing. The holder writes its entry again at every third of the bucket's TTL. A waiter
//! subscribes to the key, so the release wakes it. The end of an entry sends no message: a waiter
//! reads the key every 100 ms, unless another write told when the entry ends.
//!
//! Guarantees exclusion while validity lasts, and a token that rises with every ownership: the
//! revision of the create. Validity lasts for the TTL of the bucket, counted from the sending of
//! the last write that was confirmed.
//!
//! Does not guarantee:
//! - any order among waiters;
//! - that a holder that is paused past the TTL stops in time, unless the resource checks its
//!   token;
//! - exclusion while the clock of the server is set forward by more than the TTL: entries age by
//!   it;
//! - anything after the server has lost its data. It confirms writes before it flushes them to
//!   disk, so a machine that loses power may forget locks (Jepsen, NATS 2.12.1). A bucket that is
//!   made anew begins with token 1.
//!
//! Source: NATS ADR-8 `JetStream` based key-value stores. Tests: `tests/nats`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use tokio::time::{Instant, sleep, sleep_until};

use crate::nats::NatsServer;
use crate::nats::bucket::{MAX_TRIES, NatsBucket, NatsError, in_time};
use crate::nats::inspector::NatsInspector;
use crate::nats::key::{EntryText, entry_text, key_of};
use crate::nats::open_bucket::{OpenBucket, is_value};
use crate::nats::renewer::NatsRenewer;
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Release,
    RenewalTarget, Renewer, Request, Token, Validity, WakeEvent, WakeStrategy, guarantees,
};

/// How often a waiter reads the key while it does not know when the entry ends.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often at least: a message may be lost with its connection.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Between two tries to undo a create without an answer.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The key that a check of the server reads.
const CHECKED_KEY: &str = "=";

pub(crate) struct NatsLock {
    bucket: Arc<NatsBucket>,
    renewer: Arc<NatsRenewer>,
}

impl NatsLock {
    pub(crate) fn new(server: &NatsServer) -> Self {
        let bucket = Arc::clone(&server.bucket);
        Self { renewer: Arc::new(NatsRenewer { bucket: Arc::clone(&bucket) }), bucket }
    }
}

impl Locker for NatsLock {
    fn name(&self) -> &'static str {
        LockKind::Nats.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Nats)
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let read = async { self.bucket.open().await?.read(CHECKED_KEY).await };
            in_time(read).await.map(drop)
        })
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(NatsInspector { bucket: Arc::clone(&self.bucket) }))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(NatsAcquisition {
            bucket: Arc::clone(&self.bucket),
            renewer: Arc::clone(&self.renewer),
            key: key_of(request.name.as_str()),
            request,
            in_doubt_since: None,
            waiter: None,
        })
    }
}

struct NatsAcquisition {
    bucket: Arc<NatsBucket>,
    renewer: Arc<NatsRenewer>,
    request: Request,
    key: String,
    /// When the first create was sent that may yet be carried out.
    in_doubt_since: Option<Instant>,
    waiter: Option<NatsWaiter>,
}

/// What a waiter knows of the entry in its way.
struct NatsWaiter {
    messages: async_nats::Subscriber,
    ttl: Duration,
    /// When the last write came that this waiter saw, which may be one that the server refused.
    written: Option<Instant>,
}

impl NatsAcquisition {
    /// Creates the entry if there is none.
    async fn create(&mut self) -> Result<Option<Box<dyn Hold>>, NatsError> {
        let text = entry_text(&self.request, None);
        for _ in 0..MAX_TRIES {
            let bucket = self.bucket.open().await?;
            let created = self.create_in(&bucket, &text).await;
            match created {
                Err(NatsError::Conflict | NatsError::Unanswered(_)) => {}
                Err(NatsError::NoBucket) => self.bucket.forget(&bucket).await,
                outcome => return outcome,
            }
        }
        Err(NatsError::Conflict)
    }

    async fn create_in(
        &mut self,
        bucket: &Arc<OpenBucket>,
        text: &str,
    ) -> Result<Option<Box<dyn Hold>>, NatsError> {
        let entry = bucket.read(&self.key).await?;
        let before = self.in_doubt_since;
        let sent = before.unwrap_or_else(Instant::now);
        match entry.value {
            // An earlier create, whose answer was lost.
            Some(value) if EntryText::read(&value).is_of(&self.request) => {
                return Ok(Some(self.hold(bucket, entry.revision, sent)));
            }
            Some(_) => return Ok(None),
            None => {}
        }
        self.in_doubt_since = Some(sent);
        let written = bucket.write(&self.key, entry.revision, Some(text)).await;
        if written.as_ref().is_err_and(NatsError::did_nothing) {
            self.in_doubt_since = before;
        }
        Ok(Some(self.hold(bucket, written?, sent)))
    }

    fn hold(&self, bucket: &Arc<OpenBucket>, revision: u64, sent: Instant) -> Box<dyn Hold> {
        let ttl = bucket.ttl();
        Box::new(NatsHold {
            bucket: Arc::clone(&self.bucket),
            created_in: Arc::clone(bucket),
            renewer: Arc::clone(&self.renewer),
            key: self.key.clone(),
            created: revision,
            // Renewed by the rhythm of its bucket.
            request: Request { lease: ttl, ..self.request.clone() },
            validity: Validity::of_lease(sent, ttl),
            may_be_released: false,
        })
    }

    fn is_other(&self, value: &str) -> bool {
        !EntryText::read(value).is_of(&self.request)
    }

    /// Bars a create that is on its way, and deletes what it has made.
    async fn undo(&self) -> Result<(), NatsError> {
        loop {
            match self.undo_once().await {
                Ok(()) => return Ok(()),
                Err(NatsError::Conflict) => {}
                Err(_) => sleep(RETRY_PAUSE).await,
            }
        }
    }

    async fn undo_once(&self) -> Result<(), NatsError> {
        let Some(bucket) = self.bucket.open_existing().await? else { return Ok(()) };
        let entry = bucket.read(&self.key).await?;
        if entry.value.as_deref().is_some_and(|value| self.is_other(value)) {
            return Ok(());
        }
        // Where nothing is, the deletion alone makes the revision another one.
        bucket.write(&self.key, entry.revision, None).await.map(drop)
    }
}

impl Acquisition for NatsAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(in_time(self.create()))
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Signal(Box::pin(async {
            match &mut self.waiter {
                Some(waiter) => waiter.await_change().await,
                waiter => {
                    // What came before the subscription, the next look sees.
                    match NatsWaiter::subscribe(&self.bucket, &self.key).await {
                        Ok(subscribed) => *waiter = Some(subscribed),
                        Err(_) => sleep(POLL_INTERVAL).await,
                    }
                }
            }
            Ok(WakeEvent::Retry)
        }))
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            match self.in_doubt_since {
                Some(_) => in_time(self.undo()).await,
                None => Ok(()),
            }
        })
    }
}

impl NatsWaiter {
    async fn subscribe(bucket: &NatsBucket, key: &str) -> Result<Self, NatsError> {
        let bucket = bucket.open().await?;
        let messages = bucket.subscribe(key).await?;
        Ok(Self { messages, ttl: bucket.ttl(), written: None })
    }

    /// Returns when the entry was deleted, or may have ended.
    async fn await_change(&mut self) {
        let woken = Instant::now();
        loop {
            let ends = self.written.map_or(woken, |written| written + self.ttl);
            let next = ends.clamp(woken + POLL_INTERVAL, woken + MAX_POLL_INTERVAL);
            tokio::select! {
                message = self.messages.next() => match message {
                    Some(message) if message.headers.as_ref().is_none_or(is_value) => {
                        self.written = Some(Instant::now());
                    }
                    Some(_) => return,
                    // The connection has ended for good.
                    None => return sleep(POLL_INTERVAL).await,
                },
                () = sleep_until(next) => return,
            }
        }
    }
}

/// If it is dropped without a release, its entry ends with the bucket's TTL.
struct NatsHold {
    bucket: Arc<NatsBucket>,
    /// The bucket of its create: one that was made again may have given its revision to another.
    created_in: Arc<OpenBucket>,
    renewer: Arc<NatsRenewer>,
    request: Request,
    key: String,
    /// The revision of its create.
    created: u64,
    validity: Validity,
    /// Whether a release was sent that was not answered.
    may_be_released: bool,
}

impl NatsHold {
    async fn delete(&mut self) -> Result<Release, NatsError> {
        for number in 0..MAX_TRIES {
            let bucket = self.bucket.open().await?;
            let is_certain = !self.validity.has_ended() && bucket.is_same(&self.created_in);
            let last = if number == 0 && is_certain {
                // If it was never renewed, its create is the last write.
                self.created
            } else {
                let entry = bucket.read(&self.key).await?;
                match entry.value {
                    Some(value) if EntryText::read(&value).is_of(&self.request) => entry.revision,
                    // An earlier request may have deleted it, and its answer was lost.
                    _ if self.may_be_released => return Ok(Release::Released),
                    Some(_) => return Ok(Release::HeldByOther),
                    None => return Ok(Release::Gone),
                }
            };
            let before = std::mem::replace(&mut self.may_be_released, true);
            let deleted = bucket.write(&self.key, last, None).await;
            if deleted.as_ref().is_err_and(NatsError::did_nothing) {
                self.may_be_released = before;
            }
            match deleted {
                Ok(_) => return Ok(Release::Released),
                Err(NatsError::Conflict) => {}
                Err(NatsError::NoBucket) => self.bucket.forget(&bucket).await,
                Err(failure) => return Err(failure),
            }
        }
        Err(NatsError::Conflict)
    }
}

impl Hold for NatsHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn token(&self) -> Option<Token> {
        Some(Token(self.created))
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.renewer) as Arc<dyn Renewer>;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(in_time(self.delete()))
    }
}

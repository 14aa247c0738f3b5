//! `nats`: a key of a bucket of NATS `JetStream`, created if it is not there, deleted at release.
//!
//! How it works: the value is the owner and the id of the acquisition. Every write names the
//! revision that must be the key's last. So one of two creates wins, a release that comes late
//! frees no successor's lock, and an abandoned create that is still on its way comes to nothing.
//! The holder writes its entry again at every third of the bucket's TTL. A waiter subscribes to
//! the key, so the release wakes it. The end of an entry sends no message before NATS 2.11: a
//! waiter reads the key every 100 ms, unless a renewal told when the entry ends.
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
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::nats::NatsServer;
use crate::nats::bucket::{NatsBucket, NatsError, RESPONSE_TIMEOUT, is_value};
use crate::nats::inspector::NatsInspector;
use crate::nats::key::{EntryText, entry_text, key_of};
use crate::nats::renewer::NatsRenewer;
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Release,
    RenewalTarget, Renewer, Request, Token, Validity, WakeEvent, WakeStrategy, guarantees,
};

/// How often a step is tried that other writes come before, or that is not answered.
const MAX_CONFLICTS: u32 = 8;
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
            match timeout(RESPONSE_TIMEOUT, self.bucket.read(CHECKED_KEY)).await {
                Ok(read) => read.map(drop).map_err(LockError::from),
                Err(_) => Err(silent()),
            }
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
            is_in_doubt: false,
            waiter: None,
        })
    }
}

fn silent() -> LockError {
    NatsError::Unanswered("no answer within 2 s".into()).into()
}

struct NatsAcquisition {
    bucket: Arc<NatsBucket>,
    renewer: Arc<NatsRenewer>,
    request: Request,
    key: String,
    /// Whether a create was sent that was not answered.
    is_in_doubt: bool,
    waiter: Option<NatsWaiter>,
}

/// What a waiter knows of the entry in its way.
struct NatsWaiter {
    messages: async_nats::Subscriber,
    ttl: Duration,
    /// When the last renewal came that this waiter saw.
    renewed: Option<Instant>,
}

impl NatsAcquisition {
    /// Creates the entry if there is none.
    async fn create(&mut self) -> Result<Option<Box<dyn Hold>>, NatsError> {
        let value = entry_text(&self.request, None);
        // When the first create was sent whose outcome is not known.
        let mut in_doubt_since = None;
        for _ in 0..MAX_CONFLICTS {
            let ttl = self.bucket.open().await?.ttl();
            let entry = self.bucket.read(&self.key).await?;
            let sent = in_doubt_since.unwrap_or_else(Instant::now);
            match entry.value {
                Some(value) if EntryText::read(&value).is_of(&self.request) => {
                    return Ok(Some(self.hold(entry.revision, sent, ttl)));
                }
                Some(_) => return Ok(None),
                None => {}
            }
            self.is_in_doubt = true;
            match self.bucket.write(&self.key, entry.revision, Some(&value)).await {
                Ok(revision) => return Ok(Some(self.hold(revision, sent, ttl))),
                Err(NatsError::Conflict) => {}
                Err(NatsError::Unanswered(_)) => in_doubt_since = Some(sent),
                Err(failure) => return Err(failure),
            }
        }
        Err(NatsError::Conflict)
    }

    fn hold(&self, revision: u64, sent: Instant, ttl: Duration) -> Box<dyn Hold> {
        Box::new(NatsHold {
            bucket: Arc::clone(&self.bucket),
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
            let undone = match self.bucket.read(&self.key).await {
                Ok(entry) if entry.value.as_deref().is_some_and(|value| self.is_other(value)) => {
                    return Ok(());
                }
                // Where nothing is, the deletion alone makes the revision another one.
                Ok(entry) => self.bucket.write(&self.key, entry.revision, None).await,
                Err(failure) => Err(failure),
            };
            match undone {
                Ok(_) => return Ok(()),
                Err(NatsError::Conflict) => {}
                Err(_) => sleep(RETRY_PAUSE).await,
            }
        }
    }
}

impl Acquisition for NatsAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            match timeout(RESPONSE_TIMEOUT, self.create()).await {
                Ok(attempt) => Ok(attempt?),
                Err(_) => Err(silent()),
            }
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Signal(Box::pin(async {
            match &mut self.waiter {
                Some(waiter) => waiter.await_change().await,
                none => {
                    // What came before the subscription, the next look sees.
                    match NatsWaiter::subscribe(&self.bucket, &self.key).await {
                        Ok(waiter) => *none = Some(waiter),
                        Err(_) => sleep(POLL_INTERVAL).await,
                    }
                }
            }
            Ok(WakeEvent::Retry)
        }))
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            if !self.is_in_doubt {
                return Ok(());
            }
            match timeout(RESPONSE_TIMEOUT, self.undo()).await {
                Ok(undone) => Ok(undone?),
                Err(_) => Err(silent()),
            }
        })
    }
}

impl NatsWaiter {
    async fn subscribe(bucket: &NatsBucket, key: &str) -> Result<Self, NatsError> {
        let bucket = bucket.open().await?;
        let messages = bucket.subscribe(key).await?;
        Ok(Self { messages, ttl: bucket.ttl(), renewed: None })
    }

    /// Returns when the entry was deleted, or may have ended.
    async fn await_change(&mut self) {
        let woken = Instant::now();
        loop {
            let ends = self.renewed.map_or(woken, |renewed| renewed + self.ttl);
            let next = ends.clamp(woken + POLL_INTERVAL, woken + MAX_POLL_INTERVAL);
            tokio::select! {
                message = self.messages.next() => match message {
                    Some(message) if message.headers.as_ref().is_none_or(is_value) => {
                        self.renewed = Some(Instant::now());
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
        // If it was never renewed, its create is the last write.
        let mut last = self.created;
        for _ in 0..MAX_CONFLICTS {
            let before = std::mem::replace(&mut self.may_be_released, true);
            match self.bucket.write(&self.key, last, None).await {
                Ok(_) => return Ok(Release::Released),
                Err(NatsError::Conflict) => self.may_be_released = before,
                Err(failure) => return Err(failure),
            }
            let entry = self.bucket.read(&self.key).await?;
            match entry.value {
                Some(value) if EntryText::read(&value).is_of(&self.request) => {
                    last = entry.revision;
                }
                // An earlier request may have deleted it, and its answer was lost.
                _ if self.may_be_released => return Ok(Release::Released),
                Some(_) => return Ok(Release::HeldByOther),
                None => return Ok(Release::Gone),
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
        Box::pin(async move {
            match timeout(RESPONSE_TIMEOUT, self.delete()).await {
                Ok(released) => Ok(released?),
                Err(_) => Err(silent()),
            }
        })
    }
}

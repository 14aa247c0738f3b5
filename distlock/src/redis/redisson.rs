//! `redisson`: Redisson's `RLock`, in its wire format, so that a JVM service with Redisson and this
//! one exclude each other on the same name.
//!
//! How it works: the lock is a hash of owner (`<process uuid>:<number>`) to hold count. It ends
//! with its lease, which the watchdog renews. A waiter subscribes to the lock's channel and tries
//! again. Then it waits for the message of the release, the end of the lease, or
//! [`MAX_MESSAGE_WAIT`], whichever is first; the last bounds the cost of a lost message. Scripts
//! take, release and renew it. A script that is sent again returns the first call's answer.
//!
//! Guarantees:
//! - exclusion among the processes of one Redis, while the holder heeds the loss of its lock;
//! - re-entry by the owner, counted once per acquisition, and release by the owner only;
//! - unlike Redisson, a re-entry with a shorter lease does not shorten the lock of the outer hold;
//! - an owner whose hold has ended cannot enter again ([`LockError::Lost`]). The format counts
//!   holds without naming them, so a stale guard would free the new hold.
//!
//! Flaw: a failover to a replica that lags forgets the lock; [`Replication`] makes that rarer. It
//! is not fair: the first caller after a release gets it.
//!
//! On a Redis Cluster all keys and messages of a lock are in one slot. Messages are sent by
//! SPUBLISH there, as Redisson does from Redis 7 on. Source: Redisson 4.7, `RedissonLock`,
//! `RedissonBaseLock`, `LockPubSub`. Tests: `tests/redisson.rs`, `tests/redisson_scripts.rs`,
//! `tests/redisson_waiting.rs`, `tests/redisson_faults.rs`, `tests/redisson_watchdog.rs`,
//! `tests/redisson_replication.rs`, `tests/cluster.rs`, `tests/cluster_changes.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::AsyncCommands;
use tokio::time::Instant;

use crate::redis::RedisServer;
use crate::redis::idempotent_call::{LatchDeleter, delete_latches};
use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::keys::{ms, prefixed};
use crate::redis::one_key::NO_EXPIRY;
use crate::redis::renew::RedisRenewer;
use crate::redis::replication::{ReplicatedWriter, Replication, WriteError};
use crate::redis::script::LuaScript;
use crate::redis::signal::{Subscription, WAKE_ONE};
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, LockName, Locker, Owner,
    Release, RenewalTarget, Request, Validity, WakeEvent, WakeStrategy, guarantees,
};

const ACQUIRE_SCRIPT: &str = include_str!("../../lua/redisson_acquire.lua");
const RELEASE_SCRIPT: &str = include_str!("../../lua/redisson_release.lua");
const ABANDON_SCRIPT: &str = include_str!("../../lua/redisson_abandon.lua");

/// How long a waiter relies on messages at most.
const MAX_MESSAGE_WAIT: Duration = Duration::from_secs(1);
/// What PTTL says of a key that is not there.
const PTTL_ABSENT: i64 = -2;
/// After the end of another owner's lease, so that it has ended when the server is asked.
const LEASE_END_MARGIN: Duration = Duration::from_millis(2);
/// How long the server remembers a re-entry, and an acquisition that was given up.
const ACQUIRE_LATCH_TTL: Duration = Duration::from_mins(1);
/// How long it remembers a release, unless it learns earlier that its answer arrived.
const RELEASE_LATCH_TTL: Duration = Duration::from_secs(10);

/// How a [`Redisson`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RedissonOptions {
    /// How many replicas must have the lock before it counts.
    pub replication: Replication,
}

/// The mechanism `redisson`.
pub struct Redisson {
    inner: Arc<RedissonState>,
}

struct RedissonState {
    server: RedisServer,
    replication: Replication,
    writer: ReplicatedWriter,
    renewer: Arc<RedisRenewer>,
    acquire: LuaScript,
    release: LuaScript,
    abandon: LuaScript,
    /// What releases leave when they were answered.
    released: LatchDeleter,
}

impl Redisson {
    /// Locks on that server, confirmed by as many replicas as the server asks for.
    #[must_use]
    pub fn on(server: &RedisServer) -> Self {
        Self::new(server, RedissonOptions { replication: server.replication() })
    }

    /// Locks on that server.
    #[must_use]
    pub fn new(server: &RedisServer, options: RedissonOptions) -> Self {
        let writer = ReplicatedWriter::new(server, options.replication);
        let renewer = match writer {
            ReplicatedWriter::Unconfirmed(_) => server.renewer(),
            ReplicatedWriter::Confirmed(_) => {
                Arc::new(RedisRenewer::new(&server.connection(), writer.clone()))
            }
        };
        Self {
            inner: Arc::new(RedissonState {
                server: server.clone(),
                replication: options.replication,
                writer,
                renewer,
                acquire: LuaScript::new(ACQUIRE_SCRIPT),
                release: LuaScript::new(RELEASE_SCRIPT),
                abandon: LuaScript::new(ABANDON_SCRIPT),
                released: LatchDeleter::on(server),
            }),
        }
    }
}

impl Locker for Redisson {
    fn name(&self) -> &'static str {
        LockKind::Redisson.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Redisson)
    }

    fn fresh_owner(&self) -> Owner {
        self.inner.server.fresh_owner()
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { self.inner.replication.check(&self.inner.server).await })
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(RedisInspector::of_key(
            LockKind::Redisson,
            &self.inner.server.connection(),
            KeyForm::Hash,
        ))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let channel = channel(&request.name);
        let latch = prefixed("redisson_lock_latch", &request.name) + ":" + &request.id.to_string();
        let inner = Arc::clone(&self.inner);
        Box::new(RedissonAcquisition {
            inner,
            request,
            channel,
            latch,
            subscription: None,
            pause: MAX_MESSAGE_WAIT,
            has_no_expiry: false,
        })
    }
}

/// The channel on which the release of a lock is published.
pub(crate) fn channel(name: &LockName) -> String {
    prefixed("redisson_lock__channel", name)
}

struct RedissonAcquisition {
    inner: Arc<RedissonState>,
    request: Request,
    channel: String,
    latch: String,
    subscription: Option<Subscription>,
    /// How long to wait for a message.
    pause: Duration,
    /// Whether the holder's key has no lease.
    has_no_expiry: bool,
}

impl RedissonAcquisition {
    /// The rest of the holder's lease in ms if another process has taken the lock meanwhile.
    async fn give_way(&self) -> Option<i64> {
        let look = || async {
            let mut connection = self.inner.server.connection();
            let left_ms: i64 = connection.pttl(self.request.name.as_str()).await?;
            Ok((left_ms != PTTL_ABSENT).then_some(left_ms))
        };
        match &self.subscription {
            Some(subscription) if !self.request.may_hold => subscription.give_way(look).await,
            _ => None,
        }
    }

    fn found_busy(&mut self, left_ms: i64) {
        self.pause = pause(left_ms);
        self.has_no_expiry = left_ms == NO_EXPIRY;
    }

    /// The rest of the holder's lease in ms if the lock is taken.
    async fn acquire(&self) -> Result<Option<i64>, WriteError> {
        let request = &self.request;
        let keys = [request.name.as_str(), &self.latch];
        let reenters = u8::from(request.may_hold);
        let args = (ms(request.lease), request.owner.as_str(), reenters, ms(ACQUIRE_LATCH_TTL));
        self.inner.writer.call(&self.inner.acquire, &keys, args, Option::is_none).await
    }
}

impl Acquisition for RedissonAcquisition {
    /// A connection that was lost costs one repetition, which is safe because it counts once.
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            if self.subscription.is_none() {
                self.subscription = self.inner.server.signals().join(&self.channel);
            }
            if let Some(subscription) = &mut self.subscription {
                subscription.looks_now();
            }
            if let Some(left_ms) = self.give_way().await {
                self.found_busy(left_ms);
                return Ok(None);
            }
            let mut sent = Instant::now();
            let mut answer = self.acquire().await;
            let is_repeated = answer.as_ref().is_err_and(WriteError::is_connection_dropped);
            if is_repeated {
                sent = Instant::now();
                answer = self.acquire().await;
            }
            match answer {
                Ok(None) => {
                    if self.request.may_hold && !is_repeated {
                        delete_latches(&self.inner.server, &self.latch).await;
                    }
                    let validity = Validity::of_lease(sent, self.request.lease);
                    let (inner, request) = (Arc::clone(&self.inner), self.request.clone());
                    let latch = prefixed("redisson_unlock_latch", &request.name);
                    let latch = latch + ":" + &request.id.to_string();
                    let channel = std::mem::take(&mut self.channel);
                    let hold =
                        RedissonHold { inner, request, channel, latch, validity, is_sent: false };
                    Ok(Some(Box::new(hold) as Box<dyn Hold>))
                }
                Ok(Some(left_ms)) => {
                    self.found_busy(left_ms);
                    Ok(None)
                }
                Err(error @ WriteError::TooFew { .. }) => {
                    self.abandon().await?;
                    Err(error.into())
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Signal(Box::pin(async {
            let signals = self.inner.server.signals();
            let subscription =
                self.subscription.get_or_insert_with(|| signals.subscribe(&self.channel));
            subscription.next(self.pause).await;
            Ok(WakeEvent::Retry)
        }))
    }

    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move { self.has_no_expiry })
    }

    /// Sends the script's text. A server that is hung now may run both the attempt and this later,
    /// and could not ask for the text then.
    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let request = &self.request;
            let keys = [request.name.as_str(), &self.channel, &self.latch];
            let reenters = u8::from(request.may_hold);
            let publish = self.inner.server.publish();
            let args = (WAKE_ONE, request.owner.as_str(), reenters, ms(ACQUIRE_LATCH_TTL), publish);
            let mut connection = self.inner.server.connection();
            self.inner.abandon.call_whole::<i64>(&mut connection, &keys, args).await?;
            Ok(())
        })
    }
}

/// How long to wait for a message if the holder's lease ends in `left_ms`; negative is no lease.
fn pause(left_ms: i64) -> Duration {
    let left = u64::try_from(left_ms).map(Duration::from_millis);
    left.map_or(MAX_MESSAGE_WAIT, |left| MAX_MESSAGE_WAIT.min(left + LEASE_END_MARGIN))
}

struct RedissonHold {
    inner: Arc<RedissonState>,
    request: Request,
    channel: String,
    latch: String,
    validity: Validity,
    /// A release was sent and may not have been carried out yet.
    is_sent: bool,
}

impl Hold for RedissonHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.inner.renewer) as _;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let request = &self.request;
            let keys = [request.name.as_str(), &self.channel, &self.latch];
            let publish = self.inner.server.publish();
            let owner = request.owner.as_str();
            let args = (WAKE_ONE, ms(request.lease), owner, ms(RELEASE_LATCH_TTL), publish);
            let mut connection = self.inner.server.connection();
            let is_sent = std::mem::replace(&mut self.is_sent, true);
            let signals = self.inner.server.signals();
            let before = signals.releasing(&self.channel);
            let answer: i64 = self.inner.release.call(&mut connection, &keys, args).await?;
            if let Ok(told @ 1..) = u64::try_from(answer - 1) {
                signals.released(&self.channel, told, before);
            }
            Ok(match answer {
                0.. => {
                    // With another one still on its way the latch has to stay.
                    if !is_sent {
                        self.inner.released.delete_later(&self.latch).await;
                    }
                    Release::Released
                }
                -1 => Release::Gone,
                _ => Release::HeldByOther,
            })
        })
    }
}

//! Locks with one deliberate bug each, which the laboratory has to catch. They are the known bugs
//! of Redis locks, each in a mechanism that does not have it.
//!
//! Most bugs wrap the sound mechanism and change one step of it; two are a simpler mechanism
//! instead.

mod hasty_redlock;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use tokio::time::Instant;

use self::hasty_redlock::HastyRedlock;
use super::keys::ms;
use super::signal::Subscription;
use super::{RedisConnection, RedisServer, RedissonLock, one_key};
use crate::kinds::redis::lua_release::LuaRelease;
use crate::kinds::redis::redisson::channel;
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockKind, LockName, Locker, Owner, OwnerCheckLock,
    Redisson, RedissonOptions, Release, Renewal, RenewalTarget, Renewer, Request, SetnxExpire,
    Token, TokenIssuer, Validity, WakeEvent, WakeStrategy,
};

/// How long a waiter relies on a message that may be lost: longer than any wait.
const UNLIMITED_LEASE: Duration = Duration::from_hours(24);
/// How long replicas may take to confirm.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the connection may take on which they are asked.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Connections on which they are asked.
const OTHER_CONNECTIONS: usize = 16;

/// A bug of a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectedBug {
    /// SETNX, and no lease: the key of a holder that dies stays.
    SetnxWithoutExpire,
    /// The release is a bare DEL.
    DelWithoutOwnerCheck,
    /// The release is GET, a comparison, DEL.
    GetThenDel,
    /// The lease is not renewed.
    NoWatchdog,
    /// A renewal without an answer is the last one.
    WatchdogNotRearmed,
    /// A renewal prolongs the lock of any owner.
    RenewWithoutOwnerCheck,
    /// A release frees the lock of any owner, a renewal prolongs it, and both say yes.
    OwnerCheckAlwaysTrue,
    /// A waiter waits for the message of the release and for nothing else.
    LostWakeUp,
    /// Replicas are asked for confirmations on a connection that did not write the lock.
    WaitOnAnotherConnection,
    /// A majority counts however long the asking took, and its lease from the last answer on.
    RedlockWithoutElapsedTime,
}

impl InjectedBug {
    /// The kind that has it.
    #[must_use]
    pub fn kind(self) -> LockKind {
        match self {
            Self::SetnxWithoutExpire => LockKind::SetNx,
            Self::DelWithoutOwnerCheck | Self::GetThenDel => LockKind::LuaRelease,
            Self::NoWatchdog
            | Self::WatchdogNotRearmed
            | Self::RenewWithoutOwnerCheck
            | Self::OwnerCheckAlwaysTrue
            | Self::LostWakeUp
            | Self::WaitOnAnotherConnection => LockKind::Redisson,
            Self::RedlockWithoutElapsedTime => LockKind::Redlock,
        }
    }
}

/// The mechanism of [`InjectedBug::RedlockWithoutElapsedTime`].
pub(crate) fn hasty_redlock(servers: &[RedisServer]) -> Result<Arc<dyn Locker>, LockError> {
    Ok(Arc::new(HastyRedlock::new(servers)?))
}

/// The mechanism of every other bug.
pub(crate) fn on_one_server(bug: InjectedBug, server: &RedisServer) -> Arc<dyn Locker> {
    match bug {
        InjectedBug::SetnxWithoutExpire => Arc::new(SetnxExpire::without_expire(server)),
        InjectedBug::GetThenDel => Arc::new(OwnerCheckLock::new(server)),
        bug => {
            let sound: Arc<dyn Locker> = match bug {
                InjectedBug::DelWithoutOwnerCheck => Arc::new(LuaRelease::new(server)),
                // It is the bug that asks.
                InjectedBug::WaitOnAnotherConnection => {
                    Arc::new(Redisson::new(server, RedissonOptions::default()))
                }
                _ => Arc::new(Redisson::on(server)),
            };
            let renewer = Arc::new(AnyOwnerRenewer(server.connection()));
            let (server, others) = (server.clone(), Arc::default());
            Arc::new(BuggyLocker { bug, sound, renewer, server, others })
        }
    }
}

/// A sound mechanism with one step changed.
struct BuggyLocker {
    bug: InjectedBug,
    sound: Arc<dyn Locker>,
    renewer: Arc<AnyOwnerRenewer>,
    server: RedisServer,
    others: Arc<OtherConnections>,
}

impl Locker for BuggyLocker {
    fn name(&self) -> &'static str {
        self.sound.name()
    }

    fn guarantees(&self) -> Guarantees {
        self.sound.guarantees()
    }

    fn fresh_owner(&self) -> Owner {
        self.sound.fresh_owner()
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            match self.bug {
                InjectedBug::WaitOnAnotherConnection => {
                    Redisson::on(&self.server).check_servers().await
                }
                _ => self.sound.check_servers().await,
            }
        })
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.sound.flush().await;
        })
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        let (bug, server) = (self.bug, self.server.clone());
        let (sound, renewer) = (self.sound.begin(request.clone()), Arc::clone(&self.renewer));
        let (others, messages) = (Arc::clone(&self.others), None);
        Box::new(BuggyAcquisition { bug, sound, server, renewer, others, request, messages })
    }
}

struct BuggyAcquisition {
    bug: InjectedBug,
    sound: Box<dyn Acquisition>,
    server: RedisServer,
    renewer: Arc<AnyOwnerRenewer>,
    others: Arc<OtherConnections>,
    request: Request,
    messages: Option<Subscription>,
}

impl Acquisition for BuggyAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let Some(sound) = self.sound.attempt().await? else { return Ok(None) };
            if self.bug == InjectedBug::WaitOnAnotherConnection {
                self.others.confirm(&self.server, &self.request.name).await?;
            }
            let Self { bug, server, renewer, request, .. } = self;
            Ok(Some(Box::new(BuggyHold {
                bug: *bug,
                sound,
                server: server.clone(),
                renewer: Arc::clone(renewer),
                request: request.clone(),
            }) as Box<dyn Hold>))
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        if self.bug != InjectedBug::LostWakeUp {
            return self.sound.wake_strategy();
        }
        WakeStrategy::Signal(Box::pin(async {
            let subscribe = || self.server.signals().subscribe(&channel(&self.request.name));
            self.messages.get_or_insert_with(subscribe).next(UNLIMITED_LEASE).await;
            Ok(WakeEvent::Retry)
        }))
    }

    fn is_queued(&self) -> bool {
        self.sound.is_queued()
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { self.sound.abandon().await })
    }
}

/// Connections from a pool, the one first that was used the longest time ago. WAIT speaks of what
/// the server had written when it last heard the connection that asks; a fresh one would be told
/// of everything.
#[derive(Default)]
struct OtherConnections {
    idle: Mutex<VecDeque<MultiplexedConnection>>,
}

impl OtherConnections {
    async fn confirm(&self, server: &RedisServer, name: &LockName) -> Result<(), LockError> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_TIMEOUT))
            .set_response_timeout(Some(CONFIRMATION_TIMEOUT + RESPONSE_TIMEOUT));
        let used = {
            let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
            (idle.len() >= OTHER_CONNECTIONS).then(|| idle.pop_front()).flatten()
        };
        let mut another = match used {
            Some(used) => used,
            None => server.connection().own(name.as_str(), &config).await?,
        };
        let needed = server.replication().confirmations();
        let mut wait = redis::cmd("WAIT");
        wait.arg(needed).arg(ms(CONFIRMATION_TIMEOUT));
        let confirmed: u32 = wait.query_async(&mut another).await?;
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push_back(another);
        if confirmed < needed {
            return Err(LockError::Backend(format!("only {confirmed} of {needed} confirmed it")));
        }
        Ok(())
    }
}

struct BuggyHold {
    bug: InjectedBug,
    sound: Box<dyn Hold>,
    server: RedisServer,
    renewer: Arc<AnyOwnerRenewer>,
    request: Request,
}

impl Hold for BuggyHold {
    fn validity(&self) -> Validity {
        self.sound.validity()
    }

    fn token(&self) -> Option<Token> {
        self.sound.token()
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let sound = self.sound.renewal_target()?;
        let renewer: Arc<dyn Renewer> = match self.bug {
            InjectedBug::NoWatchdog => return None,
            InjectedBug::WatchdogNotRearmed => Arc::new(NotRearmedRenewer {
                sound: sound.renewer,
                has_failed: AtomicBool::new(false),
            }),
            InjectedBug::RenewWithoutOwnerCheck | InjectedBug::OwnerCheckAlwaysTrue => {
                Arc::clone(&self.renewer) as _
            }
            _ => return Some(sound),
        };
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let name = &self.request.name;
            match self.bug {
                InjectedBug::DelWithoutOwnerCheck => {
                    one_key::delete(&mut self.server.connection(), name).await
                }
                InjectedBug::OwnerCheckAlwaysTrue => {
                    let lock = RedissonLock::new(&self.server, name.clone());
                    let was_held = lock.force_unlock().await?;
                    Ok(if was_held { Release::Released } else { Release::Gone })
                }
                _ => self.sound.release().await,
            }
        })
    }
}

/// Of one hold: asks no more once an answer did not come.
struct NotRearmedRenewer {
    sound: Arc<dyn Renewer>,
    has_failed: AtomicBool,
}

impl Renewer for NotRearmedRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            if self.has_failed.load(Ordering::Relaxed) {
                return vec![Renewal::Unknown; holds.len()];
            }
            let answers = self.sound.renew(holds).await;
            if answers.contains(&Renewal::Unknown) {
                self.has_failed.store(true, Ordering::Relaxed);
            }
            answers
        })
    }
}

/// Prolongs the key of any owner.
struct AnyOwnerRenewer(RedisConnection);

impl Renewer for AnyOwnerRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move { join_all(holds.iter().map(|hold| self.prolong(hold))).await })
    }
}

impl AnyOwnerRenewer {
    async fn prolong(&self, hold: &Request) -> Renewal {
        let sent = Instant::now();
        let mut prolong = redis::cmd("PEXPIRE");
        prolong.arg(hold.name.as_str()).arg(ms(hold.lease));
        match prolong.query_async::<bool>(&mut self.0.clone()).await {
            Ok(true) => Renewal::Renewed(Validity::of_lease(sent, hold.lease)),
            Ok(false) => Renewal::Lost,
            Err(_) => Renewal::Unknown,
        }
    }
}

/// Tokens from a counter in Redis, which a failover to a replica that lags sets back.
pub struct RedisTokens(RedisConnection);

impl RedisTokens {
    /// Tokens from that Redis.
    #[must_use]
    pub fn new(server: &RedisServer) -> Self {
        Self(server.connection())
    }
}

impl TokenIssuer for RedisTokens {
    fn next<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<Token, LockError>> {
        Box::pin(async move {
            let mut raise = redis::cmd("INCR");
            raise.arg(format!("token:{name}"));
            Ok(Token(raise.query_async(&mut self.0.clone()).await?))
        })
    }
}

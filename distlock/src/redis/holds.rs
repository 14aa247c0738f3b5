//! What `fair` and `read-write` are made of: holds that live in sorted sets on the server, and
//! waiters whom the server knows of.
//!
//! A hold is a member `request:owner` of a sorted set, scored with the instant (by the server's
//! clock) at which it ends. So each hold of a re-entrant owner, and each reader, has a lease of
//! its own; none shortens another's, and one that dies is not kept alive by the others' renewals.
//! A hold is named after its request, so an acquire that is sent again counts once. A release
//! leaves a latch behind for [`LATCH`], or until its answer has come: it gives a release that is
//! sent again the first one's answer, and refuses an acquire that arrives after it.
//!
//! A first attempt that finds the lock busy leaves no trace: that is all a `tryLock()` does. Then
//! the waiter subscribes to its channel, and from the next attempt on it is known to the server,
//! for [`PATIENCE`] after each look. It looks at least every third of that, which also bounds what
//! a lost message costs.
//!
//! On a Redis Cluster all keys of a lock are in one slot, and so are its messages.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use redis::{AsyncCommands, RedisResult};
use tokio::time::Instant;

use super::keys::{ms, own_key};
use super::once::{Answered, Failure, call, forget};
use super::renew::{per_slot, renewals};
use super::script::LuaScript;
use super::signal::Subscription;
use super::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Belief, Hold, LockError, Release, Renewal, Renewer, Request, Upkeep, Wake, Woken,
};

/// How long a waiter counts as alive after a look. The dead are passed over after that.
const PATIENCE: Duration = Duration::from_millis(1500);
/// How long a waiter waits for its subscription before it stands in the queue without one.
const SUBSCRIBED_WITHIN: Duration = Duration::from_millis(200);
/// How long the server remembers how a request ended; longer than any repetition takes.
const LATCH: Duration = Duration::from_secs(10);

/// What the scripts answer an acquire; all else is when to look again, in ms.
const HELD: i64 = 0;
const ENDED: i64 = -1;
const READS: i64 = -2;

/// A kind made of two scripts.
pub(super) struct Form {
    /// Takes the lock, or a place among those who wait.
    pub(super) acquire: &'static str,
    /// Gives back the hold, the place, or both.
    pub(super) release: &'static str,
    /// The prefix of the key of the holds.
    pub(super) holds: &'static str,
    /// What it tells its scripts about a request.
    pub(super) terms: TermsOf,
}

/// What is told about a request, given the command by which scripts tell waiters.
type TermsOf = fn(&Request, &str) -> Terms;

/// What a kind tells its scripts about one request.
pub(super) struct Terms {
    /// The keys of both scripts; the last is the request's latch.
    pub(super) keys: Vec<String>,
    /// Where the waiter is told that it may enter.
    pub(super) channel: String,
    /// Whether all processes that wait are told at once on that channel, so that whoever had the
    /// lock lately has to let the others go first.
    pub(super) is_shared: bool,
    /// The last arguments of the acquiring script.
    pub(super) acquire: Vec<String>,
    /// The last arguments of the releasing script.
    pub(super) release: Vec<String>,
}

/// A kind at work on a server.
pub(super) struct Scripts {
    server: RedisServer,
    acquire: LuaScript,
    release: LuaScript,
    renewer: Arc<HoldsRenewer>,
    terms: TermsOf,
}

impl Scripts {
    pub(super) fn new(server: &RedisServer, form: &Form) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            acquire: LuaScript::new(form.acquire),
            release: LuaScript::new(form.release),
            renewer: Arc::new(HoldsRenewer::new(server, form.holds)),
            terms: form.terms,
        })
    }

    pub(super) fn begin(self: &Arc<Self>, request: Request) -> Box<dyn Acquisition> {
        let terms = (self.terms)(&request, self.server.publish());
        let call = Call { scripts: Arc::clone(self), request, terms: Arc::new(terms) };
        Box::new(HoldAcquisition { call, repeated: false, place: None, look: Duration::ZERO })
    }
}

/// The scripts, for one request.
#[derive(Clone)]
struct Call {
    scripts: Arc<Scripts>,
    request: Request,
    terms: Arc<Terms>,
}

impl Call {
    fn keys(&self) -> Vec<&str> {
        self.terms.keys.iter().map(String::as_str).collect()
    }

    async fn acquire(&self, patience: Duration) -> Result<Answered<i64>, Failure> {
        let (owner, id) = (self.request.owner.as_str(), self.request.id.to_string());
        let args = (owner, id, ms(self.request.lease), ms(patience), &self.terms.acquire);
        call(&self.scripts.server, &self.scripts.acquire, &self.keys(), args).await
    }

    /// Also for what an attempt with an unknown outcome may have left; then the whole script is
    /// sent: a server that is hung now, and carries out the attempt and then this when it wakes up,
    /// has no way to ask for it.
    async fn release(&self, whole: bool) -> RedisResult<i64> {
        let (owner, id) = (self.request.owner.as_str(), self.request.id.to_string());
        let args = (owner, id, ms(LATCH), &self.terms.release);
        let mut connection = self.scripts.server.connection();
        let script = &self.scripts.release;
        if whole {
            script.call_whole(&mut connection, &self.keys(), args).await
        } else {
            script.call(&mut connection, &self.keys(), args).await
        }
    }
}

struct HoldAcquisition {
    call: Call,
    /// A request may still be under way on a connection that was lost.
    repeated: bool,
    /// There from the first busy answer on; attempts then ask for a place on the server.
    place: Option<Subscription>,
    /// When the server wants to be asked again.
    look: Duration,
}

impl HoldAcquisition {
    /// Somebody may have it after that; the attempt says until when.
    async fn give_way(&self) {
        let Call { scripts, request, terms } = &self.call;
        if !terms.is_shared || request.may_hold {
            return;
        }
        let look = || async {
            let mut connection = scripts.server.connection();
            let is_taken: bool = connection.exists(&terms.keys[0]).await?;
            Ok(is_taken.then_some(()))
        };
        if let Some(place) = scripts.server.signals().join(&terms.channel) {
            place.give_way(look).await;
        }
    }
}

#[async_trait]
impl Acquisition for HoldAcquisition {
    /// A connection that was lost costs one repetition, which is safe because it counts once.
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        self.give_way().await;
        let patience = if self.place.is_some() { PATIENCE } else { Duration::ZERO };
        let answer = self.call.acquire(patience).await?;
        self.repeated |= answer.again;
        match answer.value {
            HELD => {
                let belief = Belief::in_lease(answer.sent, self.call.request.lease);
                let (call, repeated) = (self.call.clone(), self.repeated);
                Ok(Some(Box::new(SetHold { call, repeated, belief })))
            }
            ENDED => Err(LockError::Backend("the request has been given up".into())),
            READS => Err(LockError::Unsupported("its reader to stop reading before it writes")),
            look => {
                self.look = Duration::from_millis(u64::try_from(look).unwrap_or(1));
                Ok(None)
            }
        }
    }

    fn wake(&mut self) -> Wake<'_> {
        Wake::Signal(Box::pin(async {
            if let Some(place) = &mut self.place {
                place.next(self.look).await;
            } else {
                let signals = self.call.scripts.server.signals();
                let place = self.place.insert(signals.subscribe(&self.call.terms.channel));
                // Its first signal says that no message is missed from now on.
                place.next(SUBSCRIBED_WITHIN).await;
            }
            Ok(Woken::LookAgain)
        }))
    }

    fn is_queued(&self) -> bool {
        self.place.is_some()
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        self.place = None;
        self.call.release(true).await?;
        Ok(())
    }
}

/// A member of a sorted set.
struct SetHold {
    call: Call,
    repeated: bool,
    belief: Belief,
}

#[async_trait]
impl Hold for SetHold {
    fn belief(&self) -> Belief {
        self.belief
    }

    fn upkeep(&self) -> Option<Upkeep> {
        let renewer = Arc::clone(&self.call.scripts.renewer);
        Some(Upkeep { renewer, request: self.call.request.clone() })
    }

    async fn release(&mut self) -> Result<Release, LockError> {
        let Call { scripts, terms, .. } = &self.call;
        let releasing = || scripts.server.signals().releasing(&terms.channel);
        let before = terms.is_shared.then(releasing);
        let answer = self.call.release(false).await?;
        if !self.repeated {
            let Call { scripts, terms, .. } = &self.call;
            if let Some(latch) = terms.keys.last() {
                forget(&scripts.server, latch).await;
            }
        }
        let Call { scripts, terms, .. } = &self.call;
        if let Ok(told @ 1..) = u64::try_from(answer - 1)
            && let Some(before) = before
        {
            scripts.server.signals().released(&terms.channel, told, before);
        }
        Ok(match answer {
            1.. => Release::Released,
            0 => Release::HeldByOther,
            _ => Release::Gone,
        })
    }
}

/// Renews the holds of one kind, many with one script.
struct HoldsRenewer {
    connection: RedisConnection,
    script: LuaScript,
    prefix: &'static str,
}

impl HoldsRenewer {
    fn new(server: &RedisServer, prefix: &'static str) -> Self {
        let script = LuaScript::new(include_str!("../../lua/renew_holds.lua"));
        Self { connection: server.connection(), script, prefix }
    }

    async fn send(&self, holds: &[Request]) -> RedisResult<Vec<i64>> {
        let keys: Vec<_> = holds.iter().map(|hold| own_key(self.prefix, &hold.name)).collect();
        let keys: Vec<_> = keys.iter().map(String::as_str).collect();
        let args: Vec<_> = holds
            .iter()
            .flat_map(|hold| [format!("{}:{}", hold.id, hold.owner), ms(hold.lease).to_string()])
            .collect();
        self.script.call(&mut self.connection.clone(), &keys, args).await
    }
}

#[async_trait]
impl Renewer for HoldsRenewer {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        per_slot(&self.connection, holds, |holds| self.renew_together(holds)).await
    }
}

impl HoldsRenewer {
    async fn renew_together(&self, holds: Vec<Request>) -> Vec<Renewal> {
        let sent = Instant::now();
        renewals(sent, &holds, self.send(&holds).await)
    }
}

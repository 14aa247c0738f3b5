//! The basis of `fair` and `read-write`: holds in sorted sets on the server, and waiters that the
//! server knows.
//!
//! A hold is a member `request:owner` of a sorted set, scored with its end by the server's clock.
//! So each hold of a re-entrant owner, and each reader, has its own lease: none shortens another's,
//! and no renewal keeps a dead one alive. A hold is named after its request, so an acquire that is
//! sent again counts once. The id of a request ends in the tag of its owner, if that has one: a
//! waiter is nothing but its request. A release leaves a latch for [`LATCH_TTL`], or until its
//! answer has come. The latch returns the first answer to a repeated release, and refuses an
//! acquire that arrives after it.
//!
//! A first attempt that finds the lock busy leaves no trace, as `tryLock()` requires. Then the
//! waiter subscribes to its channel. From the next attempt on the server knows it, for
//! [`WAITER_TTL`] after each look. It looks at least every third of that, which also bounds what a
//! lost message costs.
//!
//! On a Redis Cluster all keys of a lock are in one slot, and so are its messages.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use redis::{AsyncCommands, RedisResult};
use tokio::time::Instant;

use super::idempotent_call::{CallError, CallResult, delete_latches, idempotent_call};
use super::keys::{ms, own_key};
use super::renew::{per_slot, renewals};
use super::script::LuaScript;
use super::signal::Subscription;
use super::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Hold, LockError, LockName, OwnerTag, Release, Renewal, RenewalTarget, Renewer,
    Request, Validity, WakeEvent, WakeStrategy,
};

/// How long a waiter counts as alive after a look. The dead are passed over after that.
const WAITER_TTL: Duration = Duration::from_millis(1500);
/// How long a waiter waits for its subscription before it stands in the queue without one.
const SUBSCRIBE_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the server remembers how a request ended; longer than any repetition takes.
const LATCH_TTL: Duration = Duration::from_secs(10);

/// What the scripts answer an acquire; all else is when to look again, in ms.
const ANSWER_HELD: i64 = 0;
const ANSWER_GIVEN_UP: i64 = -1;
const ANSWER_OWNER_READS: i64 = -2;

/// A kind made of two scripts.
pub(crate) struct ScriptSet {
    /// Takes the lock, or a place among the waiters.
    pub(crate) acquire: &'static str,
    /// Gives back the hold, the place, or both.
    pub(crate) release: &'static str,
    /// The prefix of the key of the holds.
    pub(crate) holds: &'static str,
    /// What it passes to its scripts about a request.
    pub(crate) args_of_request: ScriptArgsOf,
}

/// What is passed about a lock and the request of that id, given the command by which scripts wake
/// waiters.
type ScriptArgsOf = fn(&LockName, &str, &str) -> ScriptArgs;

/// What a kind passes to its scripts about one request.
pub(crate) struct ScriptArgs {
    /// The keys of both scripts; the last is the request's latch.
    pub(crate) keys: Vec<String>,
    /// The channel on which the waiter learns that it may enter.
    pub(crate) channel: String,
    /// Whether one message on that channel wakes all waiting processes; the process that had the
    /// lock last then yields to the others.
    pub(crate) is_shared: bool,
    /// The last arguments of the acquiring script.
    pub(crate) acquire: Vec<String>,
    /// The last arguments of the releasing script.
    pub(crate) release: Vec<String>,
}

/// A kind at work on a server.
pub(crate) struct HoldScripts {
    server: RedisServer,
    acquire: LuaScript,
    release: LuaScript,
    renewer: Arc<HoldsRenewer>,
    args_of_request: ScriptArgsOf,
}

impl HoldScripts {
    pub(crate) fn new(server: &RedisServer, form: &ScriptSet) -> Arc<Self> {
        Arc::new(Self {
            server: server.clone(),
            acquire: LuaScript::new(form.acquire),
            release: LuaScript::new(form.release),
            renewer: Arc::new(HoldsRenewer::new(server, form.holds)),
            args_of_request: form.args_of_request,
        })
    }

    pub(crate) fn begin(self: &Arc<Self>, request: Request) -> Box<dyn Acquisition> {
        let id = stored_id(&request);
        self.begin_as(id, request)
    }

    /// Begins the request that the server stores by that id.
    pub(crate) fn begin_as(self: &Arc<Self>, id: String, request: Request) -> Box<dyn Acquisition> {
        let args_of_request = (self.args_of_request)(&request.name, &id, self.server.publish());
        let call = ScriptCall {
            scripts: Arc::clone(self),
            request,
            id: id.into(),
            args_of_request: Arc::new(args_of_request),
        };
        Box::new(HoldAcquisition { call, repeated: false, place: None, look: Duration::ZERO })
    }
}

/// The id by which the server stores a request: with the tag of its owner, so that a waiter has
/// one. No tag has a colon, which ends the id in a hold.
fn stored_id(Request { id, owner, .. }: &Request) -> String {
    let owner = owner.as_str();
    match owner.rsplit_once('@') {
        Some((_, tag)) if OwnerTag::find(owner).is_some() => format!("{id}@{tag}"),
        _ => id.to_string(),
    }
}

/// The scripts, for one request.
#[derive(Clone)]
struct ScriptCall {
    scripts: Arc<HoldScripts>,
    request: Request,
    /// As the server stores it.
    id: Arc<str>,
    args_of_request: Arc<ScriptArgs>,
}

impl ScriptCall {
    fn keys(&self) -> Vec<&str> {
        self.args_of_request.keys.iter().map(String::as_str).collect()
    }

    async fn acquire(&self, patience: Duration) -> Result<CallResult<i64>, CallError> {
        let (owner, id) = (self.request.owner.as_str(), &*self.id);
        let args = (owner, id, ms(self.request.lease), ms(patience), &self.args_of_request.acquire);
        idempotent_call(&self.scripts.server, &self.scripts.acquire, &self.keys(), args).await
    }

    /// Releases the hold, or what an attempt with an unknown outcome may have left. `whole` sends
    /// the script's text: a server that is hung now may run both later, and could not ask for it
    /// then.
    async fn release(&self, whole: bool) -> RedisResult<i64> {
        let (owner, id) = (self.request.owner.as_str(), &*self.id);
        let args = (owner, id, ms(LATCH_TTL), &self.args_of_request.release);
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
    call: ScriptCall,
    /// A request may still be under way on a connection that was lost.
    repeated: bool,
    /// There from the first busy answer on; attempts then ask for a place on the server.
    place: Option<Subscription>,
    /// When the server wants to be asked again.
    look: Duration,
}

impl HoldAcquisition {
    /// Another process may take the lock meanwhile; the attempt then finds its lease.
    async fn give_way(&self) {
        let ScriptCall { scripts, request, args_of_request, .. } = &self.call;
        if !args_of_request.is_shared || request.may_hold {
            return;
        }
        let look = || async {
            let mut connection = scripts.server.connection();
            let is_taken: bool = connection.exists(&args_of_request.keys[0]).await?;
            Ok(is_taken.then_some(()))
        };
        if let Some(place) = scripts.server.signals().join(&args_of_request.channel) {
            place.give_way(look).await;
        }
    }
}

impl Acquisition for HoldAcquisition {
    /// A connection that was lost costs one repetition, which is safe because it counts once.
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            self.give_way().await;
            let patience = if self.place.is_some() { WAITER_TTL } else { Duration::ZERO };
            let answer = self.call.acquire(patience).await?;
            self.repeated |= answer.again;
            match answer.value {
                ANSWER_HELD => {
                    let validity = Validity::of_lease(answer.sent, self.call.request.lease);
                    let (call, repeated) = (self.call.clone(), self.repeated);
                    Ok(Some(Box::new(SetHold { call, repeated, validity }) as Box<dyn Hold>))
                }
                ANSWER_GIVEN_UP => Err(LockError::Backend("the request has been given up".into())),
                ANSWER_OWNER_READS => {
                    Err(LockError::Unsupported("its reader to stop reading before it writes"))
                }
                look => {
                    self.look = Duration::from_millis(u64::try_from(look).unwrap_or(1));
                    Ok(None)
                }
            }
        })
    }

    fn wake_strategy(&mut self) -> WakeStrategy<'_> {
        WakeStrategy::Signal(Box::pin(async {
            if let Some(place) = &mut self.place {
                place.next(self.look).await;
            } else {
                let signals = self.call.scripts.server.signals();
                let place =
                    self.place.insert(signals.subscribe(&self.call.args_of_request.channel));
                // Its first signal says that no message is missed from now on.
                place.next(SUBSCRIBE_TIMEOUT).await;
            }
            Ok(WakeEvent::Retry)
        }))
    }

    fn is_queued(&self) -> bool {
        self.place.is_some()
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            self.place = None;
            self.call.release(true).await?;
            Ok(())
        })
    }
}

/// A member of a sorted set.
struct SetHold {
    call: ScriptCall,
    repeated: bool,
    validity: Validity,
}

impl Hold for SetHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.call.scripts.renewer);
        Some(RenewalTarget { renewer, request: self.call.request.clone() })
    }

    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let ScriptCall { scripts, args_of_request, .. } = &self.call;
            let releasing = || scripts.server.signals().releasing(&args_of_request.channel);
            let before = args_of_request.is_shared.then(releasing);
            let answer = self.call.release(false).await?;
            if !self.repeated {
                let ScriptCall { scripts, args_of_request, .. } = &self.call;
                if let Some(latch) = args_of_request.keys.last() {
                    delete_latches(&scripts.server, latch).await;
                }
            }
            let ScriptCall { scripts, args_of_request, .. } = &self.call;
            if let Ok(told @ 1..) = u64::try_from(answer - 1)
                && let Some(before) = before
            {
                scripts.server.signals().released(&args_of_request.channel, told, before);
            }
            Ok(match answer {
                1.. => Release::Released,
                0 => Release::HeldByOther,
                _ => Release::Gone,
            })
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
            .flat_map(|hold| {
                [format!("{}:{}", stored_id(hold), hold.owner), ms(hold.lease).to_string()]
            })
            .collect();
        self.script.call(&mut self.connection.clone(), &keys, args).await
    }
}

impl Renewer for HoldsRenewer {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            per_slot(&self.connection, holds, |holds| self.renew_together(holds)).await
        })
    }
}

impl HoldsRenewer {
    async fn renew_together(&self, holds: Vec<Request>) -> Vec<Renewal> {
        let sent = Instant::now();
        renewals(sent, &holds, self.send(&holds).await)
    }
}

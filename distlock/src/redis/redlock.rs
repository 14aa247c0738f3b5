//! `redlock`: the Redlock algorithm over independent Redis servers, 3 or 5 of them.
//!
//! How it works: all servers are asked at once, for the same owner, each with a short time-out. The
//! lock is held if a majority granted it and time is left: the lease, less the time of asking, less
//! the margin of every [`Validity`]. Otherwise it is released everywhere, also on servers without
//! an answer. The next attempt uses a fresh owner id, so a late release cannot free it. Waiters
//! poll at random intervals. A renewal needs a majority as well.
//!
//! Guarantees exclusion within the validity time, also while a minority of servers is lost. Flaws:
//! - a server that restarts empty can make a second majority. Repair: the server stays out for a
//!   lease ([`Redlock::with_restart_delay`]), or keeps an append-only file with fsync at every
//!   write;
//! - a clock that jumps on a majority ends the lock of a living holder;
//! - without a fence, a holder that is paused past its validity writes all the same.
//!
//! Source: the Redis documentation, "Distributed Locks with Redis"; M. Kleppmann's and S.
//! Sanfilippo's articles on it. Tests: `tests/redlock.rs`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all, ready};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout};

use crate::background::BackgroundTasks;
use crate::composite_inspector::CompositeInspector;
use crate::redis::inspector::RedisInspector;
use crate::redis::key_form::KeyForm;
use crate::redis::{RedisConnection, RedisServer};
use crate::{
    Acquisition, Guarantees, Hold, LockError, LockInspector, LockKind, Locker, Owner, Release,
    Renewal, RenewalTarget, Renewer, Request, Validity, guarantees,
};

const ACQUIRE_SCRIPT: &str = include_str!("../../lua/redlock_acquire.lua");
const COUNTS_SCRIPT: &str = include_str!("../../lua/redlock_counts.lua");
const HAS_NO_EXPIRY: &str = include_str!("../../lua/redlock_has_no_expiry.lua");
const RENEW_SCRIPT: &str = include_str!("../../lua/renew_if_owner.lua");
const RELEASE_SCRIPT: &str = include_str!("../../lua/release_if_owner.lua");
/// The key that stores when a server was first asked. It keeps the mechanism's former name: under
/// another key, every server would look empty to an upgraded client and stay out.
const ASKED_SINCE_KEY: &str = "distlock:red:asked-since";

/// How long one server may take to answer: a sixth of the lease, within these bounds. All are asked
/// at once, so one that is slow delays nothing that a majority decides.
const MIN_RESPONSE_TIMEOUT: Duration = Duration::from_millis(50);
const MAX_RESPONSE_TIMEOUT: Duration = Duration::from_millis(500);

/// A lock on a majority of independent servers. Cheap to clone.
#[derive(Clone)]
pub struct Redlock(Arc<RedlockNodes>);

struct RedlockNodes {
    connections: Vec<RedisConnection>,
    restart_delay: Duration,
    /// Made by the first request that leaves something to it.
    background: OnceLock<BackgroundTasks>,
}

impl Redlock {
    /// Over these servers: 3 or 5, independent of each other. Fails with
    /// [`LockError::Unsupported`] for other numbers.
    pub fn new(servers: &[RedisServer]) -> Result<Self, LockError> {
        if LockKind::Redlock.server_counts().is_some_and(|fit| !fit.contains(&servers.len())) {
            return Err(LockError::Unsupported("3 or 5 independent Redis servers"));
        }
        if servers.iter().any(|server| server.connection().has_homes()) {
            let needed = "independent Redis servers, not a Redis Cluster or sentinels";
            return Err(LockError::Unsupported(needed));
        }
        let connections = servers.iter().map(RedisServer::connection).collect();
        Ok(Self::over(connections, Duration::ZERO))
    }

    /// Keeps a server that came up empty out of majorities for this time: the longest lease in use.
    /// It delays the very first lock as well.
    #[must_use]
    pub fn with_restart_delay(self, restart_delay: Duration) -> Self {
        Self::over(self.0.connections.clone(), restart_delay)
    }

    fn over(connections: Vec<RedisConnection>, restart_delay: Duration) -> Self {
        let background = OnceLock::new();
        Self(Arc::new(RedlockNodes { connections, restart_delay, background }))
    }

    /// The renewer of its holds.
    #[cfg(feature = "injected-bugs")]
    pub(crate) fn renewer(&self) -> Arc<dyn Renewer> {
        Arc::clone(&self.0) as Arc<dyn Renewer>
    }
}

impl Locker for Redlock {
    fn name(&self) -> &'static str {
        LockKind::Redlock.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Redlock)
    }

    fn check_servers(&self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move { self.0.check().await })
    }

    fn flush(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(background) = self.0.background.get() {
                background.flush().await;
            }
        })
    }

    fn inspector(&self) -> Option<Arc<dyn LockInspector>> {
        Some(Arc::new(self.0.inspector()))
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(RedlockAcquisition { nodes: Arc::clone(&self.0), request })
    }
}

/// What one server said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    Yes,
    /// Another owner holds it, or the server stays out.
    No,
    /// No owner holds it.
    Gone,
    /// No answer in time, or an error.
    Unknown,
}

/// What the servers said.
struct Votes {
    of: usize,
    seen: Vec<Vote>,
    /// The last error.
    failure: Option<LockError>,
}

impl Votes {
    fn count(&self, vote: Vote) -> usize {
        self.seen.iter().filter(|seen| **seen == vote).count()
    }

    fn is_majority(&self, count: usize) -> bool {
        count > self.of / 2
    }

    fn carried(&self) -> bool {
        self.is_majority(self.count(Vote::Yes))
    }

    /// Whether a majority says that it is not the owner's.
    fn refused(&self) -> bool {
        self.is_majority(self.count(Vote::No) + self.count(Vote::Gone))
    }

    fn is_decided(&self) -> bool {
        self.carried() || self.refused()
    }

    /// Whether a majority has said anything.
    fn is_answered(&self) -> bool {
        self.is_majority(self.seen.len() - self.count(Vote::Unknown))
    }
}

/// Calls a script by its text: a server that is hung now and runs it later could not ask for the
/// text.
fn script(text: &str, keys: &[&str]) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys);
    command
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn answer_limit(lease: Duration) -> Duration {
    (lease / 6).clamp(MIN_RESPONSE_TIMEOUT, MAX_RESPONSE_TIMEOUT)
}

impl RedlockNodes {
    /// A hold is that of one owner on a majority.
    fn inspector(&self) -> CompositeInspector {
        let kind = LockKind::Redlock;
        let members = self
            .connections
            .iter()
            .map(|connection| (RedisInspector::of_key(kind, connection, KeyForm::Owner), None));
        CompositeInspector {
            kind: kind.as_str(),
            renewal: guarantees(kind).renewal,
            members: members.collect(),
            needed: self.connections.len() / 2 + 1,
            mixes_owners: false,
        }
    }

    /// Asks all servers at once, until the answers decide. Every command is written, or queued to
    /// be written, before the first answer is awaited. The other answers are awaited in the
    /// background, each within its time-out. So a server that is reconnecting gets the command too,
    /// and the slowest server is not taken for a silent one.
    async fn ask(
        &self,
        limit: Duration,
        command: redis::Cmd,
        enough: impl Fn(&Votes) -> bool,
    ) -> Votes {
        let mut votes = Votes { of: self.connections.len(), seen: Vec::new(), failure: None };
        let command = Arc::new(command);
        let ask = |connection: &RedisConnection| -> BoxFuture<'static, Result<i64, LockError>> {
            let (mut connection, command) = (connection.clone(), Arc::clone(&command));
            Box::pin(async move {
                let answer = timeout(limit, command.query_async(&mut connection));
                match answer.await {
                    Ok(answer) => Ok(answer?),
                    Err(_) => Err(LockError::Backend("no answer in time".into())),
                }
            })
        };
        let mut answers: FuturesUnordered<_> = self.connections.iter().map(ask).collect();
        while !enough(&votes) {
            let Some(answer) = answers.next().await else { break };
            votes.seen.push(match answer {
                Ok(1) => Vote::Yes,
                Ok(0) => Vote::No,
                Ok(_) => Vote::Gone,
                Err(error) => {
                    votes.failure = Some(error);
                    Vote::Unknown
                }
            });
        }
        if !answers.is_empty() {
            let background = || BackgroundTasks::current(LockKind::Redlock.as_str());
            self.background.get_or_init(background).spawn(answers.for_each(|_| ready(())));
        }
        votes
    }

    /// Whether a majority would be counted. Being asked this, a server that came up empty begins to
    /// count the time for which it stays out.
    async fn check(&self) -> Result<(), LockError> {
        let mut command = script(COUNTS_SCRIPT, &[ASKED_SINCE_KEY]);
        command.arg(milliseconds(self.restart_delay));
        // Of all that answer, since each of them has to begin to count.
        let votes = self.ask(MAX_RESPONSE_TIMEOUT, command, |_| false).await;
        if votes.carried() {
            return Ok(());
        }
        let (yes, out, of) = (votes.count(Vote::Yes), votes.count(Vote::Gone), votes.of);
        let failure = votes.failure.map(|failure| format!(": {failure}")).unwrap_or_default();
        let reason =
            format!("{yes} of {of} servers count, {out} stay out after a restart{failure}");
        Err(LockError::Backend(reason))
    }

    async fn acquire(&self, request: &Request) -> Votes {
        let mut command = script(ACQUIRE_SCRIPT, &[request.name.as_str(), ASKED_SINCE_KEY]);
        command
            .arg(request.owner.as_str())
            .arg(milliseconds(request.lease))
            .arg(milliseconds(self.restart_delay));
        // Without a decision all answers are awaited: busy or too many dead must not depend on
        // which was quicker.
        self.ask(answer_limit(request.lease), command, Votes::is_decided).await
    }

    async fn renew(&self, request: &Request) -> Renewal {
        let sent = Instant::now();
        let mut command = script(RENEW_SCRIPT, &[request.name.as_str()]);
        command.arg(request.owner.as_str()).arg(milliseconds(request.lease));
        let votes = self.ask(answer_limit(request.lease), command, Votes::is_decided).await;
        if votes.carried() {
            Renewal::Renewed(Validity::of_lease(sent, request.lease))
        } else if votes.refused() {
            Renewal::Lost
        } else {
            Renewal::Unknown
        }
    }

    /// Frees the lock everywhere, and waits until that is enough.
    async fn release(&self, request: &Request, enough: fn(&Votes) -> bool) -> Votes {
        let mut command = script(RELEASE_SCRIPT, &[request.name.as_str()]);
        command.arg(request.owner.as_str());
        self.ask(answer_limit(request.lease), command, enough).await
    }
}

impl Votes {
    fn error(self) -> LockError {
        let answered = self.seen.len() - self.count(Vote::Unknown);
        let reason = match self.failure {
            Some(LockError::HeldByOtherKind) => return LockError::HeldByOtherKind,
            Some(failure) => failure.to_string(),
            None => "no answer in time".to_owned(),
        };
        LockError::Backend(format!("{answered} of {} servers answered: {reason}", self.of))
    }
}

struct RedlockAcquisition {
    nodes: Arc<RedlockNodes>,
    request: Request,
}

impl Acquisition for RedlockAcquisition {
    fn attempt(&mut self) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, LockError>> {
        Box::pin(async move {
            let sent = Instant::now();
            let votes = self.nodes.acquire(&self.request).await;
            let validity = Validity::of_lease(sent, self.request.lease);
            if votes.carried() && !validity.has_ended() {
                let (nodes, request) = (Arc::clone(&self.nodes), self.request.clone());
                let hold: Box<dyn Hold> = Box::new(RedlockHold { nodes, request, validity });
                return Ok(Some(hold));
            }
            self.nodes.release(&self.request, Votes::is_answered).await;
            // One that says no while most are dead says nothing of the lock.
            if votes.is_answered() && votes.count(Vote::No) + votes.count(Vote::Gone) > 0 {
                // A server may carry that release out much later: it must not free what comes next.
                self.request.owner = Owner::fresh().tagged_as(&self.request.owner);
                return Ok(None);
            }
            Err(votes.error())
        })
    }

    /// Whether the keys without an expiry leave no majority.
    fn has_no_expiry(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            let command = script(HAS_NO_EXPIRY, &[self.request.name.as_str()]);
            let votes = self.nodes.ask(answer_limit(self.request.lease), command, |_| false).await;
            !votes.is_majority(votes.of - votes.count(Vote::Yes))
        })
    }

    fn abandon(&mut self) -> BoxFuture<'_, Result<(), LockError>> {
        Box::pin(async move {
            let votes = self.nodes.release(&self.request, Votes::is_answered).await;
            if votes.is_majority(votes.count(Vote::Unknown)) { Err(votes.error()) } else { Ok(()) }
        })
    }
}

struct RedlockHold {
    nodes: Arc<RedlockNodes>,
    request: Request,
    validity: Validity,
}

impl Hold for RedlockHold {
    fn validity(&self) -> Validity {
        self.validity
    }

    /// Each attempt has its own.
    fn owner(&self) -> Option<&Owner> {
        Some(&self.request.owner)
    }

    fn renewal_target(&self) -> Option<RenewalTarget> {
        let renewer = Arc::clone(&self.nodes) as Arc<dyn Renewer>;
        Some(RenewalTarget { renewer, request: self.request.clone() })
    }

    /// What the majority says: a lock that a minority still has was lost.
    fn release(&mut self) -> BoxFuture<'_, Result<Release, LockError>> {
        Box::pin(async move {
            let votes = self.nodes.release(&self.request, Votes::is_decided).await;
            if !votes.is_answered() {
                Err(votes.error())
            } else if votes.count(Vote::Yes) > 0 && !votes.refused() {
                Ok(Release::Released)
            } else if votes.count(Vote::No) > 0 {
                Ok(Release::HeldByOther)
            } else {
                Ok(Release::Gone)
            }
        })
    }
}

/// All holds are renewed at the same time, each on all servers.
impl Renewer for RedlockNodes {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            join_all(holds.iter().map(|request| RedlockNodes::renew(self, request))).await
        })
    }
}

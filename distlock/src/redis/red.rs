//! `red`: the Redlock algorithm over independent Redis servers, 3 or 5 of them.
//!
//! All are asked at once, for the same owner, each with a small time-out. The lock is held if a
//! majority said yes and time is left: the lease, minus what the asking took, minus the margin of
//! every [`Belief`]. Otherwise it is given back everywhere, also where no answer came, and the next
//! attempt is somebody else's, whom a release that comes late does not free. Waiting is polling at
//! random intervals. A renewal needs a majority as well.
//!
//! It survives the loss of a minority of servers. It does not survive a server that restarts empty
//! while its neighbours count on it, unless such a server stays out for a lease
//! ([`Red::with_restart_delay`]) or keeps an append-only file with fsync at every write; nor a
//! clock that jumps on a majority; nor, without a fence, a holder that is paused past the validity.
//! Source: the Redis documentation, "Distributed Locks with Redis"; M. Kleppmann's and S.
//! Sanfilippo's articles on it. Tests: `tests/red.rs`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, join_all, ready};
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, timeout};

use super::{RedisConnection, RedisServer};
use crate::background::Background;
use crate::{
    Acquisition, Belief, Guarantees, Hold, LockError, LockKind, Locker, Owner, Release, Renewal,
    Renewer, Request, Upkeep, guarantees,
};

const ACQUIRE: &str = include_str!("../../lua/red_acquire.lua");
const COUNTS: &str = include_str!("../../lua/red_counts.lua");
const RENEW: &str = include_str!("../../lua/renew_if_owner.lua");
const RELEASE: &str = include_str!("../../lua/release_if_owner.lua");
/// Where a server remembers since when it has been asked.
const ASKED_SINCE: &str = "distlock:red:asked-since";

/// How long one server may take to answer: a sixth of the lease, within these bounds. All are asked
/// at once, so one that is slow delays nothing that a majority decides.
const ANSWER_MIN: Duration = Duration::from_millis(50);
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// A lock on a majority of independent servers. Cheap to clone.
#[derive(Clone)]
pub struct Red(Arc<Nodes>);

struct Nodes {
    connections: Vec<RedisConnection>,
    restart_delay: Duration,
    /// Made by the first request that leaves something to it.
    background: OnceLock<Background>,
}

impl Red {
    /// Over these servers: 3 or 5, independent of each other. Fails with
    /// [`LockError::Unsupported`] for other numbers.
    pub fn new(servers: &[RedisServer]) -> Result<Self, LockError> {
        if LockKind::Red.server_counts().is_some_and(|fit| !fit.contains(&servers.len())) {
            return Err(LockError::Unsupported("3 or 5 independent Redis servers"));
        }
        if servers.iter().any(|server| server.connection().is_cluster()) {
            return Err(LockError::Unsupported("independent Redis servers, not a Redis Cluster"));
        }
        let connections = servers.iter().map(RedisServer::connection).collect();
        Ok(Self::over(connections, Duration::ZERO))
    }

    /// A server that came up empty is not counted before so long has passed: the longest lease that
    /// anybody uses. It also delays the very first lock by that.
    #[must_use]
    pub fn with_restart_delay(self, restart_delay: Duration) -> Self {
        Self::over(self.0.connections.clone(), restart_delay)
    }

    fn over(connections: Vec<RedisConnection>, restart_delay: Duration) -> Self {
        let background = OnceLock::new();
        Self(Arc::new(Nodes { connections, restart_delay, background }))
    }

    /// Who renews its holds.
    #[cfg(feature = "plants")]
    pub(super) fn renewer(&self) -> Arc<dyn Renewer> {
        Arc::clone(&self.0) as Arc<dyn Renewer>
    }
}

#[async_trait]
impl Locker for Red {
    fn name(&self) -> &'static str {
        LockKind::Red.as_str()
    }

    fn guarantees(&self) -> Guarantees {
        guarantees(LockKind::Red)
    }

    async fn check_servers(&self) -> Result<(), LockError> {
        self.0.check().await
    }

    async fn flush(&self) {
        if let Some(background) = self.0.background.get() {
            background.flush().await;
        }
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        Box::new(RedAcquisition { nodes: Arc::clone(&self.0), request })
    }
}

/// What one server said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vote {
    Yes,
    /// Somebody else's, or it stays out.
    No,
    /// Nobody holds it.
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

/// A script with its text: a server that is hung now, and carries it out when it wakes up, has no
/// way to ask for it.
fn script(text: &str, keys: &[&str]) -> redis::Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(text).arg(keys.len()).arg(keys);
    command
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn answer_limit(lease: Duration) -> Duration {
    (lease / 6).clamp(ANSWER_MIN, ANSWER_MAX)
}

impl Nodes {
    /// Asks all servers at once, until their answers are enough. Every server that there is a
    /// connection to has been sent the command by then, or is about to be, with others: each is
    /// asked before the first answer is looked at. The others are listened to in the background,
    /// each for no longer than an answer may take: also a server that is being connected to again
    /// shall hear of it, and one that is always the slowest shall not be taken for silent.
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
            let background = || Background::here(LockKind::Red.as_str());
            self.background.get_or_init(background).spawn(answers.for_each(|_| ready(())));
        }
        votes
    }

    /// Whether a majority would be counted. Being asked this, a server that came up empty begins to
    /// count the time for which it stays out.
    async fn check(&self) -> Result<(), LockError> {
        let mut command = script(COUNTS, &[ASKED_SINCE]);
        command.arg(milliseconds(self.restart_delay));
        // Of all that answer, since each of them has to begin to count.
        let votes = self.ask(ANSWER_MAX, command, |_| false).await;
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
        let mut command = script(ACQUIRE, &[request.name.as_str(), ASKED_SINCE]);
        command
            .arg(request.owner.as_str())
            .arg(milliseconds(request.lease))
            .arg(milliseconds(self.restart_delay));
        // Without a decision all are heard: whether it is busy, or too many are dead, must not hang
        // on who was the quicker.
        self.ask(answer_limit(request.lease), command, Votes::is_decided).await
    }

    async fn renew(&self, request: &Request) -> Renewal {
        let sent = Instant::now();
        let mut command = script(RENEW, &[request.name.as_str()]);
        command.arg(request.owner.as_str()).arg(milliseconds(request.lease));
        let votes = self.ask(answer_limit(request.lease), command, Votes::is_decided).await;
        if votes.carried() {
            Renewal::Renewed(Belief::in_lease(sent, request.lease))
        } else if votes.refused() {
            Renewal::Lost
        } else {
            Renewal::Unknown
        }
    }

    /// Frees the lock everywhere, and waits until that is enough.
    async fn release(&self, request: &Request, enough: fn(&Votes) -> bool) -> Votes {
        let mut command = script(RELEASE, &[request.name.as_str()]);
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

struct RedAcquisition {
    nodes: Arc<Nodes>,
    request: Request,
}

#[async_trait]
impl Acquisition for RedAcquisition {
    async fn attempt(&mut self) -> Result<Option<Box<dyn Hold>>, LockError> {
        let sent = Instant::now();
        let votes = self.nodes.acquire(&self.request).await;
        let belief = Belief::in_lease(sent, self.request.lease);
        if votes.carried() && !belief.is_over() {
            let (nodes, request) = (Arc::clone(&self.nodes), self.request.clone());
            return Ok(Some(Box::new(RedHold { nodes, request, belief })));
        }
        self.nodes.release(&self.request, Votes::is_answered).await;
        // One that says no while most are dead says nothing of the lock.
        if votes.is_answered() && votes.count(Vote::No) + votes.count(Vote::Gone) > 0 {
            // A server may carry that release out much later: it must not free what comes next.
            self.request.owner = Owner::fresh();
            return Ok(None);
        }
        Err(votes.error())
    }

    async fn abandon(&mut self) -> Result<(), LockError> {
        let votes = self.nodes.release(&self.request, Votes::is_answered).await;
        if votes.is_majority(votes.count(Vote::Unknown)) { Err(votes.error()) } else { Ok(()) }
    }
}

struct RedHold {
    nodes: Arc<Nodes>,
    request: Request,
    belief: Belief,
}

#[async_trait]
impl Hold for RedHold {
    fn belief(&self) -> Belief {
        self.belief
    }

    fn upkeep(&self) -> Option<Upkeep> {
        let renewer = Arc::clone(&self.nodes) as Arc<dyn Renewer>;
        Some(Upkeep { renewer, request: self.request.clone() })
    }

    /// What the majority says: a lock that a minority still has was lost.
    async fn release(&mut self) -> Result<Release, LockError> {
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
    }
}

/// All holds are renewed at the same time, each on all servers.
#[async_trait]
impl Renewer for Nodes {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        join_all(holds.iter().map(|request| Nodes::renew(self, request))).await
    }
}

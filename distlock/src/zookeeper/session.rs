//! One session with `ZooKeeper`: requests with a time-out, and until when it may be believed in.
//!
//! The client's own futures wait for a reconnection for as long as the session may live, and what
//! they were to send is still sent then, in the order of the calls. So a time-out here means that
//! the request may yet be carried out; but a later request that was answered tells the truth about
//! every earlier one, because answers come in the order of the requests.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;
use zookeeper_client::{Client, Error, SessionState, Stat};

use crate::{Belief, LockError, Renewal, Renewer, Request};

/// How long the answers to one call may take.
const ANSWER: Duration = Duration::from_secs(2);
/// A connection that says nothing for so long is replaced. The client's own limit is two fifths of
/// the session's time-out: a server that takes a connection while it
/// starts, and then forgets it, would otherwise keep a patient session waiting for that long.
const SILENCE: Duration = Duration::from_secs(4);
/// A session without a connection for so long is left to its holds. The client waits longer and
/// longer before it tries again, up to the session's time-out: whoever comes now gets another one.
const PATIENCE: Duration = Duration::from_secs(2);
/// Before a request without an answer is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Of the time between two heartbeats of a session, three fit into its time-out.
const BEATS: u32 = 3;

/// By when the answers to a call that begins now have to be there.
pub(super) fn deadline() -> Instant {
    Instant::now() + ANSWER
}

pub(super) struct Session {
    client: Client,
    pub(super) runtime: Handle,
    /// When the last request was sent that was answered.
    heard: Mutex<Instant>,
    /// Since when it was seen to have no connection.
    apart: Mutex<Option<Instant>>,
    /// The nodes that are held, by the id of the acquisition that made them.
    held: Mutex<HashMap<Uuid, Arc<str>>>,
}

/// Why there is no good answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// There is none: the request may have been carried out, or may yet be.
    Unanswered(String),
    /// The session has ended, and its nodes with it.
    Ended,
    /// The server said no and did nothing.
    Refused(Error),
}

impl From<Failure> for LockError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unanswered(reason) => Self::Backend(reason),
            Failure::Ended => Self::Backend("the ZooKeeper session has ended".into()),
            Failure::Refused(Error::NoChildrenForEphemerals) => Self::HeldByOtherKind,
            Failure::Refused(Error::BadArguments(reason)) => {
                Self::BadRequest { field: "ZooKeeper", limit: (*reason).to_owned() }
            }
            Failure::Refused(error) => Self::Backend(format!("ZooKeeper refused: {error}")),
        }
    }
}

impl Session {
    /// Opens a session on that runtime. One that is ready after its caller has gone is closed.
    pub(super) async fn open(
        cluster: String,
        timeout: Duration,
        runtime: Handle,
    ) -> Result<Self, Failure> {
        let sent = Instant::now();
        // The client's task lives where this is called.
        let opening = runtime.spawn(async move {
            // So that it says what is wrong; the caller tries again.
            Client::connector()
                .with_session_timeout(timeout)
                .with_connection_timeout(SILENCE.min(timeout * 2 / 5))
                .with_fail_eagerly()
                .connect(&cluster)
                .await
        });
        let no_session =
            |reason: &dyn Display| Failure::Unanswered(format!("no session: {reason}"));
        let client = match opening.await {
            Ok(Ok(client)) => client,
            Ok(Err(error @ Error::BadArguments(_))) => return Err(Failure::Refused(error)),
            Ok(Err(error)) => return Err(no_session(&error)),
            Err(error) => return Err(no_session(&error)),
        };
        Ok(Self {
            client,
            runtime,
            heard: Mutex::new(sent),
            apart: Mutex::default(),
            held: Mutex::default(),
        })
    }

    /// What the server agreed to: it ends the session when it has heard nothing for so long.
    pub(super) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// Whether it has ended, as far as this process knows.
    pub(super) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.client.state() == SessionState::SyncConnected
    }

    /// Whether somebody new should open another one: it has ended, or was seen without a connection
    /// before, long ago, and has none now.
    pub(super) fn is_over_for_others(&self) -> bool {
        let mut apart = lock(&self.apart);
        if self.is_connected() {
            *apart = None;
            return false;
        }
        let since = *apart.get_or_insert_with(Instant::now);
        self.has_ended() || since.elapsed() > PATIENCE
    }

    /// Resolves when requests can be sent, or never can be again.
    pub(super) async fn settled(&self) {
        // From here on no change is missed.
        let mut states = self.client.state_watcher();
        while !self.is_connected() && !self.has_ended() {
            states.changed().await;
        }
    }

    /// Until when what the session holds may be believed: the server keeps it that long after it
    /// has heard of it, and that was after the sending of the last request that was answered.
    pub(super) fn belief(&self) -> Belief {
        Belief::in_lease(*lock(&self.heard), self.timeout())
    }

    /// Remembers the node of a hold for the heartbeat.
    pub(super) fn keep(&self, id: Uuid, path: Arc<str>) {
        lock(&self.held).insert(id, path);
    }

    pub(super) fn forget(&self, id: Uuid) {
        lock(&self.held).remove(&id);
    }

    /// One request. It is sent before this returns for the first time.
    pub(super) async fn ask<'a, T, F>(
        &'a self,
        until: Instant,
        request: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let sent = Instant::now();
        let answer = timeout_at(until, request(&self.client)).await;
        self.judge(sent, answer)
    }

    /// One request that may be sent twice: again when its answer is lost, until the time is over.
    pub(super) async fn ask_again<'a, T, F>(
        &'a self,
        until: Instant,
        request: impl Fn(&'a Client) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        loop {
            match self.ask(until, &request).await {
                Err(Failure::Unanswered(_)) if Instant::now() < until => sleep(RETRY_PAUSE).await,
                outcome => return outcome,
            }
        }
    }

    /// A read, after a word from the leader: a server that is behind, or that has lost its leader,
    /// has no say.
    pub(super) async fn read<'a, T, F>(
        &'a self,
        until: Instant,
        path: &'a str,
        read: impl Fn(&'a Client, &'a str) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.ask_again(until, |client| {
            // Both are sent before either is answered.
            let (led, answer) = (client.sync(path), read(client, path));
            async {
                led.await?;
                answer.await
            }
        })
        .await
    }

    /// Whether the leader answers. While there is no connection nothing is sent: it would wait
    /// for one, and so would all that is sent after it.
    pub(super) async fn check(&self, until: Instant) -> Result<(), Failure> {
        if !self.is_connected() {
            return Err(Failure::Unanswered("no connection to ZooKeeper".into()));
        }
        self.ask(until, |client| client.sync("/")).await
    }

    /// Whether the node is there and this session's; if so, what is known of it.
    pub(super) async fn own(&self, path: &str, until: Instant) -> Result<Option<Stat>, Failure> {
        let stat = self.read(until, path, Client::check_stat).await?;
        Ok(stat.filter(|stat| self.is_mine(stat)))
    }

    fn is_mine(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.client.session_id().0
    }

    fn judge<T>(
        &self,
        sent: Instant,
        answer: Result<Result<T, Error>, Elapsed>,
    ) -> Result<T, Failure> {
        let failure = match answer {
            Ok(Ok(answer)) => {
                self.hear(sent);
                return Ok(answer);
            }
            Ok(Err(Error::SessionExpired | Error::AuthFailed | Error::ClientClosed)) => {
                Failure::Ended
            }
            Ok(Err(error)) if is_refusal(&error) => {
                self.hear(sent);
                Failure::Refused(error)
            }
            Ok(Err(error @ Error::BadArguments(_))) => Failure::Refused(error),
            _ if self.has_ended() => Failure::Ended,
            Ok(Err(error)) => Failure::Unanswered(error.to_string()),
            Err(_) => Failure::Unanswered("ZooKeeper did not answer in time".into()),
        };
        Err(failure)
    }

    fn hear(&self, sent: Instant) {
        let mut heard = lock(&self.heard);
        *heard = sent.max(*heard);
        *lock(&self.apart) = None;
    }
}

/// The heartbeat: one look at each held node, all sent before the first is answered, after a word
/// from the leader. The holds of a session share it.
#[async_trait]
impl Renewer for Session {
    async fn renew(&self, holds: &[Request]) -> Vec<Renewal> {
        let sent = Instant::now();
        let until = sent + ANSWER.min(self.timeout() / BEATS);
        let paths: Vec<_> = {
            let held = lock(&self.held);
            holds.iter().map(|hold| held.get(&hold.id).cloned()).collect()
        };
        let Some(path) = paths.iter().flatten().next() else {
            // All of them were released meanwhile.
            return vec![Renewal::Unknown; holds.len()];
        };
        let led = self.client.sync(path);
        let looks: Vec<_> =
            paths.iter().map(|path| Some(self.client.check_stat(path.as_ref()?))).collect();
        let led = self.judge(sent, timeout_at(until, led).await);
        let mut renewals = Vec::with_capacity(holds.len());
        for look in looks {
            renewals.push(match (&led, look) {
                (Err(Failure::Ended), _) => Renewal::Lost,
                (Err(_), _) | (_, None) => Renewal::Unknown,
                (Ok(()), Some(look)) => match self.judge(sent, timeout_at(until, look).await) {
                    Ok(Some(stat)) if self.is_mine(&stat) => {
                        Renewal::Renewed(Belief::in_lease(sent, self.timeout()))
                    }
                    Ok(_) | Err(Failure::Ended) => Renewal::Lost,
                    Err(_) => Renewal::Unknown,
                },
            });
        }
        renewals
    }
}

/// Whether the server itself said no, having done nothing.
fn is_refusal(error: &Error) -> bool {
    matches!(
        error,
        Error::NoNode
            | Error::NodeExists
            | Error::NotEmpty
            | Error::NoAuth
            | Error::BadVersion
            | Error::InvalidAcl
            | Error::NoChildrenForEphemerals
            | Error::QuotaExceeded
            | Error::Unimplemented
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one step that does not panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

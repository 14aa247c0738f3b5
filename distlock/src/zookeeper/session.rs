//! One session with `ZooKeeper`: requests with a time-out, and the validity of its holds.
//!
//! The client's own futures wait for a reconnection while the session may live. Their requests are
//! still sent then, in the order of the calls. So after a time-out here the request may yet be
//! carried out. But a later request that was answered proves the state of every earlier one,
//! because answers come in the order of requests.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::time::error::Elapsed;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;
use zookeeper_client::{Client, Error, SessionState, Stat};

use super::addresses;
use crate::{LockError, Renewal, Renewer, Request, Validity};

/// How long the answers to one call may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(2);
/// A connection without an answer for this long is replaced. The client's own limit is two fifths
/// of the session's time-out. A server that accepts a connection during its start, and then forgets
/// it, would delay a long session that long.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(4);
/// The limit of [`CONNECTION_TIMEOUT`] for a member of an ensemble. A frozen one may be tried three
/// times in a row.
const MEMBER_TIMEOUT: Duration = Duration::from_secs(3);
/// A session without a connection for this long is left to its holds; the next acquisition opens
/// another. The client itself retries with growing pauses, up to the session's time-out.
const DISCONNECTED_LIMIT: Duration = Duration::from_secs(2);
/// Before a request without an answer is sent again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);
/// Any version of a node will do.
const ANY_VERSION: i32 = -1;
/// Of the time between two heartbeats of a session, three fit into its time-out.
const HEARTBEATS_PER_TIMEOUT: u32 = 3;

/// By when the answers to a call that begins now have to be there.
pub(crate) fn deadline() -> Instant {
    Instant::now() + RESPONSE_TIMEOUT
}

pub(crate) struct ZooKeeperSession {
    client: Client,
    pub(crate) runtime: Handle,
    /// When the last request was sent that a majority has confirmed.
    confirmed: Mutex<Instant>,
    /// Since when it was seen to have no connection.
    apart: Mutex<Option<Instant>>,
    /// The nodes that are held, by the id of the acquisition that made them.
    held: Mutex<HashMap<Uuid, Arc<str>>>,
}

/// Why there is no good answer.
#[derive(Debug)]
pub(crate) enum RequestError {
    /// There is none: the request may have been carried out, or may yet be.
    Unanswered(String),
    /// The session has ended, and its nodes with it.
    Ended,
    /// The server said no and did nothing.
    Refused(Error),
}

impl From<RequestError> for LockError {
    fn from(failure: RequestError) -> Self {
        match failure {
            RequestError::Unanswered(reason) => Self::Backend(reason),
            RequestError::Ended => Self::Backend("the ZooKeeper session has ended".into()),
            RequestError::Refused(Error::NoChildrenForEphemerals) => Self::HeldByOtherKind,
            RequestError::Refused(Error::BadArguments(reason)) => {
                Self::BadRequest { field: "ZooKeeper", limit: (*reason).to_owned() }
            }
            RequestError::Refused(error @ (Error::NoAuth | Error::AuthFailed)) => {
                Self::AccessDenied(format!("ZooKeeper refused: {error}"))
            }
            RequestError::Refused(error) => Self::Backend(format!("ZooKeeper refused: {error}")),
        }
    }
}

impl ZooKeeperSession {
    /// Opens a session on that runtime. It is given up if its caller is dropped; one that the
    /// server has made by then ends by its time-out, without a node.
    pub(crate) async fn open(
        cluster: String,
        timeout: Duration,
        runtime: Handle,
    ) -> Result<Self, RequestError> {
        let sent = Instant::now();
        let connection_timeout = if addresses::is_ensemble(&cluster) {
            MEMBER_TIMEOUT.min(timeout / 5)
        } else {
            CONNECTION_TIMEOUT.min(timeout * 2 / 5)
        };
        let cluster = addresses::repeated(&cluster);
        // The client's task lives where this is called.
        let opening = AbortOnDropHandle::new(runtime.spawn(async move {
            // So that it says what is wrong; the caller tries again.
            Client::connector()
                .with_session_timeout(timeout)
                .with_connection_timeout(connection_timeout)
                .with_fail_eagerly()
                .connect(&cluster)
                .await
        }));
        let no_session =
            |reason: &dyn Display| RequestError::Unanswered(format!("no session: {reason}"));
        let client = match opening.await {
            Ok(Ok(client)) => client,
            Ok(Err(error @ Error::BadArguments(_))) => return Err(RequestError::Refused(error)),
            Ok(Err(error)) => return Err(no_session(&error)),
            Err(error) => return Err(no_session(&error)),
        };
        Ok(Self {
            client,
            runtime,
            confirmed: Mutex::new(sent),
            apart: Mutex::default(),
            held: Mutex::default(),
        })
    }

    /// The time-out that the server agreed to: after this time without a request it ends the
    /// session.
    pub(crate) fn timeout(&self) -> Duration {
        self.client.session_timeout()
    }

    /// Whether it has ended, as far as this process knows.
    pub(crate) fn has_ended(&self) -> bool {
        self.client.state().is_terminated()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.client.state() == SessionState::SyncConnected
    }

    /// Whether a new acquisition should open another session: it has ended, or has had no
    /// connection for [`DISCONNECTED_LIMIT`].
    pub(crate) fn is_over_for_others(&self) -> bool {
        let mut apart = lock(&self.apart);
        if self.is_connected() {
            *apart = None;
            return false;
        }
        let since = *apart.get_or_insert_with(Instant::now);
        self.has_ended() || since.elapsed() > DISCONNECTED_LIMIT
    }

    /// Resolves when requests can be sent, or never can be again.
    pub(crate) async fn settled(&self) {
        // From here on no change is missed.
        let mut states = self.client.state_watcher();
        while !self.is_connected() && !self.has_ended() {
            states.changed().await;
        }
    }

    /// The validity of the session's holds.
    pub(crate) fn validity(&self) -> Validity {
        self.validity_since(*lock(&self.confirmed))
    }

    /// A leader keeps the session for its time-out after it has heard of it. That may have been
    /// before the request: a server tells its leader twice a tick which sessions it has heard since
    /// the last time, and may lose it first. A session of two ticks or more is heard of within a
    /// quarter of its time-out, and the client is never quiet for more than a tenth.
    fn validity_since(&self, sent: Instant) -> Validity {
        Validity::of_lease(sent, self.timeout() / 5 * 3)
    }

    /// Remembers the node of a hold for the heartbeat.
    pub(crate) fn keep(&self, id: Uuid, path: Arc<str>) {
        lock(&self.held).insert(id, path);
    }

    pub(crate) fn forget(&self, id: Uuid) {
        lock(&self.held).remove(&id);
    }

    /// One request. It is sent before this returns for the first time.
    pub(crate) async fn ask<'a, T, F>(
        &'a self,
        until: Instant,
        request: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let answer = timeout_at(until, request(&self.client)).await;
        self.judge(answer)
    }

    /// One request that changes something. Its answer, a refusal too, says that a majority has
    /// agreed to it, and the session was alive then.
    pub(crate) async fn commit<'a, T, F>(
        &'a self,
        until: Instant,
        request: impl FnOnce(&'a Client) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let sent = Instant::now();
        let outcome = self.ask(until, request).await;
        if matches!(outcome, Ok(_) | Err(RequestError::Refused(_))) {
            let mut confirmed = lock(&self.confirmed);
            *confirmed = sent.max(*confirmed);
        }
        outcome
    }

    /// Has a majority confirm that the session is alive, unless one has since that time. A leader
    /// that is cut off from the others still answers all that changes nothing, `sync` too.
    pub(crate) async fn confirm(&self, since: Instant, until: Instant) -> Result<(), RequestError> {
        if *lock(&self.confirmed) >= since {
            return Ok(());
        }
        match repeat(until, || self.commit(until, change_nothing)).await {
            Err(RequestError::Refused(_)) => Ok(()),
            confirmed => confirmed,
        }
    }

    /// One request that may be sent twice: again when its answer is lost, until the time is over.
    pub(crate) async fn ask_again<'a, T, F>(
        &'a self,
        until: Instant,
        request: impl Fn(&'a Client) -> F,
    ) -> Result<T, RequestError>
    where
        F: Future<Output = Result<T, Error>>,
    {
        repeat(until, || self.ask(until, &request)).await
    }

    /// A read, after a word from the leader: a server that is behind, or that has lost its leader,
    /// has no say.
    pub(crate) async fn read<'a, T, F>(
        &'a self,
        until: Instant,
        path: &'a str,
        read: impl Fn(&'a Client, &'a str) -> F,
    ) -> Result<T, RequestError>
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
    pub(crate) async fn check(&self, until: Instant) -> Result<(), RequestError> {
        if !self.is_connected() {
            return Err(RequestError::Unanswered("no connection to ZooKeeper".into()));
        }
        self.ask(until, |client| client.sync("/")).await
    }

    /// Whether the node is there and this session's; if so, what is known of it.
    pub(crate) async fn own(
        &self,
        path: &str,
        until: Instant,
    ) -> Result<Option<Stat>, RequestError> {
        let stat = self.read(until, path, Client::check_stat).await?;
        Ok(stat.filter(|stat| self.is_mine(stat)))
    }

    fn is_mine(&self, stat: &Stat) -> bool {
        stat.ephemeral_owner == self.client.session_id().0
    }

    fn judge<T>(&self, answer: Result<Result<T, Error>, Elapsed>) -> Result<T, RequestError> {
        let failure = match answer {
            Ok(Ok(answer)) => {
                *lock(&self.apart) = None;
                return Ok(answer);
            }
            Ok(Err(Error::SessionExpired | Error::AuthFailed | Error::ClientClosed)) => {
                RequestError::Ended
            }
            Ok(Err(error)) if is_refusal(&error) => {
                *lock(&self.apart) = None;
                RequestError::Refused(error)
            }
            Ok(Err(error @ Error::BadArguments(_))) => RequestError::Refused(error),
            _ if self.has_ended() => RequestError::Ended,
            Ok(Err(error)) => RequestError::Unanswered(error.to_string()),
            Err(_) => RequestError::Unanswered("ZooKeeper did not answer in time".into()),
        };
        Err(failure)
    }
}

/// Asks again when there is no answer, until the time is over.
async fn repeat<T, F>(until: Instant, ask: impl Fn() -> F) -> Result<T, RequestError>
where
    F: Future<Output = Result<T, RequestError>>,
{
    loop {
        match ask().await {
            Err(RequestError::Unanswered(_)) if Instant::now() < until => {
                sleep(RETRY_PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// A transaction that any majority can carry out: the root is there.
fn change_nothing(client: &Client) -> impl Future<Output = Result<(), Error>> {
    let mut transaction = client.new_multi_writer();
    let checked = transaction.add_check_version("/", ANY_VERSION);
    let committed = transaction.commit();
    async move {
        checked?;
        committed.await.map(drop).map_err(Error::from)
    }
}

/// The heartbeat: a transaction, and one look at each held node, all sent before the first is
/// answered. The holds of a session share it.
impl Renewer for ZooKeeperSession {
    fn renew<'a>(&'a self, holds: &'a [Request]) -> BoxFuture<'a, Vec<Renewal>> {
        Box::pin(async move {
            let sent = Instant::now();
            let until = sent + RESPONSE_TIMEOUT.min(self.timeout() / HEARTBEATS_PER_TIMEOUT);
            let paths: Vec<_> = {
                let held = lock(&self.held);
                holds.iter().map(|hold| held.get(&hold.id).cloned()).collect()
            };
            let look = |path: &Option<Arc<str>>| Some(self.client.check_stat(path.as_ref()?));
            let mut looks = Vec::new();
            let confirmed = self.commit(until, |client| {
                let confirmed = change_nothing(client);
                looks.extend(paths.iter().map(look));
                confirmed
            });
            let confirmed = match confirmed.await {
                Err(RequestError::Refused(_)) => Ok(()),
                confirmed => confirmed,
            };
            let mut renewals = Vec::with_capacity(holds.len());
            for look in looks {
                renewals.push(match (&confirmed, look) {
                    (Err(RequestError::Ended), _) => Renewal::Lost,
                    // Without a path it was released meanwhile.
                    (Err(_), _) | (_, None) => Renewal::Unknown,
                    (Ok(()), Some(look)) => match self.judge(timeout_at(until, look).await) {
                        Ok(Some(stat)) if self.is_mine(&stat) => {
                            Renewal::Renewed(self.validity_since(sent))
                        }
                        Ok(_) | Err(RequestError::Ended) => Renewal::Lost,
                        Err(_) => Renewal::Unknown,
                    },
                });
            }
            renewals
        })
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

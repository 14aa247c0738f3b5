//! The connection to the master that the sentinels name.
//!
//! How it works: a [`Term`] is one master's time as master, with a connection of its own. It begins
//! when the sentinels name that server and `ROLE` says the same on the new connection. It ends when
//! - the sentinels name another one: a task asks them every [`WATCH_INTERVAL`];
//! - its connection is lost, or the server refuses a write as a replica.
//!
//! The next command then begins another term, so no other server is connected to without the
//! sentinels, and none without `ROLE`. What is under way when a term ends fails as on a lost
//! connection, also if its answer comes later: an old master that thaws grants nothing.
//!
//! While the sentinels do not answer, the term goes on: they may be down, and the master not. A
//! master that is cut off with its clients from all sentinels goes on to be used; `min-replicas-to-
//! write` on the server bounds that.
//!
//! Bounds: the sentinels are asked for a lost master every [`RETRY_INTERVAL`] at most; one task per
//! address. Tests: `tests/sentinel`.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, Cmd, ConnectionAddr, ConnectionInfo, Pipeline, ProtocolVersion, RedisError,
    RedisResult, ServerErrorKind, Value,
};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::reconnecting::ReconnectingConnection;
use super::sentinels::{MasterClaim, Sentinels, no_master};

/// How often the sentinels are asked whether the master is another one.
const WATCH_INTERVAL: Duration = Duration::from_millis(250);
/// How often commands have the sentinels asked when there is no master.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// How long the master may take to accept a connection and to say that it is one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

const READ_ONLY: redis::ErrorKind = redis::ErrorKind::Server(ServerErrorKind::ReadOnly);

pub(super) struct Master {
    sentinels: Sentinels,
    /// Login, database and TLS; the address is a sentinel's.
    info: Client,
    config: ConnectionManagerConfig,
    /// The latest one, which may have ended.
    term: watch::Sender<Option<Arc<Term>>>,
    /// Locked while the sentinels are asked. When that failed last, and why.
    failed: tokio::sync::Mutex<Option<(Instant, RedisError)>>,
    watcher: Mutex<Option<AbortHandle>>,
}

/// One master's time as master.
struct Term {
    /// Address and epoch.
    name: Arc<str>,
    client: Client,
    server: ReconnectingConnection,
    ended: CancellationToken,
}

impl Term {
    /// What the server answers while it is the master.
    async fn run<T, F: Future<Output = RedisResult<T>>>(&self, sent: F) -> RedisResult<T> {
        let answer = self.ended.run_until_cancelled(sent).await;
        let answer = answer.filter(|_| !self.ended.is_cancelled());
        let answer = answer.unwrap_or_else(|| Err(master_no_longer()));
        answer.inspect_err(|failure| self.seen(failure))
    }

    fn seen(&self, failure: &RedisError) {
        if ends_term(failure) {
            self.ended.cancel();
        }
    }
}

fn master_no_longer() -> RedisError {
    let why = "the Redis it was sent to is the master no longer";
    std::io::Error::new(std::io::ErrorKind::ConnectionAborted, why).into()
}

/// Whether a server that failed so is to be used only after the sentinels were asked again.
fn ends_term(failure: &RedisError) -> bool {
    failure.kind() == READ_ONLY || failure.is_connection_dropped()
}

impl Master {
    /// Sends nothing yet.
    pub(super) fn new(
        sentinels: Sentinels,
        info: Client,
        config: ConnectionManagerConfig,
    ) -> Arc<Self> {
        let (term, _) = watch::channel(None);
        let (failed, watcher) = (tokio::sync::Mutex::default(), Mutex::default());
        Arc::new(Self { sentinels, info, config, term, failed, watcher })
    }

    pub(super) fn info(&self) -> &ConnectionInfo {
        self.info.get_connection_info()
    }

    /// What the latest master is called; before the first one, the service.
    pub(super) fn known_name(&self) -> Arc<str> {
        let term = self.term.borrow();
        term.as_ref().map_or_else(|| self.sentinels.service().into(), |term| Arc::clone(&term.name))
    }

    /// What the master is called.
    pub(super) async fn name(self: &Arc<Self>) -> RedisResult<Arc<str>> {
        Ok(Arc::clone(&self.term().await?.name))
    }

    /// How to connect to the master, if it still is the one that is called so.
    pub(super) fn client(&self, name: &str) -> RedisResult<Client> {
        let term = self.term.borrow();
        let term = term.as_ref().filter(|term| *term.name == *name && !term.ended.is_cancelled());
        let term = term.ok_or_else(|| no_master(format!("{name} is not the master now")))?;
        Ok(term.client.clone())
    }

    /// Fails if the master is not the one that is called so any more.
    pub(super) fn still(&self, name: &str) -> RedisResult<()> {
        self.client(name).map(drop).map_err(|_| master_no_longer())
    }

    /// Notes what a server answered on another connection. One that is lost there ends no term: a
    /// server with too many clients refuses new connections, and goes on to serve this one.
    pub(super) fn seen(&self, failure: &RedisError) {
        if failure.kind() == READ_ONLY
            && let Some(term) = &*self.term.borrow()
        {
            term.seen(failure);
        }
    }

    /// Resolves when the master is another one than that of this name.
    pub(super) async fn replaced(&self, name: &str) {
        let is_another =
            |term: &Option<Arc<Term>>| term.as_ref().is_some_and(|term| *term.name != *name);
        let mut terms = self.term.subscribe();
        // The sender is here, so this cannot fail.
        let _another = terms.wait_for(is_another).await;
    }

    /// Sends a command to the master. One that was refused by a replica is sent once more.
    pub(super) async fn command(self: &Arc<Self>, command: &Cmd) -> RedisResult<Value> {
        let send = async || {
            let term = self.term().await?;
            term.run(async { term.server.command(command).await?.extract_error() }).await
        };
        let answer = match send().await {
            Err(failure) if failure.kind() == READ_ONLY => send().await,
            answer => answer,
        };
        // The runtime of the watcher may have ended.
        answer.inspect_err(|_| self.start_watcher())
    }

    /// Sends commands to the master.
    pub(super) async fn send_together(
        self: &Arc<Self>,
        pipeline: &Pipeline,
        (offset, count): (usize, usize),
    ) -> RedisResult<Vec<Value>> {
        let term = self.term().await?;
        let send = |mut manager: ConnectionManager| async move {
            manager.send_packed_commands(pipeline, offset, count).await
        };
        let answers = term.run(term.server.send(send)).await;
        let answers = answers.inspect_err(|_| self.start_watcher())?;
        for answer in &answers {
            if let Value::ServerError(error) = answer {
                term.seen(&error.clone().into());
            }
        }
        Ok(answers)
    }

    /// Begins a term if there is none.
    pub(super) async fn refresh(self: &Arc<Self>) -> RedisResult<()> {
        self.term().await.map(drop)
    }

    fn current(&self) -> Option<Arc<Term>> {
        self.term.borrow().clone().filter(|term| !term.ended.is_cancelled())
    }

    async fn term(self: &Arc<Self>) -> RedisResult<Arc<Term>> {
        if let Some(term) = self.current() {
            return Ok(term);
        }
        self.start_watcher();
        let mut failed = self.failed.lock().await;
        if let Some(term) = self.current() {
            return Ok(term);
        }
        if let Some((at, failure)) = &*failed
            && at.elapsed() < RETRY_INTERVAL
        {
            return Err(failure.clone());
        }
        let term = self.find().await;
        *failed = term.as_ref().err().map(|failure| (Instant::now(), failure.clone()));
        term
    }

    /// Asks the sentinels, and begins a term if they name another master or none has begun.
    async fn find(&self) -> RedisResult<Arc<Term>> {
        let claim = self.sentinels.master().await?;
        let MasterClaim { host, port, epoch } = claim;
        let name = format!("{host}:{port} since epoch {epoch}");
        if let Some(term) = self.current() {
            if *term.name == *name {
                return Ok(term);
            }
            term.ended.cancel();
        }
        let client = self.client_to(host, port)?;
        let connecting =
            ReconnectingConnection::connect_to_master(client.clone(), self.config.clone());
        let late = |_| no_master("the master does not answer");
        let server = timeout(CONNECT_TIMEOUT, connecting).await.map_err(late)??;
        let (name, ended) = (name.into(), CancellationToken::new());
        let term = Arc::new(Term { name, client, server, ended });
        let former = self.term.send_replace(Some(Arc::clone(&term)));
        if let Some(former) = former.filter(|former| former.name != term.name) {
            tracing::warn!(from = %former.name, to = %term.name, "Redis has another master");
        }
        Ok(term)
    }

    fn client_to(&self, host_there: String, port_there: u16) -> RedisResult<Client> {
        // In RESP3 a lost connection would be replaced by itself.
        let settings = self.info().redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
        let info = self.info().clone().set_redis_settings(settings);
        let mut address = info.addr().clone();
        if let ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } =
            &mut address
        {
            (*host, *port) = (host_there, port_there);
        }
        Client::open(info.set_addr(address))
    }

    fn start_watcher(self: &Arc<Self>) {
        // Without a runtime there is nothing to follow with.
        let Ok(runtime) = Handle::try_current() else { return };
        // It is replaced in one step.
        let mut watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner);
        if watcher.as_ref().is_none_or(AbortHandle::is_finished) {
            *watcher = Some(runtime.spawn(watch(Arc::downgrade(self))).abort_handle());
        }
    }
}

async fn watch(master: Weak<Master>) {
    loop {
        sleep(WATCH_INTERVAL).await;
        let Some(master) = master.upgrade() else { return };
        let mut failed = master.failed.lock().await;
        let failure = master.find().await.err();
        match &failure {
            Some(error) if failed.is_none() => {
                tracing::warn!(%error, "the sentinels name no master that answers");
            }
            Some(error) => tracing::debug!(%error, "the sentinels name no master that answers"),
            None => {}
        }
        *failed = failure.map(|failure| (Instant::now(), failure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_by_what_its_server_says_or_a_lost_connection_only() {
        let of = |kind| RedisError::from(std::io::Error::from(kind));
        assert!(ends_term(&of(std::io::ErrorKind::ConnectionReset)));
        assert!(ends_term(&of(std::io::ErrorKind::ConnectionRefused)));
        assert!(ends_term(&RedisError::from((READ_ONLY, "a replica"))));
        assert!(!ends_term(&of(std::io::ErrorKind::TimedOut)), "the sentinels judge that");
        assert!(!ends_term(&no_master("it was another one's")), "nothing was sent to this one");
    }
}

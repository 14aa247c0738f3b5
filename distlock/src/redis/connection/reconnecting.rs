//! A connection to one server that is replaced when it ends, and also when it falls silent.
//!
//! How it works: redis-rs replaces a connection that was seen to end. A half-open connection, on
//! which the network drops all packets, never ends: each command on it times out. So this type
//! counts. When [`MAX_UNANSWERED`] commands in a row have had no answer, and the first was sent
//! [`SILENCE_TIMEOUT`] ago, one task opens another connection. It replaces the silent one for all
//! callers once the server has answered on it. The silent one is closed when its last command has
//! timed out. If the server does not answer on the new connection either, the old one stays: a hung
//! server still runs what was sent on it, in order. The next probe comes after a pause that doubles
//! within [`PROBE_PAUSE`]. A batch (see `command_batcher`) counts as one command.
//!
//! Guarantees:
//! - at most one such task and one additional connection at a time, and one new connection per
//!   pause;
//! - if commands keep coming, a server that answers on a new connection is in use again within
//!   [`SILENCE_TIMEOUT`], a pause and the time of connecting. Rarer commands need
//!   [`MAX_UNANSWERED`] of them.
//!
//! Does not guarantee that a command on the silent connection was not carried out: it failed
//! without an answer. A caller that drops commands before their answers may have a good connection
//! replaced.
//!
//! Tests: `tests/half_open.rs`.

use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout};

use super::command_batcher::{CommandBatch, CommandBatcher, CommandReply, EnqueueAction};

/// A connection with this number of commands in a row without an answer is silent,
const MAX_UNANSWERED: u32 = 3;
/// if the first of them was sent this long ago.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(1);
/// Between the looks whether the server answers on another connection.
const PROBE_PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How long such a look takes at most.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Cheap to clone; clones use the same socket.
#[derive(Clone)]
pub(super) struct ReconnectingConnection(Arc<ReconnectingState>);

struct ReconnectingState {
    /// What it is called where there is no other: it needs no name, and is asked for it often.
    name: Arc<str>,
    client: Client,
    config: ConnectionManagerConfig,
    /// Whether the server has to be a master.
    is_master: bool,
    current: Mutex<CurrentConnection>,
    batcher: CommandBatcher,
    answers: ResponseTracker,
}

/// Whether the latest command was answered: the number of those that were not, and in the lowest
/// bit whether one was since. Outcomes may be noted in another order than they had: an answer that
/// came before the connection ended says nothing about the next one.
#[derive(Default)]
struct ResponseTracker(AtomicU64);

impl ResponseTracker {
    fn is_responsive(&self) -> bool {
        self.0.load(Relaxed) & 1 == 1
    }

    /// To be noted with the outcome of what is sent from now on.
    fn failures(&self) -> u64 {
        self.0.load(Relaxed) >> 1
    }

    fn note(&self, is_answer: bool, failures: u64) {
        if !is_answer {
            let one_more = |now| Some((now | 1) + 1);
            let _always = self.0.fetch_update(Relaxed, Relaxed, one_more);
            return;
        }
        // Every command comes here; few change anything.
        let unheard = failures << 1;
        if self.0.load(Relaxed) == unheard {
            let _news = self.0.compare_exchange(unheard, unheard | 1, Relaxed, Relaxed);
        }
    }
}

struct CurrentConnection {
    manager: ConnectionManager,
    /// Of the managers that were in use; answers on an earlier one do not count.
    number: u64,
    /// Commands since the last answer, and when the first of them was sent.
    unanswered: u32,
    since: Instant,
    /// A task is probing whether the server answers on another connection.
    probing: bool,
    /// When it may look again, and the pause after that.
    probe_at: Instant,
    pause: Duration,
}

impl ReconnectingConnection {
    /// Connects with the first command.
    pub(super) fn connect_lazily(
        client: Client,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self::with(client, config, manager, false))
    }

    /// Connects now, to what has to be a master; so does each connection that replaces this one.
    pub(super) async fn connect_to_master(
        client: Client,
        config: ConnectionManagerConfig,
    ) -> RedisResult<Self> {
        let manager = connect(client.clone(), config.clone(), true).await?;
        Ok(Self::with(client, config, manager, true))
    }

    fn with(
        client: Client,
        config: ConnectionManagerConfig,
        manager: ConnectionManager,
        is_master: bool,
    ) -> Self {
        let now = Instant::now();
        let current = CurrentConnection {
            manager,
            number: 0,
            unanswered: 0,
            since: now,
            probing: false,
            probe_at: now,
            pause: PROBE_PAUSE.0,
        };
        let (current, batcher) = (Mutex::new(current), CommandBatcher::default());
        let (name, answers) = ("".into(), ResponseTracker::default());
        let state =
            ReconnectingState { name, client, config, is_master, current, batcher, answers };
        Self(Arc::new(state))
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    pub(super) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Sends a command, together with others that are sent at about the same time.
    pub(super) async fn command(&self, command: &Cmd) -> RedisResult<Value> {
        if command.is_no_response() {
            // It says nothing about the connection.
            let mut manager = self.0.current().manager.clone();
            return manager.send_packed_command(command).await;
        }
        let under_way = self.0.batcher.begin();
        if !under_way.alone
            && self.0.answers.is_responsive()
            && let Some(answer) = self.enqueue(command)
            && let Some(answer) = answer.receive().await
        {
            return answer;
        }
        let send = |mut manager: ConnectionManager| async move {
            manager.send_packed_command(command).await
        };
        self.send(send).await
    }

    /// Has it sent with others of the same runtime, if there is one.
    fn enqueue(&self, command: &Cmd) -> Option<CommandReply> {
        let runtime = Handle::try_current().ok()?;
        let (answer, action) = self.0.batcher.enqueue(command, runtime.id())?;
        match action {
            EnqueueAction::Nothing => {}
            EnqueueAction::StartFlusher => {
                let mut flusher = Flusher(Some(self.clone()));
                runtime.spawn(async move {
                    yield_to_ready_tasks().await;
                    if let Some(server) = flusher.0.take() {
                        server.deliver(server.0.batcher.take_batch()).await;
                    }
                });
            }
            EnqueueAction::Send(batch) => {
                let server = self.clone();
                runtime.spawn(async move { server.deliver(batch).await });
            }
        }
        Some(answer)
    }

    /// Sends a batch, or returns it to its callers, which then send their commands one by one. A
    /// queued command is sent at once or not at all.
    async fn deliver(&self, batch: CommandBatch) {
        if !self.0.answers.is_responsive() {
            return;
        }
        let send = async |commands: &Pipeline, count| {
            let send = |mut manager: ConnectionManager| async move {
                manager.send_packed_commands(commands, 0, count).await
            };
            self.send(send).await
        };
        batch.deliver(send).await;
    }

    /// Sends something that is answered.
    pub(super) async fn send<T, F: Future<Output = RedisResult<T>>>(
        &self,
        send: impl FnOnce(ConnectionManager) -> F,
    ) -> RedisResult<T> {
        let failures = self.0.answers.failures();
        let (manager, number, may_probe) = self.0.before_sending();
        if may_probe {
            ReconnectingState::start_probe(&self.0);
        }
        let answer = send(manager).await;
        self.0.answers.note(answer.is_ok(), failures);
        // An error from the server or the system is a sign of life, or of an end.
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            if self.0.current().may_probe() {
                ReconnectingState::start_probe(&self.0);
            }
        } else {
            self.0.answered(number);
        }
        answer
    }
}

impl ReconnectingState {
    fn current(&self) -> MutexGuard<'_, CurrentConnection> {
        // Each change is made of steps that do not panic.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also returns [`CurrentConnection::may_probe`]: one lock for both, since every command comes
    /// here.
    fn before_sending(&self) -> (ConnectionManager, u64, bool) {
        let mut current = self.current();
        let may_probe = current.may_probe();
        if current.unanswered == 0 {
            current.since = Instant::now();
        }
        current.unanswered = current.unanswered.saturating_add(1);
        (current.manager.clone(), current.number, may_probe)
    }

    fn answered(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            (current.unanswered, current.pause) = (0, PROBE_PAUSE.0);
        }
    }

    fn start_probe(shared: &Arc<Self>) {
        let probing = ProbeGuard(Arc::downgrade(shared));
        let (client, config) = (shared.client.clone(), shared.config.clone());
        let is_master = shared.is_master;
        // Without a runtime nothing could have been sent.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let found = timeout(PROBE_TIMEOUT, connect(client, config, is_master)).await;
            if let (Ok(Ok(manager)), Some(shared)) = (found, probing.0.upgrade()) {
                tracing::warn!("Redis connection silent; replaced");
                // Dropped here, with the lock released: its socket closes with its last command.
                let _silent = shared.replace(manager);
            }
        });
    }

    fn replace(&self, manager: ConnectionManager) -> ConnectionManager {
        let mut current = self.current();
        current.number += 1;
        current.unanswered = 0;
        std::mem::replace(&mut current.manager, manager)
    }
}

impl CurrentConnection {
    /// Whether this caller, and no other, starts a probe now.
    fn may_probe(&mut self) -> bool {
        if self.unanswered < MAX_UNANSWERED || self.probing {
            return false;
        }
        let now = Instant::now();
        self.probing = now >= self.since + SILENCE_TIMEOUT && now >= self.probe_at;
        self.probing
    }
}

async fn connect(
    client: Client,
    config: ConnectionManagerConfig,
    is_master: bool,
) -> RedisResult<ConnectionManager> {
    let mut manager = ConnectionManager::new_with_config(client, config).await?;
    if is_master {
        super::check_role(&mut manager).await?;
    } else {
        super::ping(&mut manager).await?;
    }
    Ok(manager)
}

/// The flusher's task. If the runtime ends first, its drop returns the commands to their callers.
struct Flusher(Option<ReconnectingConnection>);

impl Drop for Flusher {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            drop(server.0.batcher.take_batch());
        }
    }
}

/// Lets the tasks run that are ready. Unlike [`tokio::task::yield_now`], which also looks for what
/// has arrived, it keeps its place where another thread may take it over.
async fn yield_to_ready_tasks() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A look that is under way. It ends also if its task is dropped.
struct ProbeGuard(Weak<ReconnectingState>);

impl Drop for ProbeGuard {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut current = shared.current();
        current.probing = false;
        current.probe_at = Instant::now() + current.pause;
        current.pause = (current.pause * 2).min(PROBE_PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_what_was_sent_before_a_failure_says_nothing_after_it() {
        let answers = ResponseTracker::default();
        assert!(!answers.is_responsive(), "nothing was asked yet");
        let (first, second) = (answers.failures(), answers.failures());
        answers.note(true, first);
        assert!(answers.is_responsive());
        let late = answers.failures();
        answers.note(false, second);
        assert!(!answers.is_responsive());
        answers.note(true, late);
        assert!(!answers.is_responsive(), "it came on the connection that has ended");
        let third = answers.failures();
        answers.note(true, third);
        assert!(answers.is_responsive());
    }
}

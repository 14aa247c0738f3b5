//! A connection to one server that is made anew when it ends, and also when it falls silent.
//!
//! How it works: redis-rs makes a connection anew that was seen to end. One that is half open (the
//! path drops everything, one way or both) never ends: each command on it times out, for ever. So
//! this counts: when [`UNANSWERED`] commands in a row have had no answer, and the first of them was
//! sent [`SILENCE`] ago, one task makes another connection beside it. Only when the server has
//! answered there it takes the place of the silent one, for all who use it; that one is closed when
//! the last command on it has timed out. If the server does not answer there either it is not the
//! connection's fault: the old one stays, because a server that hangs carries out what was sent on
//! it in the order of sending. The next look comes after a pause that doubles from the first to the
//! second of [`PAUSE`]. Commands that go together (see `packets`) count as one.
//!
//! Guarantees: at most one such task and one additional connection at a time; at most one new
//! connection per pause; a server that answers on a new connection is in use again within
//! [`SILENCE`], a pause and the time of a connection, if commands keep coming. Whoever asks more
//! rarely needs [`UNANSWERED`] commands. Does not guarantee that a command on the silent connection
//! was not carried out: it failed without an answer, like any other that times out. A caller that
//! gives up on commands before they can be answered may have a good connection replaced.
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

use super::packets::{Answer, Packet, Packets, Rest};

/// So many commands in a row without an answer make a connection silent,
const UNANSWERED: u32 = 3;
/// if it is so long ago that the first of them was sent.
const SILENCE: Duration = Duration::from_secs(1);
/// Between the looks whether the server answers on another connection.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(2));
/// How long such a look takes at most.
const LOOK: Duration = Duration::from_secs(5);

/// Cheap to clone; clones use the same socket.
#[derive(Clone)]
pub(super) struct Steady(Arc<Shared>);

struct Shared {
    /// What it is called where there is no other: it needs no name, and is asked for it often.
    name: Arc<str>,
    client: Client,
    config: ConnectionManagerConfig,
    current: Mutex<Current>,
    packets: Packets,
    answers: Answers,
}

/// Whether the latest command was answered: the number of those that were not, and in the lowest
/// bit whether one was since. Outcomes may be noted in another order than they had: an answer that
/// came before the connection ended says nothing about the next one.
#[derive(Default)]
struct Answers(AtomicU64);

impl Answers {
    fn come(&self) -> bool {
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
        // Everybody comes here, and hardly anybody with news.
        let unheard = failures << 1;
        if self.0.load(Relaxed) == unheard {
            let _news = self.0.compare_exchange(unheard, unheard | 1, Relaxed, Relaxed);
        }
    }
}

struct Current {
    manager: ConnectionManager,
    /// Of the managers that were in use; what is heard of an earlier one does not count.
    number: u64,
    /// Commands since the last answer, and when the first of them was sent.
    unanswered: u32,
    since: Instant,
    /// A task is looking whether the server answers on another connection.
    looking: bool,
    /// When it may look again, and the pause after that.
    look_at: Instant,
    pause: Duration,
}

impl Steady {
    /// Connects with the first command.
    pub(super) fn later(client: Client, config: ConnectionManagerConfig) -> RedisResult<Self> {
        let manager = ConnectionManager::new_lazy_with_config(client.clone(), config.clone())?;
        Ok(Self::with(client, config, manager))
    }

    fn with(client: Client, config: ConnectionManagerConfig, manager: ConnectionManager) -> Self {
        let now = Instant::now();
        let current = Current {
            manager,
            number: 0,
            unanswered: 0,
            since: now,
            looking: false,
            look_at: now,
            pause: PAUSE.0,
        };
        let (current, packets) = (Mutex::new(current), Packets::default());
        let (name, answers) = ("".into(), Answers::default());
        Self(Arc::new(Shared { name, client, config, current, packets, answers }))
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
        let under_way = self.0.packets.begin();
        if !under_way.alone
            && self.0.answers.come()
            && let Some(answer) = self.lay(command)
            && let Some(answer) = answer.come().await
        {
            return answer;
        }
        let send = |mut manager: ConnectionManager| async move {
            manager.send_packed_command(command).await
        };
        self.send(send).await
    }

    /// Has it sent with others of the same runtime, if there is one.
    fn lay(&self, command: &Cmd) -> Option<Answer> {
        let runtime = Handle::try_current().ok()?;
        let (answer, rest) = self.0.packets.lay(command, runtime.id())?;
        match rest {
            Rest::Nothing => {}
            Rest::Gather => {
                let mut gatherer = Gatherer(Some(self.clone()));
                runtime.spawn(async move {
                    after_all_that_is_ready().await;
                    if let Some(server) = gatherer.0.take() {
                        server.deliver(server.0.packets.gathered()).await;
                    }
                });
            }
            Rest::Send(packet) => {
                let server = self.clone();
                runtime.spawn(async move { server.deliver(packet).await });
            }
        }
        Some(answer)
    }

    /// Or gives it back to its callers, who send each its own: what is laid is sent at once or not
    /// at all.
    async fn deliver(&self, packet: Packet) {
        if !self.0.answers.come() {
            return;
        }
        let send = async |commands: &Pipeline, count| {
            let send = |mut manager: ConnectionManager| async move {
                manager.send_packed_commands(commands, 0, count).await
            };
            self.send(send).await
        };
        packet.deliver(send).await;
    }

    /// Sends something that is answered.
    pub(super) async fn send<T, F: Future<Output = RedisResult<T>>>(
        &self,
        send: impl FnOnce(ConnectionManager) -> F,
    ) -> RedisResult<T> {
        let failures = self.0.answers.failures();
        let (manager, number, may_look) = self.0.before_sending();
        if may_look {
            Shared::look(&self.0);
        }
        let answer = send(manager).await;
        self.0.answers.note(answer.is_ok(), failures);
        // An error that the server or the system told is a sign of life, or of an end.
        if answer.as_ref().is_err_and(RedisError::is_timeout) {
            if self.0.current().may_look() {
                Shared::look(&self.0);
            }
        } else {
            self.0.answered(number);
        }
        answer
    }
}

impl Shared {
    fn current(&self) -> MutexGuard<'_, Current> {
        // Each change is made of steps that do not panic.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Also says what [`Current::may_look`] does: one visit for both, since everybody comes here.
    fn before_sending(&self) -> (ConnectionManager, u64, bool) {
        let mut current = self.current();
        let may_look = current.may_look();
        if current.unanswered == 0 {
            current.since = Instant::now();
        }
        current.unanswered = current.unanswered.saturating_add(1);
        (current.manager.clone(), current.number, may_look)
    }

    fn answered(&self, number: u64) {
        let mut current = self.current();
        if current.number == number {
            (current.unanswered, current.pause) = (0, PAUSE.0);
        }
    }

    fn look(shared: &Arc<Self>) {
        let looking = Looking(Arc::downgrade(shared));
        let (client, config) = (shared.client.clone(), shared.config.clone());
        // Without a runtime nothing could have been sent.
        let Ok(runtime) = Handle::try_current() else { return };
        runtime.spawn(async move {
            let found = timeout(LOOK, connect(client, config)).await;
            if let (Ok(Ok(manager)), Some(shared)) = (found, looking.0.upgrade()) {
                tracing::warn!("a connection to Redis that has fallen silent is replaced");
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

impl Current {
    /// Whether it is time for the caller, and nobody else, to look for another connection.
    fn may_look(&mut self) -> bool {
        if self.unanswered < UNANSWERED || self.looking {
            return false;
        }
        let now = Instant::now();
        self.looking = now >= self.since + SILENCE && now >= self.look_at;
        self.looking
    }
}

async fn connect(
    client: Client,
    config: ConnectionManagerConfig,
) -> RedisResult<ConnectionManager> {
    let mut manager = ConnectionManager::new_with_config(client, config).await?;
    redis::cmd("PING").exec_async(&mut manager).await?;
    Ok(manager)
}

/// Who is to send what waits. If the runtime ends before, the callers have it back.
struct Gatherer(Option<Steady>);

impl Drop for Gatherer {
    fn drop(&mut self) {
        if let Some(server) = &self.0 {
            drop(server.0.packets.gathered());
        }
    }
}

/// Lets the tasks run that are ready. Unlike [`tokio::task::yield_now`], which also looks for what
/// has arrived, it keeps its place where another thread may take it over.
async fn after_all_that_is_ready() {
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
struct Looking(Weak<Shared>);

impl Drop for Looking {
    fn drop(&mut self) {
        let Some(shared) = self.0.upgrade() else { return };
        let mut current = shared.current();
        current.looking = false;
        current.look_at = Instant::now() + current.pause;
        current.pause = (current.pause * 2).min(PAUSE.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_what_was_sent_before_a_failure_says_nothing_after_it() {
        let answers = Answers::default();
        assert!(!answers.come(), "nothing was asked yet");
        let (first, second) = (answers.failures(), answers.failures());
        answers.note(true, first);
        assert!(answers.come());
        let late = answers.failures();
        answers.note(false, second);
        assert!(!answers.come());
        answers.note(true, late);
        assert!(!answers.come(), "it came on the connection that has ended");
        let third = answers.failures();
        answers.note(true, third);
        assert!(answers.come());
    }
}

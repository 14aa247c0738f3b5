//! Commands that many tasks send at about the same time, in one packet.
//!
//! How it works: a command that finds none under way is sent at once. One that finds some is laid
//! beside others that are still to be sent. A task that begins with the first of them, the
//! gatherer, sends them when each task that could run has run; when they are [`MOST`] they are sent
//! without waiting for it, so that the server has work while the next ones are made. Without this
//! each command is a packet: a runtime runs the task that writes it right after the one that has
//! made it. That costs client and server a call of the kernel or two for each command.
//!
//! Guarantees: what a command on its own does, but for three things. An answer is told when all of
//! its packet are there (the server writes them together), and a connection that ends before that
//! leaves the outcome of the whole packet unknown. Commands that are begun before the earlier ones
//! are answered may arrive in another order. And what is laid is sent with others whose callers may
//! have gone: so nothing is laid, and nothing that was laid is sent, unless the connection has
//! answered the latest command, so that it goes at once and not whenever there is a connection
//! again. A command whose caller has gone
//! before its packet is made is not sent, and none of a packet whose callers have all gone before
//! it could be written.
//!
//! Those that wait are of the gatherer's runtime, so none waits for another one that stands still;
//! if it ends, they are told whether nothing was sent or nobody knows. Whoever begins a command in
//! one runtime and awaits it in another waits for the first one to run.
//!
//! Bounds: [`MOST`] commands in a packet, which lasts as long as one of its callers: so no more
//! than [`MOST`] copies for each of those there are.
//!
//! Tests: `tests/packets.rs`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::runtime::Id;
use tokio::sync::oneshot;

/// The most commands of a packet. Half as many, or twice, made locks of 64 tasks slower.
const MOST: usize = 16;

#[derive(Default)]
pub(super) struct Packets {
    under_way: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    packet: Packet,
    /// The runtime of the gatherer, while there is one.
    gatherer: Option<Id>,
}

/// Commands that are sent together, and who waits for their answers.
#[derive(Default)]
pub(super) struct Packet(Vec<(Cmd, Caller)>);

type Caller = oneshot::Sender<RedisResult<Value>>;

/// A command on its way, until this is dropped.
pub(super) struct UnderWay<'a> {
    count: &'a AtomicUsize,
    /// Whether no other was under way when it came.
    pub(super) alone: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What remains to be done for a command that was laid down.
pub(super) enum Rest {
    /// Nothing: the gatherer sends it.
    Nothing,
    /// To begin as the gatherer.
    Gather,
    /// To send this.
    Send(Packet),
}

impl Packets {
    pub(super) fn begin(&self) -> UnderWay<'_> {
        let others = self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay { count: &self.under_way, alone: others == 0 }
    }

    /// Lays a command beside those that wait, unless they are of another runtime.
    pub(super) fn lay(&self, command: &Cmd, runtime: Id) -> Option<(Answer, Rest)> {
        let mut waiting = self.waiting();
        let has_gatherer = waiting.gatherer.is_some();
        if *waiting.gatherer.get_or_insert(runtime) != runtime {
            return None;
        }
        let (tell, told) = oneshot::channel();
        waiting.packet.0.push((command.clone(), tell));
        let rest = if !has_gatherer {
            Rest::Gather
        } else if waiting.packet.0.len() < MOST {
            Rest::Nothing
        } else {
            Rest::Send(std::mem::take(&mut waiting.packet))
        };
        Some((Answer(told), rest))
    }

    /// What waits, to the gatherer, who is none any more.
    pub(super) fn gathered(&self) -> Packet {
        std::mem::take(&mut *self.waiting()).packet
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // One more or none cannot be left half done by a panic.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Comes when the packet has been answered.
pub(super) struct Answer(oneshot::Receiver<RedisResult<Value>>);

impl Answer {
    /// `None` if the command was not sent.
    pub(super) async fn come(self) -> Option<RedisResult<Value>> {
        self.0.await.ok()
    }
}

impl Packet {
    /// Sends it by that, which answers so many commands in their order, and tells the answers.
    pub(super) async fn deliver(
        self,
        send: impl AsyncFnOnce(&Pipeline, usize) -> RedisResult<Vec<Value>>,
    ) {
        let mut commands = Pipeline::with_capacity(self.0.len());
        let mut callers = Callers(VecDeque::with_capacity(self.0.len()));
        for (command, caller) in self.0 {
            if !caller.is_closed() {
                commands.add_command(command);
                callers.0.push_back(caller);
            }
        }
        if callers.0.is_empty() {
            return;
        }
        let count = callers.0.len();
        let outcome = tokio::select! {
            outcome = send(&commands, count) => outcome,
            () = callers.all_gone() => return callers.0.clear(),
        };
        match outcome {
            Ok(answers) => {
                for answer in answers {
                    let _has_gone = callers.0.pop_front().map(|caller| caller.send(Ok(answer)));
                }
            }
            Err(failure) => callers.fail(&failure),
        }
    }
}

/// Whoever waits for the answers of a packet that is being sent.
struct Callers(VecDeque<Caller>);

impl Callers {
    async fn all_gone(&mut self) {
        for caller in &mut self.0 {
            caller.closed().await;
        }
    }

    fn fail(&mut self, failure: &RedisError) {
        for caller in self.0.drain(..) {
            let _has_gone = caller.send(Err(failure.clone()));
        }
    }
}

impl Drop for Callers {
    /// The runtime ends, or answers are missing: what the server has done, nobody knows.
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.fail(&io::Error::from(io::ErrorKind::BrokenPipe).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::runtime::Handle;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_packet_that_cannot_be_sent_yet_goes_with_the_last_of_its_callers() {
        let (packets, runtime) = (Packets::default(), Handle::current().id());
        let mut callers: Vec<_> =
            (0..3).map(|_| packets.lay(&redis::cmd("PING"), runtime).expect("laid").0).collect();
        let never = async |_: &Pipeline, count| {
            assert_eq!(count, 3);
            pending().await
        };
        let mut delivery = tokio::spawn(packets.gathered().deliver(never));
        tokio::task::yield_now().await;
        let last = callers.pop();
        drop(callers);
        let one_is_left = timeout(Duration::from_millis(50), &mut delivery).await;
        assert!(one_is_left.is_err(), "somebody still waits");
        drop(last);
        timeout(Duration::from_secs(10), delivery).await.expect("it ends").expect("no panic");
    }
}

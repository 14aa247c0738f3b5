//! Commands that many tasks send at about the same time, in one packet.
//!
//! How it works: a command that finds none in flight is sent at once. Any other command is queued
//! beside commands that are still to be sent. The first of them starts a task, the flusher, which
//! sends them after each runnable task has run. A batch of [`MAX_BATCH_SIZE`] is sent without
//! waiting for the flusher, so that the server works while the next ones are made. Without this
//! each command is a packet: a runtime runs the writing task right after the task that made the
//! command. That costs client and server one or two system calls per command.
//!
//! Guarantees: those of a single command, with four exceptions.
//! - An answer is delivered when all answers of its batch are there; the server writes them
//!   together. A connection that ends before that leaves the outcome of the whole batch unknown.
//! - Commands that begin before earlier ones are answered may arrive in another order.
//! - A queued command is sent with others whose callers may have been dropped. So commands are
//!   queued, and queued commands are sent, only while the connection has answered its latest
//!   command. They go at once, and not after a reconnection.
//! - A command whose caller is dropped before the batch is made is not sent. A batch that cannot be
//!   written ends with the last of its callers.
//!
//! Queued commands belong to the flusher's runtime, so no command waits for another runtime that
//! stands still. If that runtime ends, its callers learn whether nothing was sent or the outcome is
//! unknown. A command that is begun in one runtime and awaited in another waits for the first one.
//!
//! Bounds: [`MAX_BATCH_SIZE`] commands in a batch. A batch lives as long as one of its callers, so
//! each living caller keeps at most [`MAX_BATCH_SIZE`] copies.
//!
//! Tests: `tests/command_batcher.rs`.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::runtime::Id;
use tokio::sync::oneshot;

/// The most commands of a packet. Half as many, or twice, made locks of 64 tasks slower.
const MAX_BATCH_SIZE: usize = 16;

#[derive(Default)]
pub(super) struct CommandBatcher {
    in_flight: AtomicUsize,
    pending: Mutex<PendingCommands>,
}

#[derive(Default)]
struct PendingCommands {
    batch: CommandBatch,
    /// The runtime of the flusher, while there is one.
    flusher: Option<Id>,
}

/// Commands that are sent together, each with the sender of its answer.
#[derive(Default)]
pub(super) struct CommandBatch(Vec<(Cmd, Caller)>);

type Caller = oneshot::Sender<RedisResult<Value>>;

/// A command on its way, until this is dropped.
pub(super) struct InFlightCommand<'a> {
    count: &'a AtomicUsize,
    /// Whether no other was under way when it came.
    pub(super) alone: bool,
}

impl Drop for InFlightCommand<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What the caller has to do after it queued a command.
pub(super) enum EnqueueAction {
    /// Nothing: the flusher sends it.
    Nothing,
    /// To begin as the flusher.
    StartFlusher,
    /// To send this.
    Send(CommandBatch),
}

impl CommandBatcher {
    pub(super) fn begin(&self) -> InFlightCommand<'_> {
        let others = self.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightCommand { count: &self.in_flight, alone: others == 0 }
    }

    /// Lays a command beside those that wait, unless they are of another runtime.
    pub(super) fn enqueue(
        &self,
        command: &Cmd,
        runtime: Id,
    ) -> Option<(CommandReply, EnqueueAction)> {
        let mut pending = self.pending();
        let has_flusher = pending.flusher.is_some();
        if *pending.flusher.get_or_insert(runtime) != runtime {
            return None;
        }
        let (tell, told) = oneshot::channel();
        pending.batch.0.push((command.clone(), tell));
        let rest = if !has_flusher {
            EnqueueAction::StartFlusher
        } else if pending.batch.0.len() < MAX_BATCH_SIZE {
            EnqueueAction::Nothing
        } else {
            EnqueueAction::Send(std::mem::take(&mut pending.batch))
        };
        Some((CommandReply(told), rest))
    }

    /// Takes the queued commands; the next command starts another flusher.
    pub(super) fn take_batch(&self) -> CommandBatch {
        std::mem::take(&mut *self.pending()).batch
    }

    fn pending(&self) -> MutexGuard<'_, PendingCommands> {
        // One more or none cannot be left half done by a panic.
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Comes when the packet has been answered.
pub(super) struct CommandReply(oneshot::Receiver<RedisResult<Value>>);

impl CommandReply {
    /// `None` if the command was not sent.
    pub(super) async fn receive(self) -> Option<RedisResult<Value>> {
        self.0.await.ok()
    }
}

impl CommandBatch {
    /// Sends the batch by `send`, which returns the answers in order, and delivers them.
    pub(super) async fn deliver(
        self,
        send: impl AsyncFnOnce(&Pipeline, usize) -> RedisResult<Vec<Value>>,
    ) {
        let mut commands = Pipeline::with_capacity(self.0.len());
        let mut callers = BatchCallers(VecDeque::with_capacity(self.0.len()));
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
            () = callers.all_dropped() => return callers.0.clear(),
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

/// The callers of a batch in flight.
struct BatchCallers(VecDeque<Caller>);

impl BatchCallers {
    async fn all_dropped(&mut self) {
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

impl Drop for BatchCallers {
    /// The runtime ends, or answers are missing: the outcome is unknown.
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
    async fn a_packet_that_cannot_be_sent_yet_is_dropped_with_the_last_of_its_callers() {
        let (batcher, runtime) = (CommandBatcher::default(), Handle::current().id());
        let mut callers: Vec<_> = (0..3)
            .map(|_| batcher.enqueue(&redis::cmd("PING"), runtime).expect("laid").0)
            .collect();
        let never = async |_: &Pipeline, count| {
            assert_eq!(count, 3);
            pending().await
        };
        let mut delivery = tokio::spawn(batcher.take_batch().deliver(never));
        tokio::task::yield_now().await;
        let last = callers.pop();
        drop(callers);
        let one_is_left = timeout(Duration::from_millis(50), &mut delivery).await;
        assert!(one_is_left.is_err(), "a caller still waits");
        drop(last);
        timeout(Duration::from_secs(10), delivery).await.expect("it ends").expect("no panic");
    }
}

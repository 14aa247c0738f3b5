//! A wait for a turn: a future that asks, queues, and is woken when the turn is its own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{KeyedMutex, Place, Shard, Turn};
use crate::LockName;

/// A wait for the turn of a key, which begins when it is first polled; dropping it leaves the
/// queue.
#[must_use = "nobody asks before it is polled"]
pub(crate) struct Waiting<'a> {
    pub(super) keys: &'a KeyedMutex,
    pub(super) name: &'a LockName,
    /// Whether it is to be called when it has lasted for a while, and whether it will be.
    pub(super) wants_watch: bool,
    pub(super) is_watched: bool,
    pub(super) queued: Option<Queued<'a>>,
}

/// A place in the queue.
pub(super) struct Queued<'a> {
    pub(super) shard: &'a Arc<Shard>,
    pub(super) place: Place,
    pub(super) number: u64,
    /// Since when it waits at least, if it was woken although its turn had not come.
    pub(super) late_since: Option<Instant>,
}

impl Waiting<'_> {
    /// The same, called as well when it has lasted for one to two [`super::watch::TICK`]s.
    pub(crate) fn watched(mut self) -> Self {
        self.wants_watch = true;
        self
    }

    /// Whether somebody else had the turn when it was first polled, and it has not come since.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    fn ask(&mut self, waker: &Waker) -> Option<Turn> {
        let Self { keys, name, wants_watch, .. } = *self;
        let watch = &keys.0.watch;
        self.is_watched = wants_watch && watch.runs();
        match keys.ask(name, waker, self.is_watched) {
            Ok(turn) => Some(turn),
            Err(queued) => {
                if wants_watch && !self.is_watched {
                    // For those who come later.
                    watch.start();
                }
                self.queued = Some(queued);
                None
            }
        }
    }

    /// Since when it has lasted at least, once it was called; if it never will be, since now.
    pub(crate) fn late(&self) -> Option<Instant> {
        let called = self.queued.as_ref()?.late_since;
        called.or_else(|| (!self.is_watched).then(Instant::now))
    }
}

impl Future for Waiting<'_> {
    type Output = Turn;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Turn> {
        let turn = match &mut self.queued {
            Some(queued) => queued.look(cx.waker()),
            None => self.ask(cx.waker()),
        };
        let Some(turn) = turn else { return Poll::Pending };
        self.queued = None;
        Poll::Ready(turn)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(queued) = self.queued.take() {
            queued.leave();
        }
    }
}

impl Queued<'_> {
    /// The turn if it has come.
    fn look(&mut self, waker: &Waker) -> Option<Turn> {
        let mut state = self.shard.state();
        let entry = state.at(self.place)?;
        if entry.given.take_if(|given| *given == self.number).is_some() {
            return Some(Turn { place: self.place, shard: Some(Arc::clone(self.shard)) });
        }
        let known = entry.waiters.waiter(self.number)?;
        self.late_since = known.late_since;
        if !known.waker.will_wake(waker) {
            let old = std::mem::replace(&mut known.waker, waker.clone());
            drop(state);
            // It may be the last there is of a task with locks of its own.
            drop(old);
        }
        None
    }

    fn leave(self) {
        let mut state = self.shard.state();
        let Some(entry) = state.at(self.place) else { return };
        if entry.given.take_if(|given| *given == self.number).is_some() {
            drop(state);
            // Nobody has seen it.
            return self.shard.pass_on(self.place, |_| ());
        }
        let waker = entry.waiters.leave(self.number);
        drop(state);
        drop(waker);
    }
}

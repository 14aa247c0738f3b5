//! A future that queues for a key and resolves with its guard.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{EntryId, KeyGuard, KeyState, KeyedMutex, Shard};
use crate::LockName;

/// Waits for the guard of a key, from its first poll on. Dropping it leaves the queue.
#[must_use = "it asks for nothing before it is polled"]
pub(crate) struct KeyLockFuture<'a, S: KeyState> {
    pub(super) keys: &'a KeyedMutex<S>,
    pub(super) name: &'a LockName,
    /// Whether it asks for a wake-up after a tick, and whether the waker has its key.
    pub(super) wants_slow_wake: bool,
    pub(super) is_in_waker: bool,
    pub(super) queued: Option<QueuePosition<'a, S>>,
}

/// A place in the queue.
pub(super) struct QueuePosition<'a, S: KeyState> {
    pub(super) shard: &'a Arc<Shard<S>>,
    pub(super) place: EntryId,
    pub(super) number: u64,
    /// The latest instant at which it can have come, if it was woken early.
    pub(super) late_since: Option<Instant>,
}

impl<S: KeyState> KeyLockFuture<'_, S> {
    /// Has it woken also when it has lasted for one to two ticks
    /// ([`super::slow_waiter_waker::WAKE_INTERVAL`]).
    pub(crate) fn with_slow_wake(mut self) -> Self {
        self.wants_slow_wake = true;
        self
    }

    /// Whether the key was taken at the first poll, and still is.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.is_some()
    }

    fn ask(&mut self, waker: &Waker) -> Option<KeyGuard<S>> {
        let Self { keys, name, wants_slow_wake, .. } = *self;
        let slow_waker = &keys.0.slow_waker;
        self.is_in_waker = wants_slow_wake && slow_waker.runs();
        match keys.ask(name, waker, self.is_in_waker) {
            Ok(key_guard) => Some(key_guard),
            Err(queued) => {
                if wants_slow_wake && !self.is_in_waker {
                    // Serves the waiters that come later.
                    slow_waker.start();
                }
                self.queued = Some(queued);
                None
            }
        }
    }

    /// Since when it has lasted at least, once it was called; if it never will be, since now.
    pub(crate) fn late(&self) -> Option<Instant> {
        let called = self.queued.as_ref()?.late_since;
        called.or_else(|| (!self.is_in_waker).then(Instant::now))
    }
}

impl<S: KeyState> Future for KeyLockFuture<'_, S> {
    type Output = KeyGuard<S>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<KeyGuard<S>> {
        let key_guard = match &mut self.queued {
            Some(queued) => queued.look(cx.waker()),
            None => self.ask(cx.waker()),
        };
        let Some(key_guard) = key_guard else { return Poll::Pending };
        self.queued = None;
        Poll::Ready(key_guard)
    }
}

impl<S: KeyState> Drop for KeyLockFuture<'_, S> {
    fn drop(&mut self) {
        if let Some(queued) = self.queued.take() {
            queued.leave();
        }
    }
}

impl<S: KeyState> QueuePosition<'_, S> {
    /// Returns the guard if it was handed to this waiter.
    fn look(&mut self, waker: &Waker) -> Option<KeyGuard<S>> {
        let mut state = self.shard.state();
        let entry = state.at(self.place)?;
        if entry.given.take_if(|given| *given == self.number).is_some() {
            return Some(KeyGuard { place: self.place, shard: Some(Arc::clone(self.shard)) });
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
            // The guard was handed over and not yet seen.
            return self.shard.pass_on(self.place, |_| ());
        }
        let waker = entry.waiters.leave(self.number);
        drop(state);
        drop(waker);
    }
}

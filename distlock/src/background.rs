//! Work that must be finished even if nobody waits for it any more.
//!
//! While its caller waits, the work runs in the caller's own task and costs nothing extra. A caller
//! that goes away in the middle leaves it to a task in the background, which goes on from where it
//! was. There is at most one such task per acquisition, and each ends with its mechanism's own
//! time-outs.
//!
//! There are at most [`LIMIT`] such tasks at a time, which takes a server that is away and far more
//! callers than usual. Work beyond that is dropped where it stands, at once, and counted: a lock
//! whose release was dropped, or that an abandoned attempt was still to get, is not renewed any
//! more and ends with its lease or session, a transaction with its connection; permits of a
//! semaphore, which have no lease, stay taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use metrics::{Counter, counter};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The most tasks in one background.
pub(crate) const LIMIT: usize = 16_384;

/// Where unfinished work goes.
#[derive(Clone)]
pub(crate) struct Background(Arc<Shared>);

/// Behind one pointer: every attempt and every release has a clone.
struct Shared {
    tasks: TaskTracker,
    runtime: Handle,
    places: Arc<Semaphore>,
    given_up: Counter,
}

impl Background {
    /// The background of the current runtime, for the locks of that kind.
    pub(crate) fn here(kind: &'static str) -> Self {
        Self(Arc::new(Shared {
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            places: Arc::new(Semaphore::new(LIMIT)),
            given_up: counter!("distlock_given_up_total", "kind" => kind),
        }))
    }

    /// Starts work that nobody waits for; drops it if there is too much of that already.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(place) = Arc::clone(&self.0.places).try_acquire_owned() else {
            self.0.given_up.increment(1);
            let what = "too much is under way: a release or an abandoned attempt is given up";
            tracing::debug!(limit = LIMIT, "{what}");
            return;
        };
        let work = async move {
            work.await;
            drop(place);
        };
        self.0.tasks.spawn_on(work, &self.0.runtime);
    }

    /// Starts a timer, which ends when it is dropped; [`Background::flush`] does not wait for it.
    pub(crate) fn timer(&self, work: impl Future<Output = ()> + Send + 'static) -> Timer {
        Timer(self.0.runtime.spawn(work).abort_handle())
    }

    /// The work as a future that may be dropped; `orphaned` gets the outcome nobody waited for.
    pub(crate) fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        orphaned: fn(T) -> Work<()>,
    ) -> Finish<T> {
        Finish { work: Some(Box::pin(work)), orphaned, background: self.clone() }
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn flush(&self) {
        // A closed tracker still takes tasks; closing only lets `wait` come to an end.
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// See [`Background::timer`].
pub(crate) struct Timer(AbortHandle);

impl Drop for Timer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// See [`Background::finish`].
pub(crate) struct Finish<T: Send + 'static> {
    work: Option<Work<T>>,
    orphaned: fn(T) -> Work<()>,
    background: Background,
}

impl<T: Send + 'static> Future for Finish<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Work that panics is not gone on with.
        let mut work = self.work.take().expect("polled after it was done");
        let poll = work.as_mut().poll(context);
        if poll.is_pending() {
            self.work = Some(work);
        }
        poll
    }
}

impl<T: Send + 'static> Drop for Finish<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        let orphaned = self.orphaned;
        self.background.spawn(async move { orphaned(work.await).await });
    }
}

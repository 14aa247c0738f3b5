//! Tasks that run to their end although their caller was dropped.
//!
//! While its caller waits, the work runs in the caller's own task and costs nothing extra. A caller
//! that goes away in the middle leaves it to a task in the background, which continues where it
//! was. There is at most one such task per acquisition, and each ends with its mechanism's own
//! time-outs.
//!
//! At most [`MAX_BACKGROUND_TASKS`] run at a time. More are needed only if a server is away and
//! callers are far more than usual. A task beyond that is dropped at once and counted in
//! `distlock_cleanups_dropped_total`:
//! - a lock that it would have released is not renewed any more and ends with its lease or session;
//! - a transaction ends with its connection;
//! - permits of a semaphore, which have no lease, stay taken.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use metrics::{Counter, counter};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

type BoxedTask<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The most tasks in one background.
pub(crate) const MAX_BACKGROUND_TASKS: usize = 16_384;

/// Where unfinished work goes.
#[derive(Clone)]
pub(crate) struct BackgroundTasks(Arc<BackgroundState>);

/// Behind one pointer: every attempt and every release has a clone.
struct BackgroundState {
    tasks: TaskTracker,
    runtime: Handle,
    places: Arc<Semaphore>,
    dropped: Counter,
}

impl BackgroundTasks {
    /// The background of the current runtime, for the locks of that kind.
    pub(crate) fn current(kind: &'static str) -> Self {
        Self(Arc::new(BackgroundState {
            tasks: TaskTracker::new(),
            runtime: Handle::current(),
            places: Arc::new(Semaphore::new(MAX_BACKGROUND_TASKS)),
            dropped: counter!("distlock_cleanups_dropped_total", "kind" => kind),
        }))
    }

    /// Spawns a detached task; drops it and counts it if there are [`MAX_BACKGROUND_TASKS`]
    /// already.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let Ok(place) = Arc::clone(&self.0.places).try_acquire_owned() else {
            self.0.dropped.increment(1);
            let what = "too many background tasks; release or cleanup dropped";
            tracing::debug!(limit = MAX_BACKGROUND_TASKS, "{what}");
            return;
        };
        let work = async move {
            work.await;
            drop(place);
        };
        self.0.tasks.spawn_on(work, &self.0.runtime);
    }

    /// Starts a timer that ends on drop; [`BackgroundTasks::flush`] does not wait for it.
    pub(crate) fn timer(
        &self,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDropHandle<()> {
        AbortOnDropHandle::new(self.0.runtime.spawn(work))
    }

    /// Runs the work as a future that may be dropped; `orphaned` then gets its outcome.
    pub(crate) fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
        orphaned: fn(T) -> BoxedTask<()>,
    ) -> DetachableFuture<T> {
        DetachableFuture { work: Some(Box::pin(work)), orphaned, background: self.clone() }
    }

    /// Waits until nothing is left to do.
    pub(crate) async fn flush(&self) {
        // A closed tracker still takes tasks; closing only lets `wait` come to an end.
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// See [`BackgroundTasks::finish`].
pub(crate) struct DetachableFuture<T: Send + 'static> {
    work: Option<BoxedTask<T>>,
    orphaned: fn(T) -> BoxedTask<()>,
    background: BackgroundTasks,
}

impl<T: Send + 'static> Future for DetachableFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        // Work that panics is not polled again.
        let mut work = self.work.take().expect("polled after it was done");
        let poll = work.as_mut().poll(context);
        if poll.is_pending() {
            self.work = Some(work);
        }
        poll
    }
}

impl<T: Send + 'static> Drop for DetachableFuture<T> {
    fn drop(&mut self) {
        let Some(work) = self.work.take() else { return };
        let orphaned = self.orphaned;
        self.background.spawn(async move { orphaned(work.await).await });
    }
}

//! Work that must be finished even if nobody waits for it any more.
//!
//! While its caller waits, the work runs in the caller's own task and costs nothing extra. A caller
//! that goes away in the middle leaves it to a task in the background, which goes on from where it
//! was. There is at most one such task per acquisition, and each ends with its mechanism's own
//! time-outs.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Where unfinished work goes.
#[derive(Clone)]
pub(crate) struct Background {
    tasks: TaskTracker,
    runtime: Handle,
}

impl Background {
    /// The background of the current runtime.
    pub(crate) fn here() -> Self {
        Self { tasks: TaskTracker::new(), runtime: Handle::current() }
    }

    /// Starts work that nobody waits for.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(work, &self.runtime);
    }

    /// Starts a timer, which ends when it is dropped; [`Background::flush`] does not wait for it.
    pub(crate) fn timer(&self, work: impl Future<Output = ()> + Send + 'static) -> Timer {
        Timer(self.runtime.spawn(work).abort_handle())
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
        self.tasks.close();
        self.tasks.wait().await;
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

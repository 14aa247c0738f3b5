//! Futures that are dropped in the middle.

use std::pin::pin;
use std::task::Poll;

/// Polls a future until it is done, or has been pending that many times; then it is dropped.
pub(crate) async fn up_to<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if left == 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

//! Reads and discards the rest of a body when its request is refused.
//!
//! A connection that is closed with unread bytes is reset, and the reset can overtake the answer. A
//! proxy that is still sending the body then has no answer for its client. So up to 4 MiB are read
//! for up to 2 s before the answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::header::EXPECT;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The most bytes that are discarded, more than clients send by mistake. A client that sends more
/// may miss the answer.
const MAX_DRAINED_BYTES: u64 = 4 << 20;
/// The longest time that draining takes; only a client that sends slowly on purpose needs more.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bodies that are drained at a time; other requests are answered at once.
pub(super) const MAX_CONCURRENT_DRAINS: usize = 64;

/// A body that can still be read after its request has ended.
#[derive(Clone)]
pub(super) struct DrainableBody(Arc<Mutex<SharedBody>>);

struct SharedBody {
    body: Body,
    /// The client waits for `100 Continue`, which hyper sends at the first read.
    expects_continue: bool,
}

impl DrainableBody {
    /// Makes the body of a request drainable; `None` if there is no body.
    pub(super) fn of(request: Request) -> (Request, Option<Self>) {
        if request.body().is_end_stream() {
            return (request, None);
        }
        let expects_continue = request.headers().contains_key(EXPECT);
        let (parts, body) = request.into_parts();
        let rest = Self(Arc::new(Mutex::new(SharedBody { body, expects_continue })));
        (Request::from_parts(parts, Body::new(rest.clone())), Some(rest))
    }

    /// Reads and discards the rest. It does not if the client waits for `100 Continue`, if the rest
    /// is larger than the limit, or if there is no permit.
    pub(super) async fn drain(mut self, permits: &Semaphore) {
        let expects_continue = self.shared().expects_continue;
        if expects_continue || self.size_hint().lower() > MAX_DRAINED_BYTES {
            return;
        }
        let Ok(_permit) = permits.try_acquire() else { return };
        let reading = async {
            let mut read = 0;
            while let Some(Ok(frame)) = self.frame().await {
                read += frame.data_ref().map_or(0, |data| data.len() as u64);
                if read > MAX_DRAINED_BYTES {
                    return;
                }
            }
        };
        // The answer is sent after a time-out too.
        let _in_time = timeout(DRAIN_TIMEOUT, reading).await;
    }

    fn shared(&self) -> MutexGuard<'_, SharedBody> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for DrainableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut shared = self.shared();
        shared.expects_continue = false;
        Pin::new(&mut shared.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.shared().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.shared().body.size_hint()
    }
}

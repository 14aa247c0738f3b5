//! What is left of a body when its request is refused.
//!
//! A connection that is closed with unread bytes is reset, and the reset can overtake the answer: a
//! proxy that was still sending the body then has none for its client. So the rest is read and
//! thrown away before the answer, as far as that is worth it.

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

/// More than people send by mistake. Whoever sends more may miss the answer.
const MOST: u64 = 4 << 20;
/// And longer than that takes, but for those who send slowly on purpose.
const PATIENCE: Duration = Duration::from_secs(2);
/// So many at a time; others are answered at once.
pub(super) const AT_A_TIME: usize = 64;

/// A body that its request reads, and that can be read on when the request has ended.
#[derive(Clone)]
pub(super) struct Rest(Arc<Mutex<Lent>>);

struct Lent {
    body: Body,
    /// The client sends nothing until somebody reads (`Expect: 100-continue`).
    waits: bool,
}

impl Rest {
    /// The same request, and what will be left of its body; `None` if it has none.
    pub(super) fn of(request: Request) -> (Request, Option<Self>) {
        if request.body().is_end_stream() {
            return (request, None);
        }
        let waits = request.headers().contains_key(EXPECT);
        let (parts, body) = request.into_parts();
        let rest = Self(Arc::new(Mutex::new(Lent { body, waits })));
        (Request::from_parts(parts, Body::new(rest.clone())), Some(rest))
    }

    /// Reads the rest, unless that would ask for it, it is known to be too much, or there is no
    /// place.
    pub(super) async fn discard(mut self, places: &Semaphore) {
        let waits = self.lent().waits;
        if waits || self.size_hint().lower() > MOST {
            return;
        }
        let Ok(_place) = places.try_acquire() else { return };
        let reading = async {
            let mut read = 0;
            while let Some(Ok(frame)) = self.frame().await {
                read += frame.data_ref().map_or(0, |data| data.len() as u64);
                if read > MOST {
                    return;
                }
            }
        };
        // Either way the answer is next.
        let _in_time = timeout(PATIENCE, reading).await;
    }

    fn lent(&self) -> MutexGuard<'_, Lent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpBody for Rest {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut lent = self.lent();
        lent.waits = false;
        Pin::new(&mut lent.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.lent().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lent().body.size_hint()
    }
}

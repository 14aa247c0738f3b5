//! A layer of tower: a request holds a lock until its response is made.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use tower_layer::Layer;
use tower_service::Service;

use crate::{LockError, LockName, LockOptions, Locks};

/// Runs the inner service under a lock, whose name a closure makes of the request.
///
/// The lock is taken before the inner service is called, and released before the response goes
/// out. A body that is streamed is sent without it. If the client leaves, the future is dropped:
/// the work ends, and the lock is released in the background.
///
/// Without the lock the layer answers by itself, with a problem (RFC 9457) and its `code`:
///
/// | status | `code` | when | was the inner service called? |
/// |---|---|---|---|
/// | 400 | `lock_name_invalid` | the closure failed | no |
/// | 409 | `lock_taken` | another holder had it during the whole wait | no |
/// | 503 | `lock_unavailable` | the lock's servers do not answer, or deny it | no |
/// | 503 | `lock_lost` | it was lost, and so the work was ended ([`Guard::run`]) | yes |
///
/// [`Guard::run`]: crate::Guard::run
#[derive(Clone)]
pub struct LockLayer<K> {
    locks: Locks,
    options: LockOptions,
    key: K,
}

impl<K> LockLayer<K> {
    /// Makes a layer. `key` is a `Fn(&http::Request<_>) -> Result<LockName, LockError>`.
    pub fn new(locks: Locks, options: LockOptions, key: K) -> Self {
        Self { locks, options, key }
    }
}

impl<K> std::fmt::Debug for LockLayer<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockLayer").field("options", &self.options).finish_non_exhaustive()
    }
}

impl<S, K: Clone> Layer<S> for LockLayer<K> {
    type Service = LockService<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, layer: self.clone() }
    }
}

/// The service of a [`LockLayer`].
#[derive(Debug, Clone)]
pub struct LockService<S, K> {
    inner: S,
    layer: LockLayer<K>,
}

impl<S, K, B, R> Service<Request<B>> for LockService<S, K>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Send>,
    S: Clone + Send + 'static,
    K: Fn(&Request<B>) -> Result<LockName, LockError>,
    B: Send + 'static,
    R: From<String> + Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The instance that is ready is the one to call; its clone may not be.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let LockLayer { locks, options, key } = &self.layer;
        let (locks, options, name) = (locks.clone(), *options, key(&request));
        Box::pin(async move {
            let Ok(name) = name else { return Ok(problem(&INVALID_NAME)) };
            // Called under the lock: a service may begin before its future is polled.
            let work = async { inner.call(request).await };
            locks.run(&name, &options, work).await.unwrap_or_else(|error| {
                log(&error, &name);
                Ok(problem(refusal(&error)))
            })
        })
    }
}

/// What every request will meet is an error of the program, which its operator must see.
fn log(error: &LockError, name: &LockName) {
    const TEXT: &str = "request refused without its lock";
    if matches!(error, LockError::BadRequest { .. } | LockError::Unsupported(_)) {
        tracing::error!(%error, lock = %name, "{TEXT}");
    } else {
        tracing::debug!(%error, lock = %name, "{TEXT}");
    }
}

struct Refusal {
    status: StatusCode,
    code: &'static str,
    /// Nothing of the error: its text may name servers.
    detail: &'static str,
}

const INVALID_NAME: Refusal = Refusal {
    status: StatusCode::BAD_REQUEST,
    code: "lock_name_invalid",
    detail: "the request names no valid lock",
};
const TAKEN: Refusal = Refusal {
    status: StatusCode::CONFLICT,
    code: "lock_taken",
    detail: "another request holds the lock; try again later",
};
const UNAVAILABLE: Refusal = Refusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: "lock_unavailable",
    detail: "the lock cannot be taken now; nothing was done",
};
const LOST: Refusal = Refusal {
    status: StatusCode::SERVICE_UNAVAILABLE,
    code: "lock_lost",
    detail: "the lock was lost during the work, which may be done in part",
};

fn refusal(error: &LockError) -> &'static Refusal {
    match error {
        LockError::TimedOut { .. } => &TAKEN,
        LockError::Lost => &LOST,
        _ => &UNAVAILABLE,
    }
}

fn problem<R: From<String>>(refusal: &Refusal) -> Response<R> {
    let Refusal { status, code, detail } = refusal;
    let (number, title) = (status.as_u16(), status.canonical_reason().unwrap_or_default());
    let body = format!(
        "{{\"title\":\"{title}\",\"status\":{number},\"code\":\"{code}\",\"detail\":\"{detail}\"}}"
    );
    let mut response = Response::new(R::from(body));
    *response.status_mut() = *status;
    let problem_json = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, problem_json);
    response
}

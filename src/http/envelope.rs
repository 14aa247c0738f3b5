//! What every request and every answer gets: an id, the replica's name, security headers, a line
//! in the log, a count, and for errors the body.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use metrics::Counter;
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::Shared;
use super::error::{ApiError, Problem};
use crate::sale::Refusal;
use crate::telemetry::{Timed, took};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REPLICA: HeaderName = HeaderName::from_static("x-replica");
const LAB: HeaderName = HeaderName::from_static("x-lab");
/// Constants, so that they are checked when this is compiled and not for each answer.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'",
);
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// What the envelope needs.
pub(super) struct Envelope {
    api: Shared,
    replica: Option<HeaderValue>,
    lab: Option<HeaderValue>,
    counts: Counts,
}

impl Envelope {
    pub(super) fn new(api: Shared) -> Self {
        let replica = HeaderValue::from_str(&api.replica).ok();
        let lab = api.lab.as_deref().and_then(|lab| HeaderValue::from_str(lab).ok());
        Self { api, replica, lab, counts: Counts::default() }
    }
}

/// The outermost layer.
pub(super) async fn wrap(
    State(envelope): State<Arc<Envelope>>,
    request: Request,
    next: Next,
) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("other", MatchedPath::as_str);
    let span = tracing::info_span!("request", %id, %method, route);
    let has_body = !request.body().is_end_stream();
    let mut last = false;
    let mut response = next.run(request).instrument(span.clone()).await;
    secure(response.headers_mut());
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        last |= has_body && problem.may_leave_body_unread();
        problem.fill(&mut response, &id);
    }
    let status = response.status().as_u16();
    let time = started.elapsed();
    let seconds = time.as_secs_f64();
    span.in_scope(|| tracing::debug!(status, seconds, "answered"));
    envelope.counts.count(route, (label(&method), status));
    took(Timed::Request, time);
    let headers = response.headers_mut();
    let id = HeaderValue::try_from(id).ok();
    for (name, value) in
        [(REQUEST_ID, id), (REPLICA, envelope.replica.clone()), (LAB, envelope.lab.clone())]
    {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    }
    if last || envelope.api.readiness.is_draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Counters of requests by route, method and status. To find one by its labels costs the recorder
/// a key with three texts, each time; there are only so many, so each is looked up once.
#[derive(Default)]
struct Counts(RwLock<HashMap<String, OfRoute>>);

/// By method and status.
type OfRoute = HashMap<(&'static str, u16), Counter>;

impl Counts {
    fn count(&self, route: &str, answered: (&'static str, u16)) {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(counter) = known.get(route).and_then(|known| known.get(&answered)) {
            return counter.increment(1);
        }
        drop(known);
        let (method, status) = answered;
        let labels = [
            ("method", method.to_owned()),
            ("route", route.to_owned()),
            ("status", status.to_string()),
        ];
        let counter = metrics::counter!("seckill_http_requests_total", &labels);
        counter.increment(1);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.entry(route.to_owned()).or_default().insert(answered, counter);
    }
}

/// Methods may be invented by callers; labels that never end would fill the memory.
fn label(method: &Method) -> &'static str {
    const KNOWN: [&str; 6] = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or("other")
}

/// The caller's id if it is 1 to 64 visible ASCII characters, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let fit = |id: &&str| (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    given.filter(fit).map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

/// Headers that keep browsers careful. Answers of the API are nobody's to keep.
fn secure(headers: &mut HeaderMap) {
    headers.insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    headers.insert(REFERRER_POLICY, NO_REFERRER);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    // Problems have no body yet, and no type.
    let is_json = headers.get(CONTENT_TYPE).is_none_or(|kind| kind == "application/json");
    if is_json {
        headers.insert(CACHE_CONTROL, NO_STORE);
    }
}

/// What is refused at once, before anything is done.
pub(super) struct Gate {
    /// More than the process can work on is.
    pub(super) places: Semaphore,
    pub(super) api: Shared,
}

/// Refuses what is too much, and what needs the database while that does not answer instead of
/// waiting for it. The purchase looks for itself, and counts what it refuses.
pub(super) async fn admit(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let Ok(_place) = gate.places.try_acquire() else {
        return ApiError::Overloaded.into_response();
    };
    if gate.api.readiness.is_down("database") && needs_database(&request) {
        return ApiError::Refused(Refusal::Unavailable("database")).into_response();
    }
    next.run(request).await
}

fn needs_database(request: &Request) -> bool {
    const OTHERS: [&str; 2] = ["/api/login/codes", "/api/vouchers/{id}/orders"];
    let route = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    route.is_some_and(|route| route.starts_with("/api/") && !OTHERS.contains(&route))
}

//! What every request and every answer gets: an id, the replica's name, security headers, a line
//! in the log, a count, and for errors the body.

use std::sync::Arc;
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;
use tracing::Instrument;

use super::Shared;
use super::error::{ApiError, Problem};
use crate::sale::Refusal;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REPLICA: HeaderName = HeaderName::from_static("x-replica");
const LAB: HeaderName = HeaderName::from_static("x-lab");
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; font-src 'self'; base-uri 'none'; \
     form-action 'self'; frame-ancestors 'none'";

/// The outermost layer.
pub(super) async fn wrap(State(api): State<Shared>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let id = request_id(request.headers());
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route = route.as_ref().map_or("other", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", %id, %method, route);
    let has_body = !request.body().is_end_stream();
    let mut last = false;
    let mut response = next.run(request).instrument(span.clone()).await;
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        last |= has_body && problem.may_leave_body_unread();
        problem.fill(&mut response, &id);
    }
    let status = response.status().as_u16();
    let seconds = started.elapsed().as_secs_f64();
    span.in_scope(|| tracing::debug!(status, seconds, "answered"));
    let labels = [("method", label(&method)), ("route", route), ("status", status.to_string())];
    metrics::counter!("seckill_http_requests_total", &labels).increment(1);
    metrics::histogram!("seckill_http_request_seconds").record(seconds);
    let headers = response.headers_mut();
    insert(headers, REQUEST_ID, &id);
    insert(headers, REPLICA, &api.replica);
    if let Some(lab) = &api.lab {
        insert(headers, LAB, lab);
    }
    if last || api.readiness.is_draining() {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Methods may be invented by callers; labels that never end would fill the memory.
fn label(method: &Method) -> String {
    const KNOWN: [Method; 6] =
        [Method::GET, Method::HEAD, Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
    if KNOWN.contains(method) { method.to_string() } else { "other".to_owned() }
}

/// The caller's id if it is 1 to 64 visible ASCII characters, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let fit = |id: &&str| (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    given.filter(fit).map_or_else(|| uuid::Uuid::new_v4().to_string(), str::to_owned)
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Headers that keep browsers careful. Answers of the API are nobody's to keep.
pub(super) async fn secure(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    let is_json = headers.get(CONTENT_TYPE).is_none_or(|kind| kind == "application/json");
    if is_json {
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Refuses at once what needs the database while that does not answer, instead of waiting for it.
/// The purchase looks for itself, and counts what it refuses.
pub(super) async fn need_database(
    State(api): State<Shared>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    const OTHERS: [&str; 2] = ["/api/login/codes", "/api/vouchers/{id}/orders"];
    let needed = route.is_some_and(|route| {
        route.as_str().starts_with("/api/") && !OTHERS.contains(&route.as_str())
    });
    if needed && api.readiness.is_down("database") {
        return ApiError::Refused(Refusal::Unavailable("database")).into_response();
    }
    next.run(request).await
}

/// Refuses at once what is more than the process can work on.
pub(super) async fn admit(
    State(places): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    match places.try_acquire() {
        Ok(_place) => next.run(request).await,
        Err(_) => ApiError::Overloaded.into_response(),
    }
}

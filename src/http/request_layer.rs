//! The one layer around all routes.
//!
//! It gives each request an id and a span, and each answer the replica's name, security headers, a
//! log line and a count. It also writes the body of problems.

use std::any::Any;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::HttpBody;
use axum::extract::{MatchedPath, Request};
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::Route;
use metrics::Counter;
use tokio::sync::{Semaphore, SemaphorePermit};
use tower::{Layer, Service};
use tower_http::catch_panic::CatchPanic;
use tracing::{Instrument, Span};

use super::ApiState;
use super::audit_log::{RequestId, count_refusal};
use super::body_drain::{self, DrainableBody};
use super::early_rejection;
use super::error::{self, ApiError, Problem};
use crate::sale::Refusal;
use crate::telemetry::{DurationMetric, record_duration, traces};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REPLICA: HeaderName = HeaderName::from_static("x-replica");
const LAB: HeaderName = HeaderName::from_static("x-lab");
/// Header values are constants: the compiler checks them once, instead of each answer.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; \
     frame-ancestors 'none'",
);
const NO_SNIFFING: HeaderValue = HeaderValue::from_static("nosniff");
const NO_REFERRER: HeaderValue = HeaderValue::from_static("no-referrer");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

/// The number of headers that most answers have.
const HEADERS: usize = 12;

/// What all requests share: header values, counters and permits.
pub(super) struct RequestContext {
    api: ApiState,
    replica: Option<HeaderValue>,
    lab: Option<HeaderValue>,
    counters: RequestCounters,
    /// One permit for each request in flight, up to `--max-requests`.
    in_flight: Semaphore,
    /// One permit for each refused request whose body is still read.
    drain_permits: Semaphore,
}

impl RequestContext {
    pub(super) fn new(api: ApiState) -> Self {
        let replica = HeaderValue::from_str(&api.replica).ok();
        let lab = api.lab.as_deref().and_then(|lab| HeaderValue::from_str(lab).ok());
        let in_flight = Semaphore::new(api.max_requests);
        let drain_permits = Semaphore::new(body_drain::MAX_CONCURRENT_DRAINS);
        Self { api, replica, lab, counters: RequestCounters::default(), in_flight, drain_permits }
    }

    /// The answer to a purchase that memory refuses before it is routed; see
    /// [`super::early_rejection`].
    pub(super) fn reject_early<B: HttpBody>(&self, request: &Request<B>) -> Option<Response> {
        let started = Instant::now();
        if self.in_flight.available_permits() == 0 {
            return None;
        }
        let rejection = early_rejection::rejection(&self.api, request)?;
        let id = request_id(request.headers());
        let mut response = Response::default();
        secure(response.headers_mut());
        count_refusal(&rejection);
        Problem::from(rejection).fill(&mut response, &id);
        // Only the line of `complete` is logged here, so the span is made if that line is.
        let span = if tracing::enabled!(tracing::Level::DEBUG) {
            request_span(&id, request.method(), early_rejection::ROUTE)
        } else {
            Span::none()
        };
        let method = label(request.method());
        let answered =
            AnsweredRequest { id, route: early_rejection::ROUTE, method, started, last: false };
        span.in_scope(|| self.complete(&mut response, answered));
        Some(response)
    }

    /// Counts an answer, and adds its id, the replica's name and the mode.
    fn complete(&self, response: &mut Response, answered: AnsweredRequest<'_>) {
        let AnsweredRequest { id, route, method, started, last } = answered;
        let status = response.status().as_u16();
        let time = started.elapsed();
        tracing::debug!(status, seconds = time.as_secs_f64(), "answered");
        self.counters.count(route, (method, status));
        record_duration(DurationMetric::Request, time);
        let headers = response.headers_mut();
        let id = HeaderValue::try_from(id).ok();
        for (name, value) in
            [(REQUEST_ID, id), (REPLICA, self.replica.clone()), (LAB, self.lab.clone())]
        {
            if let Some(value) = value {
                headers.insert(name, value);
            }
        }
        if last || self.api.readiness.is_draining() {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

/// A request whose answer is known.
struct AnsweredRequest<'a> {
    id: String,
    route: &'a str,
    method: &'static str,
    started: Instant,
    /// Whether the connection ends after this answer.
    last: bool,
}

/// The one layer around all routes. Each layer of a router costs every request several allocations
/// and moves, so this one does everything that all answers need.
#[derive(Clone)]
pub(super) struct RequestLayer {
    pub(super) context: Arc<RequestContext>,
    /// Whether the routes are for operators: these are served under any load.
    pub(super) is_for_operators: bool,
}

impl Layer<Route> for RequestLayer {
    type Service = RequestService;

    fn layer(&self, route: Route) -> RequestService {
        RequestService { layer: self.clone(), route: guard(route) }
    }
}

/// A route inside the layer. A panic in one request ends that request and no other.
#[derive(Clone)]
pub(super) struct RequestService {
    layer: RequestLayer,
    route: PanicGuardedRoute,
}

type PanicGuardedRoute = CatchPanic<Route, fn(Box<dyn Any + Send>) -> Response>;

impl Service<Request> for RequestService {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Service::<Request>::poll_ready(&mut self.route, context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let layer = self.layer.clone();
        let route = self.route.clone();
        Box::pin(async move { Ok(layer.wrap(request, route).await) })
    }
}

fn guard(route: Route) -> PanicGuardedRoute {
    CatchPanic::custom(route, error::panicked)
}

impl RequestLayer {
    async fn wrap(&self, request: Request, mut inner: PanicGuardedRoute) -> Response {
        let context = &self.context;
        let started = Instant::now();
        let id = request_id(request.headers());
        let method = request.method().clone();
        let route = request.extensions().get::<MatchedPath>().cloned();
        let route = route.as_ref().map_or("other", MatchedPath::as_str);
        let span = request_span(&id, &method, route);
        // Inside of the log's span, so that what is logged in the trace's spans keeps it.
        let trace = span.in_scope(|| trace_span(&request, &method, route));
        let has_body = !request.body().is_end_stream();
        let (mut request, rest) = DrainableBody::of(request);
        if route.starts_with("/api/admin/") {
            request.extensions_mut().insert(RequestId(id.clone()));
        }
        let mut last = false;
        let admitted = async {
            let _permit = match self.admit(route) {
                Ok(permit) => permit,
                Err(refusal) => return refusal.into_response(),
            };
            let Ok(answer) = inner.call(request).await;
            answer.into_response()
        };
        let mut response = admitted.instrument(trace.clone()).instrument(span.clone()).await;
        record_status(&trace, response.status());
        drop(trace);
        secure(response.headers_mut());
        let mut unread = None;
        if let Some(problem) = response.extensions_mut().remove::<Problem>() {
            last |= has_body && problem.may_leave_body_unread();
            unread = rest.filter(|_| problem.awaits_rest());
            problem.fill(&mut response, &id);
        }
        let answered = AnsweredRequest { id, route, method: label(&method), started, last };
        span.in_scope(|| context.complete(&mut response, answered));
        // Last: draining waits for the client, and one that hangs up meanwhile is counted.
        if let Some(rest) = unread {
            rest.drain(&context.drain_permits).await;
        }
        response
    }

    /// Refuses a request beyond `--max-requests`, and one that needs the database while that does
    /// not answer. Purchases check the database themselves, and count what they refuse.
    fn admit(&self, route: &str) -> Result<Option<SemaphorePermit<'_>>, ApiError> {
        if self.is_for_operators {
            return Ok(None);
        }
        let permit = self.context.in_flight.try_acquire().map_err(|_| ApiError::Overloaded)?;
        if needs_database(route) && self.context.api.readiness.is_down("database") {
            return Err(ApiError::Refused(Refusal::Unavailable("database")));
        }
        Ok(Some(permit))
    }
}

fn request_span(id: &str, method: &Method, route: &str) -> Span {
    tracing::info_span!("request", %id, %method, route)
}

/// The span of a request's trace, whose parent is the caller's.
fn trace_span(request: &Request, method: &Method, route: &str) -> Span {
    let parent = request.headers().get("traceparent").and_then(|parent| parent.to_str().ok());
    traces::request_span(parent, method.as_str(), route)
}

/// Ends what the span of a trace says of its request.
fn record_status(trace: &Span, status: StatusCode) {
    if trace.is_disabled() {
        return;
    }
    trace.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        trace.record("otel.status_code", "ERROR");
    }
}

fn needs_database(route: &str) -> bool {
    const OTHERS: [&str; 2] = ["/api/login/codes", early_rejection::ROUTE];
    route.starts_with("/api/") && !OTHERS.contains(&route)
}

/// Counters of requests by route, method and status. Each is looked up once: a look-up by labels
/// builds a key with three strings.
#[derive(Default)]
struct RequestCounters(RwLock<HashMap<String, RouteCounters>>);

/// The counters of a route, by method and status.
type RouteCounters = HashMap<(&'static str, u16), Counter>;

impl RequestCounters {
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

/// The label of a method; unknown ones share one, since clients can invent methods without end.
fn label(method: &Method) -> &'static str {
    const KNOWN: [&str; 6] = ["GET", "HEAD", "POST", "PATCH", "PUT", "DELETE"];
    KNOWN.into_iter().find(|known| method.as_str() == *known).unwrap_or("other")
}

/// The caller's id if it is 1 to 64 visible ASCII characters, otherwise a new one.
fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let fit = |id: &&str| (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    given.filter(fit).map_or_else(new_id, str::to_owned)
}

fn new_id() -> String {
    let mut digits = uuid::Uuid::encode_buffer();
    uuid::Uuid::new_v4().hyphenated().encode_lower(&mut digits).to_owned()
}

/// Sets the security headers. Answers of the API must not be cached, unless they say for how long.
fn secure(headers: &mut HeaderMap) {
    // One allocation for all headers that this module and hyper set.
    headers.reserve(HEADERS);
    headers.insert(X_CONTENT_TYPE_OPTIONS, NO_SNIFFING);
    headers.insert(REFERRER_POLICY, NO_REFERRER);
    headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    // A problem has no body and no type yet; it becomes JSON.
    let is_json = headers.get(CONTENT_TYPE).is_none_or(|kind| kind == "application/json");
    if is_json {
        headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_handler_is_a_500_without_its_message() {
        let panics = get(async || -> Response { panic!("the secret is in src/token.rs") });
        let routes = Router::new().route("/panics", panics).route("/works", get(async || "fine"));
        let routes = routes.layer(tower::layer::layer_fn(guard));
        for (path, status) in [("/panics", 500), ("/works", 200), ("/panics", 500)] {
            let request = Request::get(path).body(Body::empty()).unwrap();
            let mut response = routes.clone().oneshot(request).await.unwrap();
            if let Some(problem) = response.extensions_mut().remove::<Problem>() {
                problem.fill(&mut response, "an-id");
            }
            assert_eq!(response.status(), status, "{path}");
            let body = to_bytes(response.into_body(), 4096).await.unwrap();
            let body = String::from_utf8(body.into()).unwrap();
            assert_eq!(body.contains(r#""code":"internal""#), status == 500, "{body}");
            assert!(!body.contains("secret") && !body.contains("src/"), "{body}");
        }
    }
}

//! The server: the page, the stream of events, a saved race, and what pages ask for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use loadtest_lab::faults::FaultAction;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::event_log::{EventLog, LogPosition};
use crate::lane::FaultOrder;
use crate::page;
use crate::race::{Orders, RaceOrder};
use crate::setup::{FieldError, LANES, REPLICAS, RaceSetup};

/// Most bytes of what a page posts.
const MAX_BODY_BYTES: usize = 4096;
/// Most pages that read at the same time.
const MAX_STREAMS: usize = 16;
/// From one batch of events to the next.
const BATCH_INTERVAL: Duration = Duration::from_millis(40);
/// Most events of a batch.
const MAX_BATCH: usize = 2000;
/// Most faults of a lane that wait for their turn.
const MAX_WAITING_FAULTS: usize = 8;

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct BoardState {
    access: Access,
    log: Arc<EventLog>,
    stop: CancellationToken,
    streams: Arc<Semaphore>,
    turn: Arc<Semaphore>,
    races: mpsc::Sender<RaceOrder>,
    faults: [mpsc::Sender<FaultOrder>; 2],
}

impl BoardState {
    /// The state, and the orders that pages give.
    pub(crate) fn new(
        access: Access,
        log: Arc<EventLog>,
        stop: CancellationToken,
    ) -> (Arc<Self>, Orders) {
        let (races, race_orders) = mpsc::channel(1);
        let (left, left_orders) = mpsc::channel(MAX_WAITING_FAULTS);
        let (right, right_orders) = mpsc::channel(MAX_WAITING_FAULTS);
        let (streams, turn) = (Semaphore::new(MAX_STREAMS), Semaphore::new(1));
        let state = Self {
            access,
            log,
            stop,
            streams: Arc::new(streams),
            turn: Arc::new(turn),
            races,
            faults: [left, right],
        };
        (Arc::new(state), Orders { races: race_orders, faults: [left_orders, right_orders] })
    }

    /// The address of the page.
    pub(crate) fn url(&self) -> String {
        self.access.url()
    }
}

type Board = State<Arc<BoardState>>;

/// All routes.
pub(crate) fn router(state: Arc<BoardState>) -> Router {
    Router::new()
        .route("/", get(show_page))
        .route("/events", get(stream_events))
        .route("/save", get(save))
        .route("/race", post(start_race))
        .route("/fault", post(inject_fault))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(state.clone(), check_access))
        .with_state(state)
}

async fn check_access(State(state): Board, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method(), request.uri());
    match state.access.refusal((method, uri), request.headers()) {
        Some(refusal) => refused(StatusCode::FORBIDDEN, refusal),
        None => next.run(request).await,
    }
}

fn refused(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({"error": why}))).into_response()
}

fn bad_field(error: &FieldError) -> Response {
    let FieldError { field, limit } = error;
    let body = json!({"error": error.to_string(), "field": field, "limit": limit});
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

async fn show_page(State(_): Board) -> Response {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut response = Html(page::live(&nonce)).into_response();
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

async fn save(State(state): Board) -> Response {
    let Some(all) = state.log.read(LogPosition::default(), usize::MAX) else {
        return refused(StatusCode::NOT_FOUND, "no race has begun");
    };
    let attachment = HeaderValue::from_static("attachment; filename=\"race.html\"");
    ([(header::CONTENT_DISPOSITION, attachment)], Html(page::saved(&all))).into_response()
}

/// The members of a body that is a JSON object.
fn object(body: &Bytes) -> Result<Value, FieldError> {
    serde_json::from_slice(body).ok().filter(Value::is_object).ok_or_else(|| {
        let (field, limit) = ("the body".to_owned(), "a JSON object".to_owned());
        FieldError { field, limit }
    })
}

/// Starts a race. A page that was just opened sends `first`: then one that runs, or has run, stays.
async fn start_race(State(state): Board, body: Bytes) -> Response {
    let mut value = match object(&body) {
        Ok(value) => value,
        Err(error) => return bad_field(&error),
    };
    let first = value.as_object_mut().and_then(|members| members.remove("first"));
    let is_first = first == Some(Value::Bool(true));
    let setup = match RaceSetup::parse(&value) {
        Ok(setup) => setup,
        Err(error) => return bad_field(&error),
    };
    let turn = state.turn.clone().try_acquire_owned();
    let has_begun = state.log.read(LogPosition::default(), 0).is_some();
    let turn = match turn {
        Ok(turn) if !(is_first && has_begun) => turn,
        Err(_) if !is_first => {
            return refused(StatusCode::CONFLICT, "a race is running; wait for its verdict");
        }
        _ => return Json(json!({"started": false})).into_response(),
    };
    match state.races.try_send(RaceOrder { setup, turn }) {
        Ok(()) => (StatusCode::ACCEPTED, Json(json!({"started": true}))).into_response(),
        Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "the board is ending"),
    }
}

/// Injects a fault and tells what was seen of it.
async fn inject_fault(State(state): Board, body: Bytes) -> Response {
    let (lane, action, replica) = match object(&body).and_then(|value| parse_fault(&value)) {
        Ok(fault) => fault,
        Err(error) => return bad_field(&error),
    };
    let (reply, seen) = oneshot::channel();
    if state.faults[lane].try_send(FaultOrder { action, replica, reply }).is_err() {
        return refused(StatusCode::CONFLICT, "faults of this lane wait already");
    }
    match seen.await {
        Ok(Ok(witness)) => Json(json!({"witness": witness})).into_response(),
        Ok(Err(why)) => refused(StatusCode::CONFLICT, &why),
        Err(_) => refused(StatusCode::SERVICE_UNAVAILABLE, "the board is ending"),
    }
}

/// Lane, action and index of the replica.
fn parse_fault(value: &Value) -> Result<(usize, FaultAction, usize), FieldError> {
    let error = |field: &str, limit: String| FieldError { field: field.to_owned(), limit };
    let lane = LANES.iter().position(|name| value["lane"] == *name);
    let lane = lane.ok_or_else(|| error("lane", LANES.join(" or ")))?;
    let action = value["action"].as_str().and_then(FaultAction::named);
    let action = action.ok_or_else(|| {
        error("action", format!("one of {}", FaultAction::ALL.map(FaultAction::name).join(", ")))
    })?;
    if !action.is_of_replica() {
        return Ok((lane, action, 0));
    }
    let replica = value["replica"].as_u64().filter(|number| REPLICAS.contains(number));
    let replica = replica.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| {
        let (least, most) = (REPLICAS.start(), REPLICAS.end());
        error("replica", format!("a whole number from {least} to {most}"))
    })?;
    Ok((lane, action, replica - 1))
}

/// A page that reads.
struct LogReader {
    state: Arc<BoardState>,
    growth: watch::Receiver<()>,
    position: LogPosition,
    next_batch: Instant,
    _place: OwnedSemaphorePermit,
}

async fn stream_events(State(state): Board, headers: HeaderMap) -> Response {
    let Ok(place) = state.streams.clone().try_acquire_owned() else {
        let why = format!("{MAX_STREAMS} pages read already");
        return refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    };
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let reader = LogReader {
        growth: state.log.growth(),
        position: last.and_then(parse_id).unwrap_or_default(),
        next_batch: Instant::now(),
        _place: place,
        state,
    };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), reader))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

fn parse_id(id: &str) -> Option<LogPosition> {
    let (race, next) = id.split_once('.')?;
    Some(LogPosition { race: race.parse().ok()?, next: next.parse().ok()? })
}

impl LogReader {
    /// The next batch; none once the board ends. It is asked for when the page has taken the last.
    async fn next(&mut self) -> Option<Event> {
        let stop = self.state.stop.clone();
        stop.run_until_cancelled(async {
            tokio::time::sleep_until(self.next_batch).await;
            loop {
                self.growth.borrow_and_update();
                if let Some(slice) = self.state.log.read(self.position, MAX_BATCH) {
                    self.position = slice.position;
                    self.next_batch = Instant::now() + BATCH_INTERVAL;
                    let LogPosition { race, next } = slice.position;
                    let setup = slice.setup.as_deref().unwrap_or("null");
                    let events = &slice.events;
                    let text = format!("{{\"race\":{race},\"setup\":{setup},\"events\":{events}}}");
                    return Some(Event::default().id(format!("{race}.{next}")).data(text));
                }
                self.growth.changed().await.ok()?;
            }
        })
        .await
        .flatten()
    }
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;

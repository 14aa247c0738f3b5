//! The server: the page, the stream of events, a saved race, and what pages ask for.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use loadtest_lab::faults::FaultAction;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::board_error::{BoardError, ErrorCode};
use crate::command_sources::source_file;
use crate::commands::CommandSlice;
use crate::event_log::{EventLog, LogPosition};
use crate::lab_text::lab_text;
use crate::lane::FaultRequest;
use crate::lock_rows::HeldLocks;
use crate::page;
use crate::race::{BoardRequests, RaceRequest};
use crate::race_logs::RaceLogs;
use crate::setup::{LANES, REPLICAS, RaceSetup, none_of, not_a_number, not_an_object};

/// Most bytes of what a page posts.
const MAX_BODY_BYTES: usize = 4096;
/// Most pages that read at the same time.
const MAX_STREAMS: usize = 16;
/// From one batch of events to the next: shorter than a picture of the page, which lasts 17 ms.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// Most events of a batch.
const MAX_BATCH: usize = 2000;
/// Most faults of a lane that wait for their turn.
const MAX_WAITING_FAULTS: usize = 8;

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct BoardState {
    access: Access,
    logs: RaceLogs,
    stop: CancellationToken,
    streams: Arc<Semaphore>,
    turn: Arc<Semaphore>,
    races: mpsc::Sender<RaceRequest>,
    faults: [mpsc::Sender<FaultRequest>; 2],
}

impl BoardState {
    /// The state, and the requests of pages.
    pub(crate) fn new(
        access: Access,
        logs: RaceLogs,
        stop: CancellationToken,
    ) -> (Arc<Self>, BoardRequests) {
        let (races, race_requests) = mpsc::channel(1);
        let (left, left_requests) = mpsc::channel(MAX_WAITING_FAULTS);
        let (right, right_requests) = mpsc::channel(MAX_WAITING_FAULTS);
        let (streams, turn) = (Semaphore::new(MAX_STREAMS), Semaphore::new(1));
        let state = Self {
            access,
            logs,
            stop,
            streams: Arc::new(streams),
            turn: Arc::new(turn),
            races,
            faults: [left, right],
        };
        (
            Arc::new(state),
            BoardRequests { races: race_requests, faults: [left_requests, right_requests] },
        )
    }

    /// How many more pages may read.
    #[cfg(test)]
    pub(crate) fn free_streams(&self) -> usize {
        self.streams.available_permits()
    }

    /// The address of the page.
    pub(crate) fn url(&self) -> String {
        self.access.url()
    }
}

type BoardExtractor = State<Arc<BoardState>>;

/// All routes.
pub(crate) fn router(state: Arc<BoardState>) -> Router {
    Router::new()
        .route("/", get(show_page))
        .route("/events", get(stream_events))
        .route("/save", get(save))
        .route("/commands", get(show_commands))
        .route("/source/{*path}", get(show_source))
        .route("/locks", get(show_locks))
        .route("/race", post(start_race))
        .route("/fault", post(inject_fault))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(middleware::from_fn_with_state(state.clone(), check_access))
        .with_state(state)
}

async fn check_access(State(state): BoardExtractor, request: Request, next: Next) -> Response {
    let (method, uri) = (request.method(), request.uri());
    match state.access.refusal((method, uri), request.headers()) {
        // A bookmark of an earlier board: a person reads the answer.
        Some(refusal) if uri.path() == "/" && refusal.code == ErrorCode::WrongToken => {
            (StatusCode::FORBIDDEN, html(page::render_refused)).into_response()
        }
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

async fn show_page(State(_): BoardExtractor) -> Response {
    html(page::render_live)
}

/// Shows a file that sends commands, and no other.
async fn show_source(Path(path): Path<String>) -> Result<Response, BoardError> {
    let file = source_file(&path).ok_or_else(|| {
        let why = format!("the board has no source {path}");
        BoardError::new(ErrorCode::NoSuchSource, why).with("path", path)
    })?;
    Ok(html(|nonce| page::render_source(file, nonce)))
}

/// A page whose style and script carry the nonce that it is rendered with.
fn html(render: impl FnOnce(&str) -> String) -> Response {
    let nonce = uuid::Uuid::new_v4().simple().to_string();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; \
         connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut response = Html(render(&nonce)).into_response();
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

async fn save(State(state): BoardExtractor) -> Result<Response, BoardError> {
    let all = state.logs.events.read(LogPosition::default(), usize::MAX);
    let all = all.ok_or_else(|| BoardError::new(ErrorCode::NoRace, "no race has begun"))?;
    let attachment = HeaderValue::from_static("attachment; filename=\"race.html\"");
    Ok(([(header::CONTENT_DISPOSITION, attachment)], Html(page::render_saved(&all)))
        .into_response())
}

/// A body that is a JSON object.
fn object(body: Result<Bytes, BytesRejection>) -> Result<Value, BoardError> {
    let body = body.map_err(|_| {
        let why = format!("the body has more than {MAX_BODY_BYTES} bytes");
        BoardError::new(ErrorCode::BodyTooLarge, why).with("most", MAX_BODY_BYTES)
    })?;
    let value = serde_json::from_slice(&body).ok().filter(Value::is_object);
    value.ok_or_else(|| not_an_object(""))
}

fn is_ending() -> BoardError {
    BoardError::new(ErrorCode::Ending, "the board is ending")
}

/// Starts a race. A page that was just opened sends `first`: then one that runs, or has run, stays.
/// A page with a race in its address sends `link`: then the same race stays. While another race
/// runs, the refusal says the race that was asked for, with all defaults.
async fn start_race(
    State(state): BoardExtractor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, BoardError> {
    let mut value = object(body)?;
    let mut take = |name: &str| value.as_object_mut().and_then(|members| members.remove(name));
    let [is_first, is_link] = ["first", "link"].map(|name| take(name) == Some(Value::Bool(true)));
    // A page that shows no race has nothing else to fill its form with.
    let setup = RaceSetup::parse(&value)
        .map_err(|error| error.with("setup", json!(RaceSetup::default())))?;
    let turn = state.turn.clone().try_acquire_owned();
    let shown = state.logs.events.read(LogPosition::default(), 0).and_then(|slice| slice.setup);
    let stays = match &shown {
        Some(shown) => is_first || is_link && *shown == setup.to_json(),
        None => is_first && turn.is_err(),
    };
    if stays {
        return Ok(Json(json!({"started": false})).into_response());
    }
    let turn = turn.map_err(|_| {
        let why = "a race is running; wait for its verdict";
        BoardError::new(ErrorCode::RaceRunning, why).with("setup", json!(setup))
    })?;
    state.races.try_send(RaceRequest { setup, turn }).map_err(|_| is_ending())?;
    Ok((StatusCode::ACCEPTED, Json(json!({"started": true}))).into_response())
}

/// Whether the current race is a challenge or a rung.
fn has_own_fault(log: &EventLog) -> bool {
    let setup = log.read(LogPosition::default(), 0).and_then(|slice| slice.setup);
    let setup: Option<Value> = setup.and_then(|setup| serde_json::from_str(&setup).ok());
    setup.is_some_and(|setup| ["challenge", "rung"].iter().any(|kind| !setup[kind].is_null()))
}

/// Injects a fault and answers what was seen of it.
async fn inject_fault(
    State(state): BoardExtractor,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, BoardError> {
    let (lane, action, replica) = parse_fault(&object(body)?)?;
    if has_own_fault(&state.logs.events) {
        let why = "the race is a challenge or a rung, which has its own fault";
        return Err(BoardError::new(ErrorCode::ChallengeFaults, why));
    }
    let (reply, seen) = oneshot::channel();
    let sent = state.faults[lane].try_send(FaultRequest { action, replica, reply });
    sent.map_err(|_| {
        let why = format!("{MAX_WAITING_FAULTS} faults of this lane wait already");
        BoardError::new(ErrorCode::FaultsWaiting, why).with("most", MAX_WAITING_FAULTS)
    })?;
    let witness = seen.await.map_err(|_| is_ending())??;
    Ok(Json(json!({"witness": lab_text(&witness)})).into_response())
}

/// The query for commands.
#[derive(Debug, Deserialize)]
struct CommandQuery {
    #[serde(default)]
    lane: String,
    /// The number of the first command that the page does not have.
    #[serde(default)]
    from: String,
}

async fn show_commands(
    State(state): BoardExtractor,
    Query(query): Query<CommandQuery>,
) -> Result<Json<CommandSlice>, BoardError> {
    let lane = index_of_lane(&query.lane)?;
    Ok(Json(state.logs.commands[lane].read(query.from.parse().unwrap_or(0))))
}

/// The query for locks.
#[derive(Debug, Deserialize)]
struct LockQuery {
    #[serde(default)]
    lane: String,
}

async fn show_locks(
    State(state): BoardExtractor,
    Query(query): Query<LockQuery>,
) -> Result<Json<HeldLocks>, BoardError> {
    let lane = index_of_lane(&query.lane)?;
    Ok(Json(state.logs.locks[lane].read()))
}

fn index_of_lane(name: &str) -> Result<usize, BoardError> {
    let lane = LANES.iter().position(|known| *known == name);
    lane.ok_or_else(|| none_of("lane", &LANES))
}

/// Lane, action and index of the replica.
fn parse_fault(value: &Value) -> Result<(usize, FaultAction, usize), BoardError> {
    let lane = index_of_lane(value["lane"].as_str().unwrap_or_default())?;
    let action = value["action"].as_str().and_then(FaultAction::named);
    let action =
        action.ok_or_else(|| none_of("action", &FaultAction::ALL.map(FaultAction::name)))?;
    if !action.is_of_replica() {
        return Ok((lane, action, 0));
    }
    let replica = value["replica"].as_u64().filter(|number| REPLICAS.contains(number));
    let replica = replica.and_then(|number| usize::try_from(number).ok());
    let replica = replica.ok_or_else(|| not_a_number("replica", &REPLICAS))?;
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

/// The query of the stream.
#[derive(Debug, Deserialize)]
struct StreamQuery {
    /// The id of the last batch that the page has, if it was hidden meanwhile.
    last: Option<String>,
}

async fn stream_events(
    State(state): BoardExtractor,
    Query(query): Query<StreamQuery>,
    headers: HeaderMap,
) -> Result<Response, BoardError> {
    let place = state.streams.clone().try_acquire_owned().map_err(|_| {
        let why = format!("{MAX_STREAMS} pages read already");
        BoardError::new(ErrorCode::TooManyPages, why).with("most", MAX_STREAMS)
    })?;
    // The browser sends the header by itself when it reconnects.
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let reader = LogReader {
        growth: state.logs.events.growth(),
        position: last.or(query.last.as_deref()).and_then(parse_id).unwrap_or_default(),
        next_batch: Instant::now(),
        _place: place,
        state,
    };
    let events = stream::unfold(reader, |mut reader| async move {
        let event = reader.next().await?;
        Some((Ok::<_, std::convert::Infallible>(event), reader))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
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
                if let Some(slice) = self.state.logs.events.read(self.position, MAX_BATCH) {
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

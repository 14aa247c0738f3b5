//! The state of a purchase in the queued mode: one answer, or a stream of events.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use http_body_util::channel::{Channel, Sender};
use serde::Serialize;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::auth::Caller;
use super::error::{ApiError, ProblemView};
use super::extract::PathId;
use super::routes::routes;
use super::sse_limiter::SsePermit;
use super::success::accepted_at;
use crate::domain::{OrderId, TicketId, TicketState, UserId, VoucherId};
use crate::sale::TicketProgress;

/// How often a stream reads its ticket.
const TICKET_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How often a stream sends a changed place at most.
const PLACE_INTERVAL: Duration = Duration::from_secs(1);
/// The longest silence of a stream; then it sends a comment.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// The longest life of a stream; its client then opens another.
const MAX_STREAM_LIFE: Duration = Duration::from_mins(5);
/// The most events that wait for a slow client.
const EVENT_BUFFER: usize = 4;

/// A ticket and its state.
#[derive(Serialize, ToSchema)]
pub(super) struct TicketView {
    id: TicketId,
    voucher_id: VoucherId,
    /// `pending`, or a final state: `bought`, `already_ordered`, `sold_out`, `refused`, `lost`,
    /// `dead`.
    #[schema(example = "bought")]
    status: &'static str,
    /// The order, if the status is `bought`, or `already_ordered` and it is known.
    order_id: Option<OrderId>,
    /// How many tickets of other users were before it when this was asked, while it is pending. 0
    /// says that it is next or being written. Orders are written many at a time, so a ticket may
    /// end before some of them do.
    #[schema(example = 12)]
    users_ahead: Option<u64>,
    /// In how many seconds it probably ends, from the rate of the last seconds; null if that is
    /// not known, or is more than an hour.
    #[schema(example = 3)]
    expected_wait_s: Option<u64>,
}

/// A ticket.
#[derive(Serialize, ToSchema)]
pub(super) struct TicketAnswer {
    ticket: TicketView,
}

impl TicketAnswer {
    fn new(id: TicketId, progress: TicketProgress) -> Self {
        let TicketProgress { state, users_ahead, expected_wait_s } = progress;
        let (voucher_id, status, order_id) = (id.voucher(), state.name(), state.order());
        Self {
            ticket: TicketView { id, voucher_id, status, order_id, users_ahead, expected_wait_s },
        }
    }
}

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(one)).routes(routes!(events))
}

/// The answer to a purchase that was admitted.
pub(super) fn admitted(ticket: TicketId) -> Response {
    let answer = TicketAnswer::new(ticket, TicketState::Pending.into());
    accepted_at(&format!("/api/tickets/{ticket}"), answer)
}

/// A ticket of the user; those of other users are not found.
#[utoipa::path(get, path = "/api/tickets/{id}", tag = "tickets",
    security(("bearer" = [])), params(("id" = TicketId, Path)),
    responses(
        (status = 200, body = TicketAnswer),
        (status = 404, description = "ticket_not_found", body = ProblemView),
    ))]
async fn one(
    State(api): State<ApiState>,
    Caller(user): Caller,
    PathId(ticket): PathId<TicketId>,
) -> Result<Json<TicketAnswer>, ApiError> {
    Ok(Json(TicketAnswer::new(ticket, look(&api, user, ticket).await?)))
}

/// A ticket as server-sent events: `event: ticket` with the answer of `/api/tickets/{id}` as
/// `data`, at once and at each change of its status, until the ticket has ended. A change of its
/// place alone is sent at most once a second. The token is sent in the header
/// `Authorization`, so a browser reads it with `fetch`.
#[utoipa::path(get, path = "/api/tickets/{id}/events", tag = "tickets",
    security(("bearer" = [])), params(("id" = TicketId, Path)),
    responses(
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = String),
        (status = 404, description = "ticket_not_found", body = ProblemView),
        (status = 429, description = "too_many_requests: too many streams of the user at a time",
            body = ProblemView),
        (status = 503, description = "overloaded, dependency_unavailable", body = ProblemView),
    ))]
async fn events(
    State(api): State<ApiState>,
    Caller(user): Caller,
    PathId(ticket): PathId<TicketId>,
) -> Result<Response, ApiError> {
    let first = look(&api, user, ticket).await?;
    let permit = api.streams.enter(user).await?;
    let (sender, body) = Channel::new(EVENT_BUFFER);
    let mut events = Events { api, user, ticket, sender, permit };
    tokio::spawn(async move {
        events.send_from(first).await;
        events.permit.leave().await;
    });
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(body)).into_response())
}

async fn look(api: &ApiState, user: UserId, ticket: TicketId) -> Result<TicketProgress, ApiError> {
    let queue = api.sale.queue().ok_or(ApiError::TicketNotFound)?;
    queue.progress(user, ticket).await?.ok_or(ApiError::TicketNotFound)
}

/// A stream of events to one client.
struct Events {
    api: ApiState,
    user: UserId,
    ticket: TicketId,
    sender: Sender<bytes::Bytes, std::convert::Infallible>,
    permit: SsePermit,
}

impl Events {
    /// Sends each change until the ticket or the permit ends, the client hangs up, or this replica
    /// shuts down.
    async fn send_from(&mut self, first: TicketProgress) {
        let began = Instant::now();
        let mut last = first;
        let mut sent = Instant::now();
        if self.send(self.event(first)).await.is_err() {
            return;
        }
        while last.state == TicketState::Pending
            && began.elapsed() < MAX_STREAM_LIFE
            && !self.api.readiness.is_draining()
            && self.permit.keep().await
        {
            sleep(TICKET_POLL_INTERVAL).await;
            let text = match look(&self.api, self.user, self.ticket).await {
                Ok(next)
                    if next.state != last.state
                        || (next != last && sent.elapsed() >= PLACE_INTERVAL) =>
                {
                    last = next;
                    self.event(next)
                }
                // A failed read is not sent; the next one may succeed.
                Ok(_) | Err(_) if sent.elapsed() > KEEP_ALIVE_INTERVAL => ":\n\n".to_owned(),
                Ok(_) | Err(_) => continue,
            };
            sent = Instant::now();
            if self.send(text).await.is_err() {
                return;
            }
        }
    }

    fn event(&self, progress: TicketProgress) -> String {
        let answer = TicketAnswer::new(self.ticket, progress);
        let data = serde_json::to_string(&answer).unwrap_or_default();
        format!("event: ticket\ndata: {data}\n\n")
    }

    async fn send(&mut self, text: String) -> Result<(), ()> {
        self.sender.send_data(text.into()).await.map_err(drop)
    }
}

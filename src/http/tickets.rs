//! Where a purchase on the path `queued` stands: asked for, or told as it changes.

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
use utoipa_axum::routes;

use super::Shared;
use super::auth::Caller;
use super::error::{ApiError, ProblemView, accepted_at};
use super::extract::PathId;
use super::streams::Place;
use crate::domain::{OrderId, TicketId, TicketState, UserId, VoucherId};

/// How often a stream looks at its ticket.
const LOOK: Duration = Duration::from_millis(200);
/// A stream says at least so often that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// The longest life of a stream; its client then asks for another.
const LIFE: Duration = Duration::from_mins(5);
/// Events that wait for a slow client.
const WAITING: usize = 4;

/// Where a ticket stands.
#[derive(Serialize, ToSchema)]
pub(super) struct TicketView {
    #[schema(value_type = String, example = "018bcfe5-687b-7fff-bfff-ffff0000004d")]
    id: TicketId,
    #[schema(value_type = String, example = "7")]
    voucher_id: VoucherId,
    /// `pending`; or an end: `bought`, `already_ordered`, `sold_out`, `refused`, `lost`, `dead`.
    status: &'static str,
    /// The order, if the status is `bought`, or `already_ordered` and it is known.
    #[schema(value_type = Option<String>)]
    order_id: Option<OrderId>,
}

/// A ticket.
#[derive(Serialize, ToSchema)]
pub(super) struct TicketAnswer {
    ticket: TicketView,
}

impl TicketAnswer {
    fn new(id: TicketId, state: TicketState) -> Self {
        let (voucher_id, status, order_id) = (id.voucher(), state.name(), state.order());
        Self { ticket: TicketView { id, voucher_id, status, order_id } }
    }
}

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(one)).routes(routes!(events))
}

/// The answer to a purchase that is under way.
pub(super) fn admitted(ticket: TicketId) -> Response {
    let answer = TicketAnswer::new(ticket, TicketState::Pending);
    accepted_at(&format!("/api/tickets/{ticket}"), answer)
}

/// One of one's own tickets; others' are not found.
#[utoipa::path(get, path = "/api/tickets/{id}", tag = "tickets",
    security(("bearer" = [])), params(("id" = String, Path)),
    responses(
        (status = 200, body = TicketAnswer),
        (status = 401, body = ProblemView),
        (status = 404, description = "ticket_not_found", body = ProblemView),
    ))]
async fn one(
    State(api): State<Shared>,
    Caller(user): Caller,
    PathId(ticket): PathId<TicketId>,
) -> Result<Json<TicketAnswer>, ApiError> {
    Ok(Json(TicketAnswer::new(ticket, look(&api, user, ticket).await?)))
}

/// The same as server-sent events: `event: ticket` with the answer of `/api/tickets/{id}` as
/// `data`, at once and whenever it changes, until the ticket has ended. The token is sent in the
/// header `Authorization`, so a browser reads it with `fetch`.
#[utoipa::path(get, path = "/api/tickets/{id}/events", tag = "tickets",
    security(("bearer" = [])), params(("id" = String, Path)),
    responses(
        (status = 200, description = "server-sent events", content_type = "text/event-stream",
            body = String),
        (status = 401, body = ProblemView),
        (status = 404, description = "ticket_not_found", body = ProblemView),
        (status = 429, description = "too_many_requests: four streams of a user at a time",
            body = ProblemView),
        (status = 503, description = "overloaded", body = ProblemView),
    ))]
async fn events(
    State(api): State<Shared>,
    Caller(user): Caller,
    PathId(ticket): PathId<TicketId>,
) -> Result<Response, ApiError> {
    let first = look(&api, user, ticket).await?;
    let place = api.streams.enter(user)?;
    let (sender, body) = Channel::new(WAITING);
    let events = Events { api, user, ticket, sender, _place: place };
    tokio::spawn(events.send_from(first));
    let headers = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(body)).into_response())
}

async fn look(api: &Shared, user: UserId, ticket: TicketId) -> Result<TicketState, ApiError> {
    let queue = api.sale.queue().ok_or(ApiError::TicketNotFound)?;
    queue.state(user, ticket).await?.ok_or(ApiError::TicketNotFound)
}

/// A stream under way.
struct Events {
    api: Shared,
    user: UserId,
    ticket: TicketId,
    sender: Sender<bytes::Bytes, std::convert::Infallible>,
    _place: Place,
}

impl Events {
    /// Sends what changes until the ticket has ended, the client is gone, or this replica ends.
    async fn send_from(mut self, first: TicketState) {
        let began = Instant::now();
        let mut last = first;
        let mut sent = Instant::now();
        if self.send(self.event(first)).await.is_err() {
            return;
        }
        while last == TicketState::Pending
            && began.elapsed() < LIFE
            && !self.api.readiness.is_draining()
        {
            sleep(LOOK).await;
            let text = match look(&self.api, self.user, self.ticket).await {
                Ok(state) if state != last => {
                    last = state;
                    self.event(state)
                }
                // A server that is away for a moment changes nothing.
                Ok(_) | Err(_) if sent.elapsed() > SIGN_OF_LIFE => ":\n\n".to_owned(),
                Ok(_) | Err(_) => continue,
            };
            sent = Instant::now();
            if self.send(text).await.is_err() {
                return;
            }
        }
    }

    fn event(&self, state: TicketState) -> String {
        let answer = TicketAnswer::new(self.ticket, state);
        let data = serde_json::to_string(&answer).unwrap_or_default();
        format!("event: ticket\ndata: {data}\n\n")
    }

    async fn send(&mut self, text: String) -> Result<(), ()> {
        self.sender.send_data(text.into()).await.map_err(drop)
    }
}

//! Purchases, and the orders of the user: list, pay, cancel.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use garde::Validate;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::auth::{Buyer, Caller};
use super::error::{ApiError, ProblemView};
use super::extract::{IdempotencyKeyHeader, NoBody, OptionalBody, Params, PathId};
use super::openapi::schemas::{self, IdempotencyKey};
use super::routes::routes;
use super::success::created;
use super::tickets::{TicketAnswer, admitted};
use super::validation_messages::{MAX_PAGE_SIZE, MAX_PRICE_CENTS};
use super::views::{OrderAnswer, OrderPage, OrderView, TimedOrder};
use crate::domain::{Order, OrderId, VoucherId};
use crate::sale::{
    AdmissionOutcome, HoldReport, LockHoldTimes, Outcome, PurchaseRequest, SettlementOutcome,
};

/// When a purchase held its lock (laboratory).
const LAB_HELD: HeaderName = HeaderName::from_static("x-lab-held");

/// The default number of orders on a page.
const PAGE: u32 = 20;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(buy))
        .routes(routes!(list))
        .routes(routes!(one))
        .routes(routes!(pay))
        .routes(routes!(cancel))
}

/// The JSON view of an order.
fn view(api: &ApiState, order: Order) -> OrderView {
    OrderView::new(order, api.unpaid_timeout)
}

/// What a purchase may state.
#[derive(Default, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
struct OrderRequest {
    /// The price that the buyer saw. At any other price nothing is sold: 409 `price_changed`.
    #[garde(inner(range(max = MAX_PRICE_CENTS)))]
    #[schema(schema_with = schemas::new_cents)]
    price_cents: Option<u64>,
}

/// Buys one unit. A problem of status 4xx, or 503 with `executed: false`, proves that nothing was
/// written and nothing will be; after anything else the order may exist. A request with an
/// `Idempotency-Key` may be repeated: once it has bought, its repeats get the same answer for 24 h.
/// After a 202 its repeats get the same ticket while that is pending or has bought. If the ticket
/// ended without an order, repeats are decided again.
///
/// With `price_cents` a new order has that price, or there is none.
#[utoipa::path(post, path = "/api/vouchers/{id}/orders", tag = "orders",
    security(("bearer" = [])),
    params(("id" = VoucherId, Path), ("Idempotency-Key" = inline(Option<IdempotencyKey>), Header)),
    request_body = OrderRequest,
    responses(
        (status = 201, body = OrderAnswer),
        (status = 202, description = "admitted: `Location` is the ticket's (mode queued)",
            body = TicketAnswer),
        (status = 404, description = "voucher_not_found", body = ProblemView),
        (status = 409, description = "sold_out, already_ordered, not_started, ended, \
            not_on_sale, price_changed, order_in_progress, request_in_progress",
            body = ProblemView),
        (status = 422, description = "idempotency_key_reused", body = ProblemView),
        (status = 429, description = "too_many_requests: nothing was done", body = ProblemView),
        (status = 503, description = "overloaded, dependency_unavailable, lock_lost: nothing was \
            done", body = ProblemView),
        (status = 504, description = "outcome_unknown: ask for the order later",
            body = ProblemView),
    ))]
async fn buy(
    State(api): State<ApiState>,
    Buyer(user): Buyer,
    PathId(voucher): PathId<VoucherId>,
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    OptionalBody(OrderRequest { price_cents }): OptionalBody<OrderRequest>,
) -> Result<Response, ApiError> {
    let request = PurchaseRequest { user, voucher, key, price_cents };
    // Boxed, because these large futures would be moved through every layer.
    if let Some(queue) = api.sale.queue() {
        return match Box::pin(api.sale.request(queue, request)).await {
            AdmissionOutcome::Ticket(ticket) => Ok(admitted(ticket)),
            AdmissionOutcome::Replayed(order) => Ok(bought(&api, order)),
            AdmissionOutcome::Refused(refusal) => Err(ApiError::Refused(refusal)),
            AdmissionOutcome::Unknown(ticket) => Err(ApiError::AdmissionUnknown(ticket)),
        };
    }
    let times = api.tells_holds.then(|| Arc::new(LockHoldTimes::begin(Instant::now())));
    let answer = match Box::pin(api.sale.purchase(request, times.clone())).await {
        Outcome::Bought(order) | Outcome::Replayed(order) => Ok(bought(&api, order)),
        Outcome::Refused(refusal) => Err(ApiError::Refused(refusal)),
        Outcome::Unknown(order) => Err(ApiError::OutcomeUnknown(order)),
        Outcome::Failed => Err(ApiError::Internal),
    };
    match times.and_then(|times| times.report(Instant::now)) {
        Some(report) => Ok(with_hold_times(answer.into_response(), report)),
        None => answer,
    }
}

/// Adds the times of the lock to an answer, in whole microseconds rounded down: waited, held, and
/// since then. `-lost` follows if the lock was no longer valid by the release, and `-400` after it
/// if its validity is known to have ended 400 µs after the grant. ` 7/8` says that token 7 was
/// shown to a fence that knows token 8.
fn with_hold_times(mut answer: Response, report: HoldReport) -> Response {
    let [waited, held, since] =
        [report.waited, report.held, report.since].map(|time| time.as_micros());
    let lost = match report.valid {
        Some(valid) if report.lost => format!("-lost-{}", valid.as_micros()),
        _ if report.lost => "-lost".to_owned(),
        _ => String::new(),
    };
    let fence = report.fence.map(|fence| format!(" {}/{}", fence.token, fence.highest));
    let fence = fence.unwrap_or_default();
    if let Ok(text) = HeaderValue::try_from(format!("{waited}-{held}-{since}{lost}{fence}")) {
        answer.headers_mut().insert(LAB_HELD, text);
    }
    answer
}

fn bought(api: &ApiState, order: Order) -> Response {
    let address = format!("/api/orders/{}", order.id);
    created(&address, OrderAnswer { order: view(api, order) })
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
struct Page {
    /// 1 to 100; 20 if it is left out.
    #[param(schema_with = schemas::page_size)]
    limit: Option<String>,
    /// The `next_cursor` of the page before.
    #[param(value_type = Option<OrderId>)]
    cursor: Option<String>,
}

fn page_size(text: &str) -> Option<u32> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|size| is_plain && (1..=MAX_PAGE_SIZE).contains(size))
}

/// The user's orders, newest first (to the second).
#[utoipa::path(get, path = "/api/orders", tag = "orders",
    security(("bearer" = [])), params(Page),
    responses((status = 200, body = OrderPage)))]
async fn list(
    State(api): State<ApiState>,
    Caller(user): Caller,
    Params(page): Params<Page>,
) -> Result<Json<OrderPage>, ApiError> {
    let invalid = |field: &str, limit: String| ApiError::Invalid {
        code: "invalid_query",
        field: field.to_owned(),
        limit,
    };
    let limit = match page.limit {
        Some(limit) => page_size(&limit),
        None => Some(PAGE),
    };
    let limit = limit.ok_or_else(|| {
        invalid("limit", format!("must be a whole number from 1 to {MAX_PAGE_SIZE}"))
    })?;
    let before = match page.cursor {
        Some(cursor) => cursor
            .parse()
            .map_err(|_| invalid("cursor", "must be the `next_cursor` of an answer".into()))?,
        None => OrderId(u64::MAX),
    };
    // One more than requested shows whether there is another page.
    let mut orders = api.orders.list(user, before, limit + 1).await?;
    let more = orders.len() > limit as usize;
    orders.truncate(limit as usize);
    let next_cursor = orders.last().filter(|_| more).map(|(order, _)| order.id);
    let server_time = orders.last().map(|(_, now)| *now);
    let orders = orders.into_iter().map(|(order, _)| view(&api, order)).collect();
    Ok(Json(OrderPage { server_time, orders, next_cursor }))
}

/// An order of the user; those of other users are not found.
#[utoipa::path(get, path = "/api/orders/{id}", tag = "orders",
    security(("bearer" = [])), params(("id" = OrderId, Path)),
    responses(
        (status = 200, body = TimedOrder),
        (status = 404, description = "order_not_found", body = ProblemView),
    ))]
async fn one(
    State(api): State<ApiState>,
    Caller(user): Caller,
    PathId(order): PathId<OrderId>,
) -> Result<Json<TimedOrder>, ApiError> {
    let found = api.orders.find(user, order).await?;
    let (order, server_time) = found.ok_or(ApiError::OrderNotFound)?;
    Ok(Json(TimedOrder { server_time, order: view(&api, order) }))
}

/// Pays an order. Of this, its cancellation and its time-out exactly one happens; paying a paid
/// order again is no error and takes no money. After `outcome_unknown` the service completes the
/// payment: the order is paid, or the money is returned or was never taken.
#[utoipa::path(post, path = "/api/orders/{id}/pay", tag = "orders",
    security(("bearer" = [])),
    params(("id" = OrderId, Path), ("Idempotency-Key" = inline(Option<IdempotencyKey>), Header)),
    responses(
        (status = 200, body = OrderAnswer),
        (status = 402, description = "payment_declined", body = ProblemView),
        (status = 404, description = "order_not_found", body = ProblemView),
        (status = 409, description = "order_cancelled, request_in_progress", body = ProblemView),
        (status = 422, description = "idempotency_key_reused", body = ProblemView),
        (status = 503, description = "payments_unavailable, overloaded, dependency_unavailable: \
            nothing was done", body = ProblemView),
        (status = 504, description = "outcome_unknown: ask for the order later",
            body = ProblemView),
    ))]
async fn pay(
    State(api): State<ApiState>,
    Caller(user): Caller,
    PathId(order): PathId<OrderId>,
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    _: NoBody,
) -> Result<Json<OrderAnswer>, ApiError> {
    let order = settled(api.sale.pay(user, order, key).await)?;
    Ok(Json(OrderAnswer { order: view(&api, order) }))
}

/// Cancels an unpaid order and returns its unit; the buyer may not buy the voucher again.
#[utoipa::path(post, path = "/api/orders/{id}/cancel", tag = "orders",
    security(("bearer" = [])),
    params(("id" = OrderId, Path), ("Idempotency-Key" = inline(Option<IdempotencyKey>), Header)),
    responses(
        (status = 200, body = OrderAnswer),
        (status = 404, description = "order_not_found", body = ProblemView),
        (status = 409, description = "order_paid, request_in_progress", body = ProblemView),
        (status = 422, description = "idempotency_key_reused", body = ProblemView),
        (status = 503, description = "overloaded, dependency_unavailable: nothing was done",
            body = ProblemView),
        (status = 504, description = "outcome_unknown: ask for the order later",
            body = ProblemView),
    ))]
async fn cancel(
    State(api): State<ApiState>,
    Caller(user): Caller,
    PathId(order): PathId<OrderId>,
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    _: NoBody,
) -> Result<Json<OrderAnswer>, ApiError> {
    let order = settled(api.sale.cancel(user, order, key).await)?;
    Ok(Json(OrderAnswer { order: view(&api, order) }))
}

/// The order after a payment or cancellation, or its error.
pub(super) fn settled(settled: SettlementOutcome) -> Result<Order, ApiError> {
    match settled {
        SettlementOutcome::Done(order) => Ok(order),
        SettlementOutcome::Refused(refusal) => Err(ApiError::Refused(refusal)),
        SettlementOutcome::Unknown(order) => Err(ApiError::OutcomeUnknown(order)),
        SettlementOutcome::Failed => Err(ApiError::Internal),
    }
}

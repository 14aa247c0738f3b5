//! The purchase, and one's own orders.

use axum::extract::State;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::auth::Caller;
use super::error::{ApiError, created};
use super::extract::{NoBody, Params, PathId};
use super::views::OrderView;
use crate::domain::{OrderId, VoucherId};
use crate::sale::Outcome;

/// Orders on a page if the caller does not say, and at most.
const PAGE: u32 = 20;
const LONGEST_PAGE: u32 = 100;

pub(super) fn router() -> Router<Shared> {
    Router::new()
        .route("/api/vouchers/{id}/orders", post(buy))
        .route("/api/orders", get(list))
        .route("/api/orders/{id}", get(one))
}

async fn buy(
    State(api): State<Shared>,
    Caller(user): Caller,
    PathId(voucher): PathId<VoucherId>,
    _: NoBody,
) -> Result<Response, ApiError> {
    match api.sale.purchase(user, voucher).await {
        Outcome::Bought(order) => {
            let address = format!("/api/orders/{}", order.id);
            Ok(created(&address, json!({"order": OrderView::from(order)})))
        }
        Outcome::Refused(refusal) => Err(ApiError::Refused(refusal)),
        Outcome::Unknown(order) => Err(ApiError::OutcomeUnknown(order)),
        Outcome::Failed => Err(ApiError::Internal),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    limit: Option<u32>,
    /// The last id of the page before.
    cursor: Option<String>,
}

async fn list(
    State(api): State<Shared>,
    Caller(user): Caller,
    Params(page): Params<Page>,
) -> Result<Json<Value>, ApiError> {
    let invalid = |field: &str, limit: String| ApiError::Invalid {
        code: "invalid_query",
        field: field.to_owned(),
        limit,
    };
    let limit = page.limit.unwrap_or(PAGE);
    if !(1..=LONGEST_PAGE).contains(&limit) {
        return Err(invalid("limit", format!("must be 1 to {LONGEST_PAGE}")));
    }
    let before = match page.cursor {
        Some(cursor) => cursor
            .parse()
            .map_err(|_| invalid("cursor", "must be the `next_cursor` of an answer".into()))?,
        None => OrderId(u64::MAX),
    };
    // One more than asked for tells whether there is another page.
    let mut orders = api.orders.list(user, before, limit + 1).await?;
    let more = orders.len() > limit as usize;
    orders.truncate(limit as usize);
    let next = orders.last().filter(|_| more).map(|order| order.id);
    let orders: Vec<_> = orders.into_iter().map(OrderView::from).collect();
    Ok(Json(json!({"orders": orders, "next_cursor": next})))
}

async fn one(
    State(api): State<Shared>,
    Caller(user): Caller,
    PathId(order): PathId<OrderId>,
) -> Result<Json<Value>, ApiError> {
    let order = api.orders.find(user, order).await?.ok_or(ApiError::OrderNotFound)?;
    Ok(Json(json!({"order": OrderView::from(order)})))
}

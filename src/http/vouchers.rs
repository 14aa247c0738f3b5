//! What everybody may see.

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use time::OffsetDateTime;

use super::Shared;
use super::error::ApiError;
use super::extract::PathId;
use super::views::VoucherView;
use crate::domain::{Status, VoucherId};
use crate::sale::Refusal;

pub(super) fn router() -> Router<Shared> {
    Router::new().route("/api/vouchers", get(list)).route("/api/vouchers/{id}", get(one))
}

#[derive(Serialize)]
struct ListView {
    #[serde(with = "time::serde::rfc3339")]
    server_time: OffsetDateTime,
    vouchers: Vec<VoucherView>,
}

#[derive(Serialize)]
struct OneView {
    #[serde(with = "time::serde::rfc3339")]
    server_time: OffsetDateTime,
    voucher: VoucherView,
}

async fn list(State(api): State<Shared>) -> Result<Json<ListView>, ApiError> {
    let (vouchers, server_time) = api.vouchers.list().await?;
    let vouchers = vouchers.into_iter().map(|v| VoucherView::new(v, server_time)).collect();
    Ok(Json(ListView { server_time, vouchers }))
}

async fn one(
    State(api): State<Shared>,
    PathId(id): PathId<VoucherId>,
) -> Result<Json<OneView>, ApiError> {
    match api.vouchers.find(id).await? {
        Some((voucher, server_time)) if voucher.status == Status::OnSale => {
            Ok(Json(OneView { server_time, voucher: VoucherView::new(voucher, server_time) }))
        }
        _ => Err(ApiError::Refused(Refusal::VoucherNotFound)),
    }
}

//! The public routes of vouchers.

use axum::Json;
use axum::extract::State;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::ApiState;
use super::error::{ApiError, ProblemView};
use super::extract::PathId;
use super::views::{TimedVoucher, TimedVouchers, VoucherView};
use crate::domain::{Status, VoucherId};
use crate::sale::Refusal;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(one))
}

/// Vouchers on sale, latest start first, at most 100.
#[utoipa::path(get, path = "/api/vouchers", tag = "vouchers",
    responses((status = 200, body = TimedVouchers)))]
async fn list(State(api): State<ApiState>) -> Result<Json<TimedVouchers>, ApiError> {
    let (vouchers, server_time) = api.vouchers.list().await?;
    let vouchers = vouchers.into_iter().map(|v| VoucherView::new(v, server_time)).collect();
    Ok(Json(TimedVouchers { server_time, vouchers }))
}

/// A voucher on sale.
#[utoipa::path(get, path = "/api/vouchers/{id}", tag = "vouchers",
    params(("id" = VoucherId, Path)),
    responses(
        (status = 200, body = TimedVoucher),
        (status = 404, description = "voucher_not_found", body = ProblemView),
    ))]
async fn one(
    State(api): State<ApiState>,
    PathId(id): PathId<VoucherId>,
) -> Result<Json<TimedVoucher>, ApiError> {
    match api.vouchers.find(id).await? {
        Some((voucher, server_time)) if voucher.status == Status::OnSale => {
            Ok(Json(TimedVoucher { server_time, voucher: VoucherView::new(voucher, server_time) }))
        }
        _ => Err(ApiError::Refused(Refusal::VoucherNotFound)),
    }
}

//! The public routes of vouchers.

use axum::Json;
use axum::extract::State;
use axum::http::header::CACHE_CONTROL;
use axum::response::IntoResponse;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::error::{ApiError, ProblemView};
use super::extract::PathId;
use super::routes::routes;
use super::views::{AvailabilityView, TimedVoucher, TimedVouchers, VoucherView};
use crate::domain::{Status, VoucherId};
use crate::sale::Refusal;

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(one)).routes(routes!(availability))
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

/// Whether a unit of a voucher can be bought now, for clients that wait for one. The answer is from
/// memory, at most a second old, and may be cached for a second.
#[utoipa::path(get, path = "/api/vouchers/{id}/availability", tag = "vouchers",
    params(("id" = VoucherId, Path)),
    responses(
        (status = 200, body = AvailabilityView),
        (status = 404, description = "voucher_not_found", body = ProblemView),
    ))]
async fn availability(
    State(api): State<ApiState>,
    PathId(voucher_id): PathId<VoucherId>,
) -> Result<impl IntoResponse, ApiError> {
    let available = api.sale.is_available(voucher_id).await.map_err(ApiError::Refused)?;
    let headers = [(CACHE_CONTROL, "public, max-age=1")];
    Ok((headers, Json(AvailabilityView { voucher_id, available })))
}

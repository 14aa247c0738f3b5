//! The purchase.

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::response::Response;

use super::DianpingState;
use super::envelope::{DianpingFailure, data};
use super::params::PathNumber;
use super::users::TokenHolder;
use crate::domain::{OrderId, VoucherId};
use crate::sale::dianping::DianpingOutcome;

/// With the value `string` an order's id is answered as a string, which JavaScript can hold.
const IDS: &str = "x-ids";

/// Buys one unit of a voucher.
pub(super) async fn buy(
    State(state): State<DianpingState>,
    caller: TokenHolder,
    PathNumber(voucher): PathNumber,
    request: Request,
) -> Result<Response, DianpingFailure> {
    let DianpingState { api, own } = state;
    let user = caller.user.id;
    let (parts, _) = request.into_parts();
    api.limits.order(user, &parts).await?;
    let purchase = async move { own.sale.purchase(user, VoucherId(voucher)).await };
    match api.sale.run_to_end(purchase).await {
        Some(DianpingOutcome::Bought(order)) => Ok(id(order, &parts.headers)),
        Some(DianpingOutcome::Refused(refusal)) => Err(refusal.into()),
        Some(DianpingOutcome::Unknown(order)) => {
            Err(DianpingFailure::because(format!("结果未知，请稍后查询订单 {order}")))
        }
        None => Err(DianpingFailure::because("服务器异常")),
    }
}

fn id(order: OrderId, headers: &HeaderMap) -> Response {
    if headers.get(IDS).is_some_and(|form| form == "string") { data(order) } else { data(order.0) }
}

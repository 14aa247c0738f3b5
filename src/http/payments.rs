//! The callback of the payment provider.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::error::{ApiError, ProblemView};
use super::extract::RawBody;
use super::openapi::schemas::{self, PaymentSignature};
use super::orders::settled;
use super::routes::routes;
use crate::domain::OrderId;
use crate::payment::PaymentStatus;

/// The header with the provider's signature.
const SIGNATURE: &str = "payment-signature";

pub(super) fn router() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(callback))
}

/// The answer to a provider: its notice is handled, and the order has this status.
#[derive(Serialize, ToSchema)]
struct CallbackAnswer {
    #[schema(example = "paid")]
    order_status: &'static str,
}

/// What a provider says of a payment; the bytes of this are signed.
#[derive(Serialize, ToSchema)]
#[schema(example = json!({
    "payment_id": "mock-662520661280817152",
    "order_id": "662520661280817152",
    "amount_cents": 8000,
    "status": "succeeded",
}))]
struct PaymentNotice {
    /// The provider's name of the payment.
    payment_id: String,
    order_id: OrderId,
    /// The order's price.
    amount_cents: u64,
    #[schema(schema_with = schemas::payment_status)]
    status: PaymentStatus,
}

/// Takes a notice of the payment provider. The header is `Payment-Signature: t=<seconds since
/// 1970>,v1=<HMAC-SHA256 in hex of the time, a full stop and the body>`, at most 5 minutes old. A
/// repeated notice counts once; the money for a cancelled order is returned.
#[utoipa::path(post, path = "/api/payments/callback", tag = "payments",
    params(("Payment-Signature" = inline(PaymentSignature), Header)),
    request_body = PaymentNotice,
    responses(
        (status = 200, body = CallbackAnswer),
        (status = 403, description = "bad_signature", body = ProblemView),
        (status = 404, description = "order_not_found", body = ProblemView),
        (status = 422, description = "wrong_amount", body = ProblemView),
        (status = 503, description = "overloaded, dependency_unavailable: send it again",
            body = ProblemView),
    ))]
async fn callback(
    State(api): State<ApiState>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<CallbackAnswer>, ApiError> {
    let mut signatures = headers.get_all(SIGNATURE).iter();
    let (Some(signature), None) = (signatures.next(), signatures.next()) else {
        return Err(ApiError::BadSignature);
    };
    let heard = api.sale.handle_callback(&body, signature.as_bytes()).await;
    let order = settled(heard.map_err(|_| ApiError::BadSignature)?)?;
    Ok(Json(CallbackAnswer { order_status: order.status.as_str() }))
}

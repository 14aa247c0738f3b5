//! What the payment provider tells.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Shared;
use super::error::{ApiError, ProblemView};
use super::extract::RawBody;
use super::orders::settled;

/// The header with the provider's signature.
const SIGNATURE: &str = "payment-signature";

pub(super) fn router() -> OpenApiRouter<Shared> {
    OpenApiRouter::new().routes(routes!(callback))
}

/// What a provider is told: that it need not say it again, and how the order stands.
#[derive(Serialize, ToSchema)]
struct Heard {
    #[schema(example = "paid")]
    order_status: &'static str,
}

/// The word of the payment provider: `Payment-Signature: t=<seconds since 1970>,v1=<HMAC-SHA256 in
/// hex of the time, a full stop and the body>`, not older than 5 minutes. Said twice, it counts
/// once; the money for an order that is cancelled goes back.
#[utoipa::path(post, path = "/api/payments/callback", tag = "payments",
    params(("Payment-Signature" = String, Header)),
    request_body(content = serde_json::Value, description = "payment_id, order_id, amount_cents, \
        status (succeeded or declined)"),
    responses(
        (status = 200, body = Heard),
        (status = 403, description = "bad_signature", body = ProblemView),
        (status = 404, description = "order_not_found", body = ProblemView),
        (status = 422, description = "wrong_amount", body = ProblemView),
    ))]
async fn callback(
    State(api): State<Shared>,
    headers: HeaderMap,
    RawBody(body): RawBody,
) -> Result<Json<Heard>, ApiError> {
    let mut signatures = headers.get_all(SIGNATURE).iter();
    let (Some(signature), None) = (signatures.next(), signatures.next()) else {
        return Err(ApiError::BadSignature);
    };
    let heard = api.sale.hear(&body, signature.as_bytes()).await;
    let order = settled(heard.map_err(|_| ApiError::BadSignature)?)?;
    Ok(Json(Heard { order_status: order.status.as_str() }))
}

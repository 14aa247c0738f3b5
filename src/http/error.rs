//! The only table from errors to status codes. Errors are problem+json (RFC 9457): the envelope
//! writes the body, so that it can carry the request's id.

use std::borrow::Cow;

use axum::Json;
use axum::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::problem::Body;
pub(super) use super::problem::ProblemView;
use crate::domain::{OrderId, TicketId};
use crate::sale::Refusal;
use crate::store::{CODES_A_DAY, StoreError};
use crate::token::BadToken;

/// Everything that a request can end in but success.
#[derive(Debug)]
pub(super) enum ApiError {
    /// A part of the request is wrong: which, and what it must be.
    Invalid {
        code: &'static str,
        field: String,
        limit: String,
    },
    BodyTooLarge,
    BodyTooSlow,
    NotJson,
    /// There is no token.
    Unauthorized,
    BadToken(BadToken),
    Forbidden,
    WrongCode,
    TooManyCodes {
        retry_after_s: u64,
    },
    /// Somebody asks too often.
    TooManyRequests {
        retry_after_s: u64,
    },
    LoginUnavailable,
    NotFound,
    OrderNotFound,
    /// A callback that does not prove where it comes from.
    BadSignature,
    MethodNotAllowed,
    HasOrders,
    Refused(Refusal),
    TicketNotFound,
    /// The order may or may not exist.
    OutcomeUnknown(OrderId),
    /// The purchase may or may not be admitted.
    AdmissionUnknown(TicketId),
    /// Too many requests at a time.
    Overloaded,
    Internal,
}

/// What a client is told; the body is written by the envelope.
#[derive(Clone)]
pub(super) struct Problem {
    status: StatusCode,
    code: &'static str,
    title: &'static str,
    detail: Cow<'static, str>,
    more: Map<String, Value>,
    retry_after_s: Option<u64>,
    /// What a 401 says of how to log in.
    challenge: &'static str,
}

const CHALLENGE: &str = "Bearer";
const BAD_TOKEN: &str = r#"Bearer error="invalid_token""#;

impl Problem {
    fn new(
        status: u16,
        code: &'static str,
        title: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (detail, more) = (detail.into(), Map::new());
        Self { status, code, title, detail, more, retry_after_s: None, challenge: CHALLENGE }
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// A 503 that proves that nothing was done.
    fn not_executed(code: &'static str, title: &'static str, detail: &'static str) -> Self {
        Self::new(503, code, title, detail).with("executed", false).retry_after(1)
    }

    /// Whether the request may have been refused before its body was read. The rest of the body
    /// then stands where the next request would begin, so the connection has to end.
    pub(super) fn may_leave_body_unread(&self) -> bool {
        [401, 403, 404, 405, 408, 413, 415, 429, 503].contains(&self.status.as_u16())
    }

    /// Whether what is left of the body is still awaited: not if it came too slowly.
    pub(super) fn awaits_rest(&self) -> bool {
        self.status != StatusCode::REQUEST_TIMEOUT
    }

    /// Writes the answer's body.
    pub(super) fn fill(self, response: &mut Response, request_id: &str) {
        let body = Body {
            title: self.title,
            status: self.status.as_str(),
            code: self.code,
            detail: &self.detail,
            request_id,
            more: &self.more,
        };
        *response.body_mut() = body.written().into();
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge));
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
    }
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        use ApiError as E;
        match error {
            E::Invalid { code, field, limit } => {
                Self::new(400, code, "Invalid request", format!("{field}: {limit}"))
                    .with("field", field)
            }
            E::BodyTooLarge => {
                Self::new(413, "body_too_large", "Body too large", "body: at most 16384 bytes")
            }
            E::BodyTooSlow => {
                Self::new(408, "body_too_slow", "Body too slow", "body: must arrive within 10 s")
            }
            E::NotJson => {
                Self::new(415, "not_json", "Not JSON", "Content-Type: must be application/json")
            }
            E::Unauthorized => not_logged_in(None),
            E::BadToken(bad) => not_logged_in(Some(bad)),
            E::Forbidden => Self::new(403, "forbidden", "Forbidden", "This is for admins."),
            E::WrongCode => {
                let detail = "The code is wrong, was used, or has ended. Ask for a new one.";
                Self::new(401, "wrong_code", "Wrong code", detail)
            }
            E::TooManyCodes { retry_after_s } => {
                let detail =
                    format!("A phone gets {CODES_A_DAY} login codes a day, and this one had them.");
                let problem = Self::new(429, "too_many_codes", "Too many codes", detail);
                problem.retry_after(retry_after_s)
            }
            E::TooManyRequests { retry_after_s } => {
                let detail = "Too often in too short a time; nothing was done.";
                let problem = Self::new(429, "too_many_requests", "Too many requests", detail);
                problem.retry_after(retry_after_s)
            }
            E::LoginUnavailable => {
                let detail = "This deployment has no way to deliver login codes.";
                Self::new(503, "login_unavailable", "Login unavailable", detail)
            }
            E::NotFound => Self::new(404, "not_found", "Not found", "There is nothing here."),
            E::OrderNotFound => refused(Refusal::OrderNotFound),
            E::BadSignature => {
                let detail = "Payment-Signature: must be the provider's, of this body, made within \
                              5 minutes.";
                Self::new(403, "bad_signature", "Bad signature", detail)
            }
            E::TicketNotFound => {
                let detail = "You have no such ticket.";
                Self::new(404, "ticket_not_found", "No such ticket", detail)
            }
            E::AdmissionUnknown(ticket) => admission_unknown(ticket),
            E::MethodNotAllowed => {
                let detail = "This address does not take that method.";
                Self::new(405, "method_not_allowed", "Method not allowed", detail)
            }
            E::HasOrders => {
                let detail = "The voucher has been sold and stays.";
                Self::new(409, "has_orders", "Voucher was sold", detail)
            }
            E::Refused(refusal) => refused(refusal),
            E::OutcomeUnknown(order) => {
                let detail = "A server went away in the middle. Ask for the order later, or send \
                              this again: it is done once.";
                Self::new(504, "outcome_unknown", "Outcome unknown", detail)
                    .with("order_id", order.to_string())
            }
            E::Overloaded => overloaded(),
            E::Internal => Self::new(500, "internal", "Internal error", "This is our fault."),
        }
    }
}

/// RFC 6750: who has a token that is no good is told so, and who has none is not.
fn not_logged_in(bad: Option<BadToken>) -> Problem {
    let (challenge, detail) = match bad {
        None => (CHALLENGE, "A token is needed: Authorization: Bearer <token>."),
        Some(BadToken::Expired) => (BAD_TOKEN, "The token has expired; log in again."),
        Some(BadToken::Invalid) => (BAD_TOKEN, "The token is not valid; log in again."),
    };
    Problem { challenge, ..Problem::new(401, "unauthorized", "Not logged in", detail) }
}

fn admission_unknown(ticket: TicketId) -> Problem {
    let detail = "A server went away. Ask for the ticket later: it has ended, or it will.";
    let problem = Problem::new(504, "outcome_unknown", "Outcome unknown", detail);
    problem.with("ticket_id", ticket.to_string())
}

fn overloaded() -> Problem {
    Problem::not_executed("overloaded", "Overloaded", "Too much at once; nothing was done.")
}

fn refused(refusal: Refusal) -> Problem {
    let conflict = |code, title, detail: &'static str| Problem::new(409, code, title, detail);
    match refusal {
        Refusal::VoucherNotFound => {
            Problem::new(404, "voucher_not_found", "No such voucher", "There is no such voucher.")
        }
        Refusal::NotOnSale => conflict("not_on_sale", "Not on sale", "It is not on sale."),
        Refusal::NotStarted(at) => {
            conflict("not_started", "Not started", "The sale has not begun.")
                .with("starts_at", rfc3339(at))
        }
        Refusal::Ended(at) => {
            conflict("ended", "Ended", "The sale is over.").with("ends_at", rfc3339(at))
        }
        Refusal::SoldOut => conflict("sold_out", "Sold out", "No unit is left."),
        Refusal::AlreadyOrdered(order) => {
            let problem = conflict("already_ordered", "Already bought", "One unit a person.");
            match order {
                Some(order) => problem.with("order_id", order.to_string()),
                None => problem,
            }
        }
        Refusal::InProgress => {
            let detail = "Another purchase of yours is under way; this one did nothing.";
            conflict("order_in_progress", "Purchase under way", detail).retry_after(1)
        }
        Refusal::LockLost => {
            let detail = "The lock was lost in the middle; nothing was done.";
            Problem::not_executed("lock_lost", "Lock lost", detail)
        }
        Refusal::Overloaded => overloaded(),
        // Which server is the operators' affair: it stands in the log and in `/readyz`.
        Refusal::Unavailable(_) => {
            let detail = "Something that this needs does not answer; nothing was done.";
            Problem::not_executed("dependency_unavailable", "Temporarily unavailable", detail)
        }
        Refusal::Defect => ApiError::Internal.into(),
        Refusal::KeyReused
        | Refusal::KeyInUse
        | Refusal::OrderNotFound
        | Refusal::OrderPaid
        | Refusal::OrderCancelled
        | Refusal::PaymentDeclined
        | Refusal::NoPayments
        | Refusal::WrongAmount => refused_later(refusal),
    }
}

/// What a request is refused for that is no purchase, or comes with a key.
fn refused_later(refusal: Refusal) -> Problem {
    let (status, code, title, detail) = match refusal {
        Refusal::KeyReused => {
            let detail = "This Idempotency-Key stands for another request; nothing was done.";
            (422, "idempotency_key_reused", "Key was used before", detail)
        }
        Refusal::KeyInUse => {
            let detail = "A request with this Idempotency-Key is under way; this one did nothing.";
            let problem = Problem::new(409, "request_in_progress", "Request under way", detail);
            return problem.retry_after(1);
        }
        Refusal::OrderNotFound => {
            (404, "order_not_found", "No such order", "You have no such order.")
        }
        Refusal::OrderPaid => (409, "order_paid", "Order is paid", "A paid order stays."),
        Refusal::OrderCancelled => {
            (409, "order_cancelled", "Order is cancelled", "A cancelled order stays cancelled.")
        }
        Refusal::PaymentDeclined => {
            (402, "payment_declined", "Payment declined", "The order is still unpaid.")
        }
        Refusal::NoPayments => {
            let detail = "This deployment has nobody to take payments.";
            return Problem::not_executed("payments_unavailable", "Payments unavailable", detail);
        }
        _ => (422, "wrong_amount", "Wrong amount", "amount_cents: must be the order's price"),
    };
    Problem::new(status, code, title, detail)
}

fn rfc3339(moment: OffsetDateTime) -> String {
    moment.format(&Rfc3339).unwrap_or_default()
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Busy | StoreError::Conflict | StoreError::LockWait => Self::Overloaded,
            StoreError::Unavailable { server, .. }
            | StoreError::AccessDenied { server, .. }
            | StoreError::NoAnswer { server } => {
                tracing::warn!(%error, "a request was refused");
                Self::Refused(Refusal::Unavailable(server))
            }
            StoreError::Duplicate(_) | StoreError::TooFew | StoreError::Unexpected(_) => {
                tracing::error!(%error, "a request failed");
                Self::Internal
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = ().into_response();
        response.extensions_mut().insert(Problem::from(self));
        response
    }
}

/// What a panic in a handler is answered with. The panic itself is in the log.
pub(super) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::Internal.into_response()
}

/// 201 with the address of what was created.
pub(super) fn created(address: &str, body: impl Serialize) -> Response {
    let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::CREATED, [(LOCATION, location)], Json(body)).into_response()
}

/// 202 with the address where it goes on.
pub(super) fn accepted_at(address: &str, body: impl Serialize) -> Response {
    let location = HeaderValue::from_str(address).unwrap_or(HeaderValue::from_static("/"));
    (StatusCode::ACCEPTED, [(LOCATION, location)], Json(body)).into_response()
}

/// 202.
pub(super) fn accepted(body: impl Serialize) -> Response {
    (StatusCode::ACCEPTED, Json(body)).into_response()
}

/// 204.
pub(super) fn no_content() -> Response {
    StatusCode::NO_CONTENT.into_response()
}

/// 304.
pub(super) fn not_modified() -> Response {
    StatusCode::NOT_MODIFIED.into_response()
}

/// 200 if ready, otherwise 503, with the reasons.
pub(super) fn readiness(reasons: &[String], settings: &str, lab: Option<&str>) -> Response {
    let ready = reasons.is_empty();
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let body = json!({"ready": ready, "reasons": reasons, "settings": settings, "lab": lab});
    (status, Json(body)).into_response()
}

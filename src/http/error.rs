//! The only table from errors to status codes.
//!
//! Errors are problem+json (RFC 9457). The request layer writes the body, because it knows the
//! request's id.

use std::borrow::Cow;
use std::fmt::Display;
use std::time::Duration;

use axum::http::header::{ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::audit_log::count_refusal;
use super::problem::Body;
pub(super) use super::problem::ProblemView;
use super::rate_limits::whole_seconds;
use crate::domain::{OrderId, TicketId, VoucherId};
use crate::sale::Refusal;
use crate::store::{Rate, StoreError};
use crate::token::BadToken;

/// Every error that a request can end with.
#[derive(Debug)]
pub(super) enum ApiError {
    /// A field of the request is wrong: its name, and what it must be.
    Invalid {
        code: &'static str,
        field: String,
        limit: String,
    },
    BodyTooLarge,
    BodyTooSlow,
    NotJson,
    /// The body is compressed, or encoded in another way.
    BodyEncoded,
    /// There is no token.
    Unauthorized,
    BadToken(BadToken),
    Forbidden,
    WrongCode,
    TooManyCodes {
        wait: Duration,
        rate: Rate,
    },
    /// The user or the address exceeds its rate limit.
    TooManyRequests {
        retry_after_s: u64,
    },
    LoginUnavailable,
    NotFound,
    OrderNotFound,
    /// A callback without the provider's valid signature.
    BadSignature,
    MethodNotAllowed,
    HasOrders,
    Refused(Refusal),
    TicketNotFound,
    /// The order may or may not exist.
    OutcomeUnknown(OrderId),
    /// The purchase may or may not be admitted.
    AdmissionUnknown(TicketId),
    /// The voucher may or may not be changed.
    ChangeUnknown(VoucherId),
    /// A call to a server may or may not have been carried out.
    CallUnknown,
    /// Too many requests in flight.
    Overloaded,
    Internal,
}

/// The answer to a client; the request layer writes its body.
#[derive(Clone)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    title: &'static str,
    detail: Cow<'static, str>,
    more: Map<String, Value>,
    retry_after_s: Option<u64>,
    /// The `WWW-Authenticate` header of a 401.
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

    /// Whether the rest of the body is worth reading: not if the body was too slow.
    pub(super) fn awaits_rest(&self) -> bool {
        self.status != StatusCode::REQUEST_TIMEOUT
    }

    /// The body of the answer to that request.
    pub(super) fn body(&self, request_id: &str) -> Vec<u8> {
        let Self { title, status, code, ref detail, ref more, .. } = *self;
        Body { title, status: status.as_str(), code, detail, request_id, more }.written()
    }

    /// Writes the answer's body.
    pub(super) fn fill(self, response: &mut Response, request_id: &str) {
        *response.body_mut() = self.body(request_id).into();
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(self.challenge));
        }
        if self.status == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
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
            E::BodyEncoded => body_encoded(),
            E::Unauthorized => not_logged_in(None),
            E::BadToken(BadToken::Unchecked) => refused(Refusal::Unavailable("database")),
            E::BadToken(bad) => not_logged_in(Some(bad)),
            E::Forbidden => {
                Self::new(403, "forbidden", "Forbidden", "Only for admins; log in as an admin.")
            }
            E::WrongCode => {
                let detail = "The code is wrong, used or expired. Ask for a new one.";
                Self::new(401, "wrong_code", "Wrong code", detail)
            }
            E::TooManyCodes { wait, rate } => too_many_codes(wait, rate),
            E::TooManyRequests { retry_after_s } => {
                let detail = "Too many requests; nothing was done. Try again later.";
                let problem = Self::new(429, "too_many_requests", "Too many requests", detail);
                problem.retry_after(retry_after_s)
            }
            E::LoginUnavailable => {
                let detail = "Login codes cannot be delivered; none was counted. Try again later.";
                Self::new(503, "login_unavailable", "Login unavailable", detail)
            }
            E::NotFound => {
                Self::new(404, "not_found", "Not found", "There is nothing at this address.")
            }
            E::OrderNotFound => refused(Refusal::OrderNotFound),
            E::BadSignature => {
                let detail = "Payment-Signature: must sign this body, at most 5 minutes ago.";
                Self::new(403, "bad_signature", "Bad signature", detail)
            }
            E::TicketNotFound => {
                let detail = "You have no such ticket.";
                Self::new(404, "ticket_not_found", "No such ticket", detail)
            }
            E::MethodNotAllowed => {
                let detail = "This address does not allow that method.";
                Self::new(405, "method_not_allowed", "Method not allowed", detail)
            }
            E::HasOrders => {
                let detail = "The voucher has orders and cannot be deleted.";
                Self::new(409, "has_orders", "Voucher was sold", detail)
            }
            E::Refused(refusal) => refused(refusal),
            E::OutcomeUnknown(order) => outcome_unknown("order_id", order, ASK_FOR_ORDER),
            E::AdmissionUnknown(ticket) => outcome_unknown("ticket_id", ticket, ASK_FOR_TICKET),
            E::ChangeUnknown(voucher) => outcome_unknown("voucher_id", voucher, READ_VOUCHER),
            E::CallUnknown => Self::new(504, "outcome_unknown", "Outcome unknown", CALL_UNKNOWN),
            E::Overloaded => overloaded(),
            E::Internal => {
                Self::new(500, "internal", "Internal error", "The service failed; see its log.")
            }
        }
    }
}

/// RFC 6750: the challenge names an error only if the request has a token.
fn not_logged_in(bad: Option<BadToken>) -> Problem {
    let (challenge, detail) = match bad {
        None => (CHALLENGE, "A token is needed: Authorization: Bearer <token>."),
        Some(BadToken::Expired) => (BAD_TOKEN, "The token has expired; log in again."),
        Some(BadToken::Revoked) => (BAD_TOKEN, "The token was revoked; log in again."),
        Some(BadToken::Invalid | BadToken::Unchecked) => {
            (BAD_TOKEN, "The token is not valid; log in again.")
        }
    };
    Problem { challenge, ..Problem::new(401, "unauthorized", "Not logged in", detail) }
}

fn too_many_codes(wait: Duration, rate: Rate) -> Problem {
    let interval = humantime::format_duration(Duration::from_secs(rate.interval().as_secs()));
    let detail = format!(
        "{} login codes at once for this phone, then one every {interval}; none was sent.",
        rate.most
    );
    let problem = Problem::new(429, "too_many_codes", "Too many codes", detail);
    problem.retry_after(whole_seconds(wait))
}

const ASK_FOR_ORDER: &str = "Ask for the order later, or send this again: it is done once.";
const ASK_FOR_TICKET: &str = "Ask for the ticket later.";
const CALL_UNKNOWN: &str = "A server failed before the outcome was known. Send this again.";
const READ_VOUCHER: &str = "Read the voucher before you send the change again.";

fn outcome_unknown(field: &str, id: impl Display, next: &str) -> Problem {
    let detail = format!("A server failed before the outcome was known. {next}");
    let problem = Problem::new(504, "outcome_unknown", "Outcome unknown", detail);
    problem.with(field, id.to_string())
}

fn body_encoded() -> Problem {
    let detail = "Content-Encoding: must be absent or identity";
    let problem = Problem::new(415, "body_encoded", "Body encoded", detail);
    problem.with("field", "Content-Encoding")
}

fn overloaded() -> Problem {
    Problem::not_executed(
        "overloaded",
        "Overloaded",
        "Too many requests at a time; nothing was done. Try again.",
    )
}

fn refused(refusal: Refusal) -> Problem {
    let conflict = |code, title, detail: &'static str| Problem::new(409, code, title, detail);
    match refusal {
        Refusal::VoucherNotFound => {
            Problem::new(404, "voucher_not_found", "No such voucher", "There is no such voucher.")
        }
        Refusal::NotOnSale => conflict("not_on_sale", "Not on sale", "The voucher is not on sale."),
        Refusal::NotStarted(at) => {
            conflict("not_started", "Not started", "The sale begins at starts_at.")
                .with("starts_at", rfc3339(at))
        }
        Refusal::Ended(at) => {
            conflict("ended", "Ended", "The sale ended at ends_at.").with("ends_at", rfc3339(at))
        }
        Refusal::SoldOut => conflict("sold_out", "Sold out", "No unit is left."),
        Refusal::PriceChanged(price) => {
            conflict("price_changed", "Price changed", "A unit costs price_cents; none was sold.")
                .with("price_cents", price)
        }
        Refusal::AlreadyOrdered(order) => {
            let problem = conflict("already_ordered", "Already bought", "One order a user.");
            match order {
                Some(order) => problem.with("order_id", order.to_string()),
                None => problem,
            }
        }
        Refusal::InProgress => {
            let detail = "Another purchase of yours is in progress; this one did nothing.";
            conflict("order_in_progress", "Purchase under way", detail).retry_after(1)
        }
        Refusal::LockLost => {
            let detail = "The lock was lost during the purchase; nothing was done. Try again.";
            Problem::not_executed("lock_lost", "Lock lost", detail)
        }
        Refusal::Overloaded => overloaded(),
        // Clients do not learn which server it is; operators read it in the log and in `/readyz`.
        Refusal::Unavailable(_) => {
            let detail = "A server that this needs does not answer; nothing was done. Try again.";
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
        | Refusal::WrongAmount => settlement_or_key_problem(refusal),
    }
}

/// Refusals of payments, cancellations and idempotency keys.
fn settlement_or_key_problem(refusal: Refusal) -> Problem {
    let (status, code, title, detail) = match refusal {
        Refusal::KeyReused => {
            let detail = "This Idempotency-Key belongs to another request; nothing was done.";
            (422, "idempotency_key_reused", "Key was used before", detail)
        }
        Refusal::KeyInUse => {
            let detail =
                "A request with this Idempotency-Key is in progress; this one did nothing.";
            let problem = Problem::new(409, "request_in_progress", "Request under way", detail);
            return problem.retry_after(1);
        }
        Refusal::OrderNotFound => {
            (404, "order_not_found", "No such order", "You have no such order.")
        }
        Refusal::OrderPaid => {
            (409, "order_paid", "Order is paid", "A paid order cannot be cancelled.")
        }
        Refusal::OrderCancelled => {
            (409, "order_cancelled", "Order is cancelled", "A cancelled order cannot be paid.")
        }
        Refusal::PaymentDeclined => (
            402,
            "payment_declined",
            "Payment declined",
            "The provider declined; the order is unpaid.",
        ),
        Refusal::NoPayments => {
            let detail = "This deployment has no payment provider; nothing was done.";
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
            StoreError::PoolTimedOut | StoreError::Conflict | StoreError::LockWait => {
                Self::Overloaded
            }
            StoreError::Unavailable { server, .. }
            | StoreError::AccessDenied { server, .. }
            | StoreError::TimedOut { server } => {
                tracing::warn!(%error, "server unavailable; request refused");
                Self::Refused(Refusal::Unavailable(server))
            }
            StoreError::Duplicate(_)
            | StoreError::InsufficientStock
            | StoreError::Unexpected(_) => {
                tracing::error!(%error, "request failed");
                Self::Internal
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        count_refusal(&self);
        let mut response = ().into_response();
        response.extensions_mut().insert(Problem::from(self));
        response
    }
}

/// The answer to a request whose handler panicked; the panic itself is in the log.
pub(super) fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::Internal.into_response()
}

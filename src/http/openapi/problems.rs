//! An example of each problem, written as answers write it.

use std::time::Duration;

use serde_json::Value;
use time::macros::datetime;

use super::super::error::{ApiError, Problem};
use crate::domain::{OrderId, TicketId};
use crate::sale::Refusal;
use crate::store::Rate;
use crate::token::BadToken;

/// The id of all requests in examples.
const REQUEST_ID: &str = "1f0c9e0a-6d0e-4a7e-9d5b-2f6c3a1b7c55";
const ORDER: OrderId = OrderId(662_520_661_280_817_152);

/// A problem as it looks.
pub(super) struct ProblemExample {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) body: Value,
}

/// An example of each code, of some with more than one status.
pub(super) fn examples() -> Vec<ProblemExample> {
    errors().map(ProblemExample::of).collect()
}

impl ProblemExample {
    fn of(error: ApiError) -> Self {
        let problem = Problem::from(error);
        let (status, code) = (problem.status.as_u16(), problem.code);
        // Text that was written as JSON can be read.
        let body = serde_json::from_slice(&problem.body(REQUEST_ID)).unwrap_or_default();
        Self { status, code, body }
    }
}

fn invalid(code: &'static str, field: &str, limit: &str) -> ApiError {
    ApiError::Invalid { code, field: field.to_owned(), limit: limit.to_owned() }
}

fn errors() -> impl Iterator<Item = ApiError> {
    let (begin, end) = (datetime!(2026-11-11 12:00 UTC), datetime!(2026-11-12 12:00 UTC));
    let rate = Rate { most: 6, period: Duration::from_hours(24) };
    let wait = Duration::from_hours(4);
    let ticket = TicketId::compose(1_700_000_000_123, TicketId::LAST_VOUCHER, [0xff; 6]);
    let of_requests = [
        invalid("invalid_body", "title", "must be text of 1 to 100 characters"),
        invalid("invalid_id", "id", "must be a whole number from 1 to 9223372036854775807"),
        invalid("invalid_query", "limit", "must be a whole number from 1 to 100"),
        invalid(
            "invalid_header",
            "Idempotency-Key",
            "must be given once, with 1 to 255 visible ASCII characters",
        ),
        ApiError::BodyTooLarge,
        ApiError::BodyTooSlow,
        ApiError::NotJson,
        ApiError::BodyEncoded,
        ApiError::Unauthorized,
        ApiError::BadToken(BadToken::Expired),
        ApiError::Forbidden,
        ApiError::WrongCode,
        ApiError::TooManyCodes { wait, rate },
        ApiError::TooManyRequests { retry_after_s: 5 },
        ApiError::LoginUnavailable,
        ApiError::NotFound,
        ApiError::BadSignature,
        ApiError::MethodNotAllowed,
        ApiError::HasOrders,
        ApiError::TicketNotFound,
        ApiError::OutcomeUnknown(ORDER),
        ApiError::Overloaded,
        ApiError::Internal,
    ];
    let refusals = [
        Refusal::VoucherNotFound,
        Refusal::NotOnSale,
        Refusal::NotStarted(begin),
        Refusal::Ended(end),
        Refusal::SoldOut,
        Refusal::PriceChanged(7500),
        Refusal::AlreadyOrdered(Some(ORDER)),
        Refusal::InProgress,
        Refusal::LockLost,
        Refusal::Unavailable("database"),
        Refusal::KeyReused,
        Refusal::KeyInUse,
        Refusal::OrderNotFound,
        Refusal::OrderPaid,
        Refusal::OrderCancelled,
        Refusal::PaymentDeclined,
        Refusal::NoPayments,
        Refusal::WrongAmount,
    ];
    let refusals = refusals.into_iter().map(ApiError::Refused);
    let of_tickets = ticket.map(ApiError::AdmissionUnknown);
    of_requests.into_iter().chain(refusals).chain(of_tickets)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    /// What the proxy answers itself.
    const PROXY: &str = include_str!("../../../deploy/haproxy.cfg");

    #[test]
    fn the_page_has_a_chinese_text_for_each_code_of_a_replica_and_of_the_proxy() {
        let texts: Value = serde_json::from_str(include_str!("../../../static/strings.json"))
            .expect("texts by language");
        let has_none = |code: &&str| texts["zh"][format!("problem.{code}")].is_null();
        let proxy = PROXY.split("\"code\":\"").skip(1).filter_map(|it| it.split('"').next());
        let proxy = proxy.collect::<BTreeSet<_>>();
        assert!(proxy.len() >= 10, "{proxy:?}");
        let codes = examples().into_iter().map(|example| example.code).chain(proxy);
        let missing: Vec<_> = codes.filter(has_none).collect();
        assert!(missing.is_empty(), "no text: {missing:?}");
    }

    #[test]
    fn each_code_of_the_table_of_errors_has_an_example() {
        // A code stands after its status, or as the first argument of the two that know theirs.
        let table = include_str!("../error.rs");
        let words: Vec<&str> = table.split('"').collect();
        let codes: BTreeSet<&str> = words
            .windows(2)
            .enumerate()
            .filter(|(place, pair)| place % 2 == 0 && stands_before_code(pair[0]))
            .map(|(_, pair)| pair[1])
            .collect();
        assert!(codes.len() > 30, "{codes:?}");
        let known: BTreeSet<&str> = examples().iter().map(|example| example.code).collect();
        let missing: Vec<_> = codes.difference(&known).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    fn stands_before_code(text: &str) -> bool {
        let text = text.trim_end();
        let status = text.strip_suffix(',').unwrap_or_default();
        let digits = status.bytes().rev().take_while(u8::is_ascii_digit).count();
        digits == 3 || text.ends_with("conflict(") || text.ends_with("not_executed(")
    }

    #[test]
    fn an_example_is_written_as_answers_are() {
        for ProblemExample { status, code, body } in examples() {
            assert_eq!((&body["status"], &body["code"]), (&json!(status), &json!(code)));
            assert_eq!(body["request_id"], REQUEST_ID, "{body}");
        }
    }
}

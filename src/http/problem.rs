//! Writes the body of a problem (RFC 9457).

use serde::Serialize;
use serde_json::{Map, Value};
use time::OffsetDateTime;

use crate::domain::{OrderId, TicketId};

/// The shape of every error (RFC 9457), for the description of the API.
#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct ProblemView {
    #[serde(rename = "type")]
    kind: String,
    title: String,
    status: u16,
    /// Stable name of the error, for programs.
    code: String,
    detail: String,
    /// The id in the header `X-Request-Id`.
    request_id: String,
    /// `false` proves that a 503 had no effect.
    executed: Option<bool>,
    /// The field that was wrong.
    field: Option<String>,
    /// The order in question.
    order_id: Option<OrderId>,
    /// The ticket in question.
    ticket_id: Option<TicketId>,
    /// What a unit costs, in cents, if that is not what the request states.
    price_cents: Option<u64>,
    /// When a sale begins that has not begun.
    #[serde(with = "time::serde::rfc3339::option")]
    starts_at: Option<OffsetDateTime>,
    /// When a sale ended that is over.
    #[serde(with = "time::serde::rfc3339::option")]
    ends_at: Option<OffsetDateTime>,
}

/// More bytes than most problems have.
const BODY_BYTES: usize = 256;

/// The body of a problem.
///
/// "Sold out" is the most frequent answer, so the body is concatenated. Titles and codes are plain
/// words that need no escaping; all else is written as JSON.
pub(super) struct Body<'a> {
    pub(super) title: &'static str,
    pub(super) status: &'a str,
    pub(super) code: &'static str,
    pub(super) detail: &'a str,
    pub(super) request_id: &'a str,
    pub(super) more: &'a Map<String, Value>,
}

impl Body<'_> {
    pub(super) fn written(&self) -> Vec<u8> {
        let Self { title, status, code, detail, request_id, more } = self;
        let mut json = Vec::with_capacity(BODY_BYTES);
        json.extend_from_slice(br#"{"type":"/problems/"#);
        json.extend_from_slice(code.as_bytes());
        append(&mut json, r#"","title":"#, title);
        json.extend_from_slice(br#","status":"#);
        json.extend_from_slice(status.as_bytes());
        json.extend_from_slice(br#","code":""#);
        json.extend_from_slice(code.as_bytes());
        append(&mut json, r#"","detail":"#, detail);
        append(&mut json, r#","request_id":"#, request_id);
        for (name, value) in *more {
            append(&mut json, ",", name);
            append(&mut json, ":", value);
        }
        json.push(b'}');
        json
    }
}

fn append<T: Serialize + ?Sized>(json: &mut Vec<u8>, before: &str, value: &T) {
    json.extend_from_slice(before.as_bytes());
    // Text, numbers and trees of them can always be written to memory.
    let _always = serde_json::to_writer(json, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_problem_says_what_it_is_whatever_characters_are_in_it() {
        let more = json!({"field": "a \"field\"", "executed": false});
        let body = Body {
            title: "Invalid request",
            status: "400",
            code: "invalid_body",
            detail: "line\n\u{1} \"quoted\" \\",
            request_id: "an-\"id\"\\",
            more: more.as_object().expect("an object"),
        };
        let written: Value = serde_json::from_slice(&body.written()).expect("JSON");
        let expected = json!({
            "type": "/problems/invalid_body",
            "title": "Invalid request",
            "status": 400,
            "code": "invalid_body",
            "detail": "line\n\u{1} \"quoted\" \\",
            "request_id": "an-\"id\"\\",
            "field": "a \"field\"",
            "executed": false,
        });
        assert_eq!(written, expected);
    }
}

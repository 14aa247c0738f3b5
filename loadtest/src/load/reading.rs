//! What an answer says: outcome, order, status and code.

use std::borrow::Cow;

use serde::Deserialize;

use crate::history::{Ended, Event};
use crate::load::client::{Answer, CallError};
use crate::load::outcome::{Outcome, Problem, classify};

/// The code of an answer that is neither a 201 nor a problem document.
const NO_PROBLEM: &str = "without a problem document";

/// An answer, or its absence, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) outcome: Outcome,
    /// The order that the answer speaks of.
    pub(super) order: Option<u64>,
    /// The HTTP status, if there was an answer.
    pub(super) status: Option<u16>,
    /// The problem's code, or why there is no answer; `None` for a 201.
    pub(super) code: Option<Cow<'static, str>>,
}

impl Reading {
    pub(super) fn of(result: &Result<Answer<'_>, CallError>) -> Self {
        match result {
            Ok(answer) => Self::of_answer(answer),
            Err(error) => {
                let code = Some(Cow::Borrowed(error.code()));
                Self { outcome: Outcome::Unknown, order: None, status: None, code }
            }
        }
    }

    fn of_answer(answer: &Answer<'_>) -> Self {
        let status = Some(answer.status);
        if answer.status == 201 {
            let order = bought(answer.body);
            return Self { outcome: Outcome::Bought, order, status, code: None };
        }
        let parse = || serde_json::from_slice::<Problem>(answer.body).ok();
        let problem = answer.is_problem.then(parse).flatten();
        let outcome = classify(answer.status, problem.as_ref());
        let (order, code) = match problem {
            Some(problem) => {
                let order = problem.order_id.and_then(|id| id.parse().ok());
                (order, Cow::Owned(problem.code))
            }
            None => (None, Cow::Borrowed(NO_PROBLEM)),
        };
        Self { outcome, order, status, code: Some(code) }
    }
}

/// The id of the order that a 201 brings.
fn bought(body: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Bought<'a> {
        #[serde(borrow)]
        order: Id<'a>,
    }
    #[derive(Deserialize)]
    struct Id<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    serde_json::from_slice::<Bought<'_>>(body).ok()?.order.id.parse().ok()
}

/// The line that the history gets; `(t, n)` are its moment and the request's number.
pub(super) fn event(
    reading: Reading,
    replica: Option<String>,
    (t, n): (u64, u32),
) -> Event<'static> {
    let Reading { outcome, order, status, code } = reading;
    let ended = Ended { t, n, c: code, o: order, r: replica.map(Cow::Owned), s: status };
    match outcome {
        Outcome::Bought => Event::Ok(ended),
        Outcome::SoldOut | Outcome::AlreadyOrdered | Outcome::Refused => Event::Fail(ended),
        Outcome::Unknown => Event::Unknown(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(status: u16, is_problem: bool, body: &str) -> Reading {
        let answer = Answer { status, replica: None, is_problem, body: body.as_bytes() };
        Reading::of(&Ok(answer))
    }

    #[test]
    fn the_same_body_counts_only_as_a_problem_document() {
        let sold_out = r#"{"code":"sold_out","status":409}"#;
        assert_eq!(read(409, true, sold_out).outcome, Outcome::SoldOut);
        assert_eq!(read(409, false, sold_out).outcome, Outcome::Unknown);
        assert_eq!(read(409, true, "<html>").outcome, Outcome::Unknown);
    }

    #[test]
    fn ids_are_read_from_orders_and_from_problems() {
        let bought = read(201, false, r#"{"order":{"id":"77","voucher_id":"1"}}"#);
        assert_eq!((bought.outcome, bought.order), (Outcome::Bought, Some(77)));
        assert_eq!((bought.status, bought.code), (Some(201), None));
        assert_eq!(read(201, false, "{}").order, None);
        let late = read(504, true, r#"{"code":"outcome_unknown","order_id":"9"}"#);
        assert_eq!((late.outcome, late.order), (Outcome::Unknown, Some(9)));
        assert_eq!(late.code.as_deref(), Some("outcome_unknown"));
    }
}

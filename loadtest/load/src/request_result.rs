//! What an answer says: outcome, order, status and code.

use std::borrow::Cow;

use serde::Deserialize;
use uuid::Uuid;

use crate::client::{Answer, CallError};
use crate::history::{Completion, Event};
use crate::hold_report::ToldHold;
use crate::outcome::{ADMITTED, Outcome, Problem, SAME_TICKET, classify};

/// The code of an answer that is neither a 201 nor a problem document.
const NO_PROBLEM: &str = "without a problem document";
/// The code of a ticket that the service does not know.
const TICKET_UNKNOWN: &str = "ticket_not_found";

/// An answer, or its absence, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestResult {
    pub(super) outcome: Outcome,
    /// The order that the answer speaks of.
    pub(super) order: Option<u64>,
    /// The HTTP status, if there was an answer.
    pub(super) status: Option<u16>,
    /// The problem's code, or why there is no answer; `None` for a 201.
    pub(super) code: Option<Cow<'static, str>>,
}

impl RequestResult {
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

impl RequestResult {
    /// The result of a request that was answered with a ticket and has no better one.
    pub(super) fn of_ticket(code: &'static str) -> Self {
        let outcome = if code == SAME_TICKET { Outcome::Refused } else { Outcome::Unknown };
        let status = Some(ADMITTED);
        Self { outcome, order: None, status, code: Some(Cow::Borrowed(code)) }
    }
}

/// The ticket that an answer brings, if it is a 202 with one.
pub(super) fn ticket(result: &Result<Answer<'_>, CallError>) -> Option<Uuid> {
    let answer = result.as_ref().ok().filter(|answer| answer.status == ADMITTED)?;
    let TicketAnswer { ticket } = serde_json::from_slice(answer.body).ok()?;
    ticket.id.parse().ok()
}

#[derive(Deserialize)]
struct TicketAnswer<'a> {
    #[serde(borrow)]
    ticket: Ticket<'a>,
}

#[derive(Deserialize)]
struct Ticket<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
    #[serde(borrow, default)]
    order_id: Option<Cow<'a, str>>,
}

/// What the answer to a question for a ticket says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TicketStatus {
    /// The ticket, and so its request, has ended.
    Final(RequestResult),
    /// No end yet, or no answer.
    NotYet,
}

impl TicketStatus {
    pub(super) fn of(result: &Result<Answer<'_>, CallError>) -> Self {
        match result {
            // A ticket that was given to this user and is unknown says nothing of the order.
            Ok(answer) if answer.status == 404 => {
                Self::Final(RequestResult::of_ticket(TICKET_UNKNOWN))
            }
            Ok(answer) if answer.status == 200 => Self::of_body(answer.body),
            Ok(_) | Err(_) => Self::NotYet,
        }
    }

    fn of_body(body: &[u8]) -> Self {
        let Ok(TicketAnswer { ticket }) = serde_json::from_slice(body) else { return Self::NotYet };
        let outcome = match ticket.status.as_ref() {
            "bought" => Outcome::Bought,
            "sold_out" => Outcome::SoldOut,
            "already_ordered" => Outcome::AlreadyOrdered,
            "refused" | "lost" | "dead" => Outcome::Refused,
            _ => return Self::NotYet,
        };
        let order = ticket.order_id.and_then(|id| id.parse().ok());
        let is_bought = outcome == Outcome::Bought;
        let code = (!is_bought).then(|| Cow::Owned(ticket.status.into_owned()));
        Self::Final(RequestResult { outcome, order, status: Some(ADMITTED), code })
    }
}

/// The id of the order that a 201 brings.
fn bought(body: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct PurchaseAnswer<'a> {
        #[serde(borrow)]
        order: OrderId<'a>,
    }
    #[derive(Deserialize)]
    struct OrderId<'a> {
        #[serde(borrow)]
        id: Cow<'a, str>,
    }
    serde_json::from_slice::<PurchaseAnswer<'_>>(body).ok()?.order.id.parse().ok()
}

/// The line that the history gets; `(t, n)` are its moment and the request's number, `hold` when
/// its lock was held.
pub(super) fn event(
    reading: RequestResult,
    replica: Option<String>,
    (t, n): (u64, u32),
    hold: Option<ToldHold>,
) -> Event<'static> {
    let RequestResult { outcome, order, status, code } = reading;
    let mut ended = Completion { t, n, c: code, o: order, s: status, ..Completion::default() };
    ended.r = replica.map(Cow::Owned);
    if let Some(hold) = hold {
        (ended.h, ended.w, ended.l) = (Some(hold.h), hold.w, hold.l);
        (ended.d, ended.f) = (hold.d, hold.f);
    }
    match outcome {
        Outcome::Bought => Event::Ok(ended),
        Outcome::SoldOut | Outcome::AlreadyOrdered | Outcome::Refused => Event::Fail(ended),
        Outcome::Unknown => Event::Unknown(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, is_problem: bool, body: &str) -> Answer<'_> {
        Answer { status, replica: None, hold: None, is_problem, body: body.as_bytes() }
    }

    fn read(status: u16, is_problem: bool, body: &str) -> RequestResult {
        RequestResult::of(&Ok(answer(status, is_problem, body)))
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

    #[test]
    fn a_ticket_ends_a_request_as_it_says_and_only_with_an_end() {
        const ID: &str = "018bcfe5-687b-7fff-bfff-ffff0000004d";
        let told = |status: u16, text: &str| {
            let body = format!(r#"{{"ticket":{{"id":"{ID}","voucher_id":"1","status":{text}}}}}"#);
            let answer = Ok(answer(status, false, &body));
            (ticket(&answer), TicketStatus::of(&answer))
        };
        assert_eq!(told(202, r#""pending","order_id":null"#).0, ID.parse().ok());
        assert_eq!(told(200, r#""pending""#), (None, TicketStatus::NotYet));
        assert_eq!(told(503, r#""bought""#).1, TicketStatus::NotYet);
        let ends = [
            (r#""bought","order_id":"7""#, Outcome::Bought, Some(7)),
            (r#""already_ordered","order_id":"7""#, Outcome::AlreadyOrdered, Some(7)),
            (r#""sold_out""#, Outcome::SoldOut, None),
            (r#""refused""#, Outcome::Refused, None),
            (r#""lost""#, Outcome::Refused, None),
            (r#""dead""#, Outcome::Refused, None),
        ];
        for (text, outcome, order) in ends {
            let TicketStatus::Final(reading) = told(200, text).1 else { panic!("{text}") };
            assert_eq!((reading.outcome, reading.order), (outcome, order), "{text}");
            assert_eq!(reading.status, Some(ADMITTED));
        }
        let TicketStatus::Final(reading) = told(404, r#""bought""#).1 else { panic!("404") };
        assert_eq!(reading.outcome, Outcome::Unknown);
    }
}

//! What an answer to a purchase means: five outcomes, decided by one rule.
//!
//! Only an answer that *proves* that nothing was written counts as a refusal: a problem document
//! with a 4xx status, or a 503 that says `"executed": false`. Whatever else is not a 201
//! (time-outs, resets, a proxy's HTML, 500, 502, 504) is unknown: the order may or may not exist,
//! and the verdict treats it so.
//!
//! A 202 brings a ticket; such a request ends as its ticket does, see `follow`.

use serde::{Deserialize, Serialize};

/// The status of an answer that brings a ticket. It is also what is recorded of the request once
/// its ticket has ended.
pub const ADMITTED: u16 = 202;
/// The code of a request that got the ticket of another one of the load, and so admitted nothing.
pub const SAME_TICKET: &str = "same_ticket";
/// The code of a ticket that had not ended in time.
pub const TICKET_PENDING: &str = "ticket_pending";

/// How a purchase request ended, as its client can know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// 201: the order exists.
    Bought,
    /// Definite: no unit was left.
    SoldOut,
    /// Definite: this user holds an order of this voucher already.
    AlreadyOrdered,
    /// Definite for any other reason; the answer's code says which.
    Refused,
    /// The client does not know whether the order exists.
    Unknown,
}

impl Outcome {
    /// All outcomes, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::Bought, Self::SoldOut, Self::AlreadyOrdered, Self::Refused, Self::Unknown];

    /// Whether it says that no order was written.
    pub fn is_definite_refusal(self) -> bool {
        matches!(self, Self::SoldOut | Self::AlreadyOrdered | Self::Refused)
    }

    /// Whether it says that the sale itself has answered, rather than that something is down.
    pub fn decides(self) -> bool {
        matches!(self, Self::Bought | Self::SoldOut | Self::AlreadyOrdered)
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bought => "bought",
            Self::SoldOut => "sold_out",
            Self::AlreadyOrdered => "already_ordered",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// The parts of a problem document (RFC 9457) that decide; other members are ignored.
#[derive(Debug, Deserialize)]
pub struct Problem {
    /// The stable code, for example `sold_out`.
    pub code: String,
    /// `false` in a 503 that promises that nothing was executed.
    pub executed: Option<bool>,
    /// The order that `already_ordered` or `outcome_unknown` speaks of.
    pub order_id: Option<String>,
}

/// The outcome of an answer with this status and, if the body was a problem document, that
/// document.
pub fn classify(status: u16, problem: Option<&Problem>) -> Outcome {
    match (status, problem) {
        (201, _) => Outcome::Bought,
        (400..=499, Some(problem)) => match problem.code.as_str() {
            "sold_out" => Outcome::SoldOut,
            "already_ordered" => Outcome::AlreadyOrdered,
            _ => Outcome::Refused,
        },
        (503, Some(problem)) if problem.executed == Some(false) => Outcome::Refused,
        _ => Outcome::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(code: &str, executed: Option<bool>) -> Problem {
        Problem { code: code.to_owned(), executed, order_id: None }
    }

    #[test]
    fn only_proof_that_nothing_was_written_is_a_refusal() {
        let cases = [
            (201, None, Outcome::Bought),
            (409, Some(problem("sold_out", None)), Outcome::SoldOut),
            (409, Some(problem("already_ordered", None)), Outcome::AlreadyOrdered),
            (409, Some(problem("order_in_progress", None)), Outcome::Refused),
            (404, Some(problem("voucher_not_found", None)), Outcome::Refused),
            (401, Some(problem("unauthorized", None)), Outcome::Refused),
            (503, Some(problem("overloaded", Some(false))), Outcome::Refused),
            (503, Some(problem("overloaded", Some(true))), Outcome::Unknown),
            (503, Some(problem("overloaded", None)), Outcome::Unknown),
            (503, None, Outcome::Unknown),
            (504, Some(problem("outcome_unknown", None)), Outcome::Unknown),
            (500, Some(problem("internal", None)), Outcome::Unknown),
            (500, Some(problem("internal", Some(false))), Outcome::Unknown),
            (408, None, Outcome::Unknown),
            (429, None, Outcome::Unknown),
            (200, None, Outcome::Unknown),
            (302, None, Outcome::Unknown),
        ];
        for (status, problem, expected) in cases {
            assert_eq!(classify(status, problem.as_ref()), expected, "{status} {problem:?}");
        }
    }
}

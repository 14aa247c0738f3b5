//! What was done to a cell: the fault, and how the cell went on.

use loadtest_lab::round::{FaultRecord, Round};
use serde::Serialize;

use crate::html::cell::Fact;
use crate::html::grid::rate;
use crate::names;
use crate::text::Text;

/// What was done to a cell.
#[derive(Debug, Serialize)]
pub struct RoundView {
    /// What was planned, what was done when, and what was seen of it.
    pub strikes: Vec<Text>,
    /// Names and values.
    pub facts: Vec<Fact>,
}

impl RoundView {
    /// The view of a round. Exact enough: loads have far fewer than 2^53 nanoseconds.
    #[allow(clippy::cast_precision_loss)]
    pub fn of(round: &Round) -> Self {
        let seconds = |ns: u64| format!("{:.2}", ns as f64 / 1e9);
        let words = |fault: &FaultRecord| {
            Text::of("struck")
                .with("fault", fault.name.name())
                .with("from", seconds(fault.begin_ns))
                .with("until", seconds(fault.end_ns))
                .with("witness", Text::english(&fault.witness))
        };
        let planned = [Text::of("planned").with("plan", names::plan(round))];
        let [before, during, after] = round.requests;
        let requests = Text::of("requests_around")
            .with("before", before)
            .with("during", during)
            .with("after", after);
        Self {
            strikes: planned.into_iter().chain(round.faults.iter().map(words)).collect(),
            facts: vec![
                Fact::new("in_flight_at_fault", round.in_flight),
                Fact::new("requests", requests),
                Fact::new(
                    "answers_before",
                    Text::of("per_second").with("count", rate(round.before_per_s)),
                ),
                Fact::new("throughput_back", names::back(round)),
                Fact::new("requests_failed", round.failed_requests),
                Fact::new("bought_after", round.ok_after),
                Fact::new("served_after", round.served_after),
            ],
        }
    }
}

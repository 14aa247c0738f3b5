//! Whether a cell was a real load. One that was not shows nothing, whatever came out of it.

use crate::load::stats::Figures;

/// Fewest units on sale.
pub const MIN_STOCK: u64 = 100;
/// Fewest users for each unit.
pub const MIN_USERS_PER_UNIT: u64 = 5;
/// Fewest simultaneous requests of each user.
pub const MIN_SIMULTANEOUS: u64 = 3;
/// Fewest requests.
pub const MIN_REQUESTS: u64 = 2000;
/// Fewest requests in flight, as a mean over the time the load was full.
pub const MIN_IN_FLIGHT: f64 = 64.0;
/// Least part of all requests that each replica answered.
pub const MIN_REPLICA_SHARE: f64 = 0.1;
/// Largest part of requests without a known outcome. Each of them may explain one order that nobody
/// acknowledged; with 1 % of 2,100 requests that is at most 21 orders, few against a stock of 100
/// and what cells are to show.
pub const MAX_UNKNOWN_SHARE: f64 = 0.01;

/// Why this load was none, in words; empty if it was one.
pub fn reasons(figures: &Figures, stock: u64, orders: u64, replicas: u16) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut demand = |met: bool, reason: String| {
        if !met {
            reasons.push(reason);
        }
    };
    demand(stock >= MIN_STOCK, format!("a stock of {stock} is below {MIN_STOCK}"));
    demand(
        figures.users >= MIN_USERS_PER_UNIT * stock,
        format!("{} users are fewer than {MIN_USERS_PER_UNIT} for each unit", figures.users),
    );
    demand(
        figures.simultaneous_min >= MIN_SIMULTANEOUS,
        format!(
            "a user had only {} requests in flight at once, not {MIN_SIMULTANEOUS}",
            figures.simultaneous_min
        ),
    );
    demand(
        figures.requests >= MIN_REQUESTS,
        format!("{} requests are fewer than {MIN_REQUESTS}", figures.requests),
    );
    demand(
        figures.in_flight_mean >= MIN_IN_FLIGHT,
        format!("{:.1} requests in flight are fewer than {MIN_IN_FLIGHT}", figures.in_flight_mean),
    );
    for number in 1..=replicas {
        let name = format!("r{number}");
        let share = figures.replicas.get(&name).map_or(0.0, |share| share.share);
        demand(
            share >= MIN_REPLICA_SHARE,
            format!("replica {name} answered {:.1} % of the requests, not 10 %", share * 100.0),
        );
    }
    demand(orders >= stock, format!("only {orders} of {stock} units were sold"));
    demand(
        figures.unknown_share() <= MAX_UNKNOWN_SHARE,
        format!("{:.1} % of the requests have no known outcome", figures.unknown_share() * 100.0),
    );
    reasons
}

/// The same where each order takes long, so that there are fewer; `orders` are demanded where the
/// work can be finished at all.
pub fn of_long_work(figures: &Figures, stock: u64, orders: Option<u64>) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut demand = |met: bool, reason: String| {
        if !met {
            reasons.push(reason);
        }
    };
    demand(
        figures.simultaneous_min >= MIN_SIMULTANEOUS,
        format!(
            "a user had only {} requests in flight at once, not {MIN_SIMULTANEOUS}",
            figures.simultaneous_min
        ),
    );
    demand(
        figures.users >= MIN_USERS_PER_UNIT * stock,
        format!("{} users are fewer than {MIN_USERS_PER_UNIT} for each unit", figures.users),
    );
    let lost = figures.codes.get("503 lock_lost").copied().unwrap_or(0);
    match orders {
        Some(orders) => {
            demand(orders >= stock, format!("only {orders} of {stock} units were sold"));
        }
        None => demand(lost > 0, "no purchase lost its lock".to_owned()),
    }
    demand(
        figures.unknown_share() <= MAX_UNKNOWN_SHARE,
        format!("{:.1} % of the requests have no known outcome", figures.unknown_share() * 100.0),
    );
    reasons
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::load::outcome::Outcome;
    use crate::load::stats::{Latency, Share};

    fn good() -> Figures {
        let share = || Share { answers: 700, share: 1.0 / 3.0 };
        Figures {
            requests: 2100,
            users: 700,
            elapsed_s: 1.0,
            requests_per_s: 2100.0,
            orders_per_s: 100.0,
            all: Latency::default(),
            outcomes: BTreeMap::new(),
            codes: BTreeMap::new(),
            replicas: ["r1", "r2", "r3"].map(|name| (name.to_owned(), share())).into(),
            in_flight_mean: 90.0,
            in_flight_peak: 96,
            simultaneous_min: 3,
            ..Figures::default()
        }
    }

    fn one_reason(figures: &Figures, stock: u64, orders: u64) -> String {
        let reasons = reasons(figures, stock, orders, 3);
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons[0].clone()
    }

    #[test]
    fn a_full_load_is_valid() {
        assert_eq!(reasons(&good(), 100, 100, 3), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_is_missing_is_named() {
        assert!(one_reason(&good(), 99, 99).contains("stock of 99"));
        assert!(one_reason(&good(), 150, 150).contains("700 users"));
        assert!(one_reason(&good(), 100, 99).contains("99 of 100 units"));
        let figures = Figures { simultaneous_min: 2, ..good() };
        assert!(one_reason(&figures, 100, 100).contains("only 2 requests"));
        let figures = Figures { requests: 1999, ..good() };
        assert!(one_reason(&figures, 100, 100).contains("1999 requests"));
        let figures = Figures { in_flight_mean: 63.9, ..good() };
        assert!(one_reason(&figures, 100, 100).contains("63.9 requests in flight"));
        let mut figures = good();
        figures.replicas.remove("r2");
        assert!(one_reason(&figures, 100, 100).contains("replica r2 answered 0.0 %"));
        let mut figures = good();
        let unknown = Latency { count: 22, ..Latency::default() };
        figures.outcomes.insert(Outcome::Unknown, unknown);
        assert!(one_reason(&figures, 100, 100).contains("1.0 % of the requests have no known"));
    }
}

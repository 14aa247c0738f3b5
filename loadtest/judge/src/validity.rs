//! Whether a cell had a real load. A cell without one shows nothing, whatever its result.

use loadtest_load::history::record::{Names, Record};
use loadtest_load::outcome::Outcome;
use loadtest_load::stats::Figures;

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
/// Largest share of requests without a known outcome. Each may explain one order without an
/// acknowledgement. 1 % of 2,100 requests is at most 21 orders, few against a stock of 100 and the
/// breaches that cells show.
pub const MAX_UNKNOWN_SHARE: f64 = 0.01;
/// Largest share of unknown outcomes in a round with a fault, which takes away answers on purpose.
/// A round with more than a fifth of them had no working service around the fault.
pub const MAX_UNKNOWN_SHARE_OF_ROUND: f64 = 0.2;
/// Largest share of a run during which the generator may stand still. A request is given up after 8
/// s, of which more than the 5 s of a hang must count.
pub const MAX_STALLED_SHARE: f64 = 1.0 / 3.0;
/// Fewest requests in flight at one moment where the work is long: there are too few in all for a
/// mean over the time the load was full.
pub const MIN_PEAK_OF_LONG_WORK: u64 = 32;

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
    demand(orders >= stock, unsold(orders, stock));
    reasons.extend(of_replicas(replicas, |name| share_of(figures, name)));
    reasons.extend(of_unknown(figures.unknown_share(), MAX_UNKNOWN_SHARE));
    reasons
}

/// Why a load of long work was no real load: each order takes long, so fewer are demanded.
pub fn of_long_work(figures: &Figures, stock: u64, orders: u64, replicas: u16) -> Vec<String> {
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
    demand(
        figures.in_flight_peak >= MIN_PEAK_OF_LONG_WORK,
        format!(
            "at most {} requests were in flight, not {MIN_PEAK_OF_LONG_WORK}",
            figures.in_flight_peak
        ),
    );
    demand(orders >= stock, unsold(orders, stock));
    reasons.extend(of_replicas(replicas, |name| share_of(figures, name)));
    reasons.extend(of_unknown(figures.unknown_share(), MAX_UNKNOWN_SHARE));
    reasons
}

/// Why a load is invalid that left units.
fn unsold(orders: u64, stock: u64) -> String {
    format!("only {orders} of {stock} units{UNSOLD}")
}

/// How that reason ends.
const UNSOLD: &str = " were sold";

/// Whether that is the reason why a load is invalid.
pub fn is_unsold(reason: &str) -> bool {
    reason.ends_with(UNSOLD)
}

/// The further demands where holders should lose their locks and stop.
pub fn of_lost_locks(figures: &Figures) -> Option<String> {
    let lost = figures.codes.get("503 lock_lost").copied().unwrap_or(0);
    (lost == 0).then(|| "no purchase lost its lock".to_owned())
}

/// How many acknowledged orders were committed when their lock's validity time had ended.
pub fn committed_late(records: &[Record], names: &Names) -> u64 {
    let is_late = |record: &&Record| {
        record.outcome == Outcome::Bought
            && names.holds.get(&record.n).is_some_and(|hold| hold.lost)
    };
    records.iter().filter(is_late).count() as u64
}

/// The reason why a load shows nothing in which orders were committed late.
pub fn of_late_commits(count: u64) -> Option<String> {
    let text = format!(
        "{count} orders were committed after their locks' validity time: their holders stood still \
         before COMMIT"
    );
    (count > 0).then_some(text)
}

/// Why all requests of a round with a fault were no real load. The figures of a round cover only
/// its main load.
pub fn of_round(records: &[Record], names: &Names, replicas: u16) -> Vec<String> {
    let part = |is: &dyn Fn(&Record) -> bool| {
        let count = records.iter().filter(|record| is(record)).count();
        #[allow(clippy::cast_precision_loss)]
        let part = count as f64 / records.len().max(1) as f64;
        part
    };
    let share = |name: &str| {
        let index = names.replicas.iter().position(|known| known == name);
        let index = index.and_then(|index| u8::try_from(index).ok());
        index.map_or(0.0, |index| part(&|record| record.replica == Some(index)))
    };
    let unknown = part(&|record| record.outcome == Outcome::Unknown);
    let mut reasons = of_replicas(replicas, share);
    reasons.extend(of_unknown(unknown, MAX_UNKNOWN_SHARE_OF_ROUND));
    reasons
}

/// A generator that stood still for a large part of its run.
pub fn of_stalls(stalled_ns: u64, run_ns: u64) -> Option<String> {
    let share = crate::conditions::share(stalled_ns, run_ns);
    let words = || format!("the load generator stood still for {:.0} % of the run", share * 100.0);
    (share > MAX_STALLED_SHARE).then(words)
}

/// Whether that reason is that the generator stood still.
pub fn is_of_stalls(why_invalid: &str) -> bool {
    why_invalid.starts_with("the load generator stood still for ")
}

/// Requests that were due and not sent.
pub fn of_dropped(figures: &Figures) -> Option<String> {
    let dropped = figures.cost.dropped;
    let words = || format!("{dropped} requests found no connection in time");
    (dropped > 0).then(words)
}

fn share_of(figures: &Figures, replica: &str) -> f64 {
    figures.replicas.get(replica).map_or(0.0, |share| share.share)
}

/// Replicas that have answered less than their part.
fn of_replicas(replicas: u16, share: impl Fn(&str) -> f64) -> Vec<String> {
    let shares = (1..=replicas).map(|number| format!("r{number}")).map(|name| {
        let share = share(&name);
        (name, share)
    });
    let idle = shares.filter(|(_, share)| *share < MIN_REPLICA_SHARE);
    let words = |(name, share): (String, f64)| {
        format!("replica {name} answered {:.1} % of the requests, not 10 %", share * 100.0)
    };
    idle.map(words).collect()
}

fn of_unknown(share: f64, most: f64) -> Option<String> {
    let words = || format!("{:.1} % of the requests have no known outcome", share * 100.0);
    (share > most).then(words)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use loadtest_load::stats::{Latency, ReplicaShare};

    use super::*;

    fn good() -> Figures {
        let share = || ReplicaShare { answers: 700, share: 1.0 / 3.0 };
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

    #[test]
    fn long_work_needs_all_replicas_requests_in_flight_units_sold_and_locks_lost() {
        let one = |figures: &Figures, orders, word: &str| {
            let reasons = of_long_work(figures, 20, orders, 3);
            assert!(reasons.len() == 1 && reasons[0].contains(word), "{word}: {reasons:?}");
        };
        assert_eq!(of_long_work(&good(), 20, 20, 3), Vec::<String>::new());
        one(&good(), 19, "only 19 of 20 units");
        one(&Figures { in_flight_peak: 31, ..good() }, 20, "at most 31 requests");
        let mut figures = good();
        figures.replicas.remove("r3");
        one(&figures, 20, "replica r3 answered 0.0 %");
        assert_eq!(of_lost_locks(&figures), Some("no purchase lost its lock".to_owned()));
        figures.codes.insert("503 lock_lost".to_owned(), 1);
        assert_eq!(of_lost_locks(&figures), None);
    }

    #[test]
    fn a_load_of_which_a_part_was_never_sent_is_none() {
        assert_eq!(of_dropped(&good()), None);
        let mut figures = good();
        figures.cost.dropped = 3;
        assert!(of_dropped(&figures).expect("a reason").starts_with("3 requests found no"));
    }

    #[test]
    fn a_round_needs_answers_of_all_replicas_and_few_requests_without_one() {
        let record = |replica, outcome| Record { replica, ..Record::that_ended(outcome) };
        let names = Names { replicas: ["r2", "r1"].map(str::to_owned).into(), ..Names::default() };
        // Of 100 requests `unknown` went to the first replica without an answer, the others to the
        // second.
        let reasons = |first: usize, unknown: usize| {
            let mut records = vec![record(Some(0), Outcome::Bought); 100];
            records[..first].fill(record(Some(1), Outcome::SoldOut));
            records[100 - unknown..].fill(record(None, Outcome::Unknown));
            of_round(&records, &names, 2)
        };
        assert_eq!(reasons(10, 20), Vec::<String>::new());
        assert_eq!(reasons(9, 20), ["replica r1 answered 9.0 % of the requests, not 10 %"]);
        assert_eq!(reasons(10, 21), ["21.0 % of the requests have no known outcome"]);
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

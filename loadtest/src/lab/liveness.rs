//! What a deployment owes to those who come once a fault has healed: an answer, soon.
//!
//! Safety says nothing of a service that hangs. So of a round it is demanded that somebody was
//! served soon after the fault, and that nobody who came when all was well again waited long. Both
//! bounds are generous, for machines that are busy with other things: what they are to tell apart
//! is a service that is slow and one that never answers.

use crate::judge::evidence::{NO_END, Names, Record};
use crate::load::client::HUNG_UP;

/// Whoever comes later than this after the fault comes to a deployment that has recovered.
const SETTLED_NS: u64 = 1_000_000_000;
/// So long an answer may take then, and so long after the fault's end the first one may come.
const ANSWERED_WITHIN_NS: u64 = 5_000_000_000;

/// Promises that were not kept to those who came after the fault had healed at `healed_ns`; before
/// it so much was answered per second.
pub(super) fn unmet(
    records: &[Record],
    names: &Names,
    (healed_ns, before_per_s): (u64, f64),
) -> Vec<String> {
    let within = ANSWERED_WITHIN_NS / 1_000_000_000;
    let mut unmet = Vec::new();
    let decided = |record: &Record| {
        record.start_ns >= healed_ns
            && record.end_ns <= healed_ns.saturating_add(ANSWERED_WITHIN_NS)
            && record.outcome.decides()
    };
    if before_per_s > 0.0 && !records.iter().any(decided) {
        unmet.push(format!("nobody was served within {within} s of the fault's end"));
    }
    let settled_ns = healed_ns.saturating_add(SETTLED_NS);
    let hung = records.iter().filter(|one| one.start_ns >= settled_ns && hangs(one, names));
    let hung: Vec<_> = hung.collect();
    if let Some(longest) = hung.iter().map(|one| one.end_ns.saturating_sub(one.start_ns)).max() {
        let longest = match longest {
            _ if hung.iter().any(|one| one.end_ns == NO_END) => "for ever".to_owned(),
            ns => format!("for {} ms", ns / 1_000_000),
        };
        unmet.push(format!(
            "{} requests were sent a second after the fault's end or later, and not answered \
             within {within} s, one {longest}",
            hung.len()
        ));
    }
    unmet
}

/// Whether it took too long to be answered. A ticket has a deadline of its own, and who hangs up
/// waits for nothing.
fn hangs(record: &Record, names: &Names) -> bool {
    let took_ns = record.end_ns.saturating_sub(record.start_ns);
    let code = names.codes.get(usize::from(record.code)).map_or("", String::as_str);
    took_ns > ANSWERED_WITHIN_NS && !record.admitted && code != HUNG_UP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::outcome::Outcome;

    const SECOND: u64 = 1_000_000_000;
    const HEALED: u64 = 10 * SECOND;

    fn names() -> Names {
        let codes = ["201", "timed_out", "hung_up"].map(str::to_owned).into();
        Names { codes, ..Names::default() }
    }

    /// Sent and ended at these milliseconds after the fault's end.
    fn record(outcome: Outcome, code: u8, [start_ms, end_ms]: [u64; 2]) -> Record {
        Record {
            start_ns: HEALED + start_ms * 1_000_000,
            end_ns: HEALED + end_ms * 1_000_000,
            code,
            ..Record::that_ended(outcome)
        }
    }

    fn found(more: &[Record]) -> Vec<String> {
        let served = record(Outcome::SoldOut, 0, [4000, 5000]);
        unmet(&[&[served], more].concat(), &names(), (HEALED, 90.0))
    }

    #[test]
    fn who_comes_to_a_healed_deployment_and_waits_for_longer_than_five_seconds_hangs() {
        let timed_out = |times| record(Outcome::Unknown, 1, times);
        assert_eq!(found(&[]), Vec::<String>::new());
        assert_eq!(found(&[timed_out([1000, 6000])]), Vec::<String>::new(), "just in time");
        assert_eq!(found(&[timed_out([999, 9000])]), Vec::<String>::new(), "it was not settled");
        let late = found(&[timed_out([1000, 6001]), record(Outcome::Bought, 0, [2000, 9500])]);
        assert_eq!(late.len(), 1);
        assert!(late[0].starts_with("2 requests") && late[0].contains("7500 ms"), "{late:?}");
        let without_end = Record { end_ns: NO_END, ..timed_out([1000, 1000]) };
        assert!(found(&[without_end])[0].ends_with("one for ever"));
    }

    #[test]
    fn tickets_and_those_who_hang_up_do_not_hang() {
        let ticket = Record { admitted: true, ..record(Outcome::Bought, 0, [1000, 9000]) };
        let gone = record(Outcome::Unknown, 2, [1000, 9000]);
        assert_eq!(found(&[ticket, gone]), Vec::<String>::new());
    }

    #[test]
    fn a_deployment_that_serves_nobody_who_comes_after_the_fault_has_not_recovered() {
        let of = |records: &[Record], before_per_s| {
            unmet(records, &names(), (HEALED, before_per_s)).len()
        };
        let served = |times| record(Outcome::Bought, 0, times);
        assert_eq!(of(&[served([0, 5000])], 90.0), 0);
        assert_eq!(of(&[served([1, 5001])], 90.0), 1, "too late");
        let waited = Record { start_ns: HEALED - 1, ..served([0, 100]) };
        assert_eq!(of(&[waited], 90.0), 1, "who waited the fault out had come before");
        assert_eq!(of(&[record(Outcome::Refused, 0, [0, 100])], 90.0), 1, "that serves nobody");
        assert_eq!(of(&[], 0.0), 0, "it served nobody before the fault either");
    }
}

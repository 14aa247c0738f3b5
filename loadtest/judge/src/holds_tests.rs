use std::time::{Duration, Instant};

use loadtest_load::hold_report::HoldReport;
use loadtest_load::outcome::Outcome;

use super::*;

/// Holds of these users with `earliest`, `from` and `until`, in milliseconds.
fn overlaps(scope: Scope, holds: &[(u64, [u64; 3])]) -> Option<HoldOverlaps> {
    let ns = |(user, times): &(u64, [u64; 3])| {
        let [earliest, from, until] = times.map(|ms| ms * 1_000_000);
        (*user, LockHold { earliest, from, until, lost: false })
    };
    overlaps_of(scope, &holds.iter().map(ns).collect::<Vec<_>>())
}

fn overlaps_of(scope: Scope, holds: &[(u64, LockHold)]) -> Option<HoldOverlaps> {
    let mut names = Names::default();
    let record = |(n, &(user, hold)): (u32, &(u64, LockHold))| {
        names.holds.insert(n, hold);
        Record { user, n, ..Record::that_ended(Outcome::Bought) }
    };
    let records: Vec<Record> = (0..).zip(holds).map(record).collect();
    HoldOverlaps::of(&records, &names, scope)
}

fn found(scope: Scope, holds: &[(u64, [u64; 3])]) -> (u64, f64, u64) {
    let it = overlaps(scope, holds).expect("holds");
    (it.at_once, it.longest_ms, it.certain)
}

#[test]
fn holds_that_follow_each_other_do_not_overlap_and_no_holds_give_no_finding() {
    assert_eq!(overlaps(Scope::User, &[]), None);
    let two = [(1, [0, 0, 10]), (1, [0, 10, 20])];
    assert_eq!(found(Scope::User, &two), (0, 0.0, 0));
}

#[test]
fn each_user_has_a_lock_and_a_voucher_has_one() {
    let two = [(1, [0, 0, 10]), (2, [4, 4, 9])];
    assert_eq!(found(Scope::User, &two), (0, 0.0, 0));
    assert_eq!(found(Scope::Voucher, &two), (1, 5.0, 1));
}

#[test]
fn an_overlap_that_late_answers_can_explain_is_not_certain() {
    // The first may have begun 3 ms earlier, and so have ended at 7.
    let two = [(1, [0, 3, 10]), (1, [0, 8, 20])];
    assert_eq!(found(Scope::User, &two), (1, 2.0, 0));
    // It has held until 8 at least, and the second one began at 7 at the latest.
    let two = [(1, [1, 3, 10]), (1, [0, 7, 20])];
    assert_eq!(found(Scope::User, &two), (1, 3.0, 1));
}

#[test]
fn a_lost_lock_is_shown_and_is_no_certain_overlap() {
    let hold = |lost| LockHold { earliest: 0, from: 0, until: 10_000_000, lost };
    let found = |lost| overlaps_of(Scope::User, &[(1, hold(lost)), (1, hold(false))]);
    assert_eq!(found(false).map(|it| (it.at_once, it.certain)), Some((1, 1)));
    assert_eq!(found(true).map(|it| (it.at_once, it.certain)), Some((1, 0)));
}

#[test]
fn the_longest_overlap_is_reported_with_the_resolution() {
    let frozen =
        [(1, [0, 2, 1000]), (2, [99, 100, 110]), (3, [298, 300, 350]), (4, [0, 999, 1001])];
    let it = overlaps(Scope::Voucher, &frozen).expect("holds");
    assert_eq!((it.holds, it.at_once, it.longest_ms, it.certain), (4, 3, 50.0, 2));
    let resolution = "; an overlap of more than 1001.0 ms is certain";
    let words = |certain, at_once| HoldOverlaps { at_once, certain, ..it }.words();
    let some =
        format!("2 of 4 holds for certain, and perhaps 1 more, for 50.0 ms at most{resolution}");
    assert_eq!(words(2, 3), some);
    let all = format!("3 of 4 holds for certain, for 50.0 ms at most{resolution}");
    assert_eq!(words(3, 3), all);
    let none =
        format!("none of 4 holds for certain, but perhaps 3, for 50.0 ms at most{resolution}");
    assert_eq!(words(0, 3), none);
    assert_eq!(words(0, 0), "none of 4 holds");
}

/// Draws lengths of very different sizes, up to some 50 ms in nanoseconds; often none at all.
fn length(random: &mut fastrand::Rng) -> u64 {
    match random.u8(0..4) {
        0 => 0,
        1 => random.u64(0..3_000),
        2 => random.u64(0..400_000),
        _ => random.u64(0..50_000_000),
    }
}

/// One purchase whose lock is granted at `granted` by the server, and what its readings come to.
struct Purchase {
    /// When the server has the lock back.
    freed: u64,
    /// The replica's readings of the grant and the release.
    read: [u64; 2],
    hold: LockHold,
}

impl Purchase {
    /// A hold whose clock readings come after their events, by as long as the thread was suspended.
    /// The reading of the release comes after the release too.
    fn of(granted: u64, random: &mut fastrand::Rng) -> Self {
        let mut any = || length(random);
        let arrived_reading = granted.saturating_sub(any());
        let sent_reading = arrived_reading.saturating_sub(any());
        let granted_reading = granted + any();
        let released_reading = granted_reading + any();
        let freed = released_reading + any();
        let answered_reading = released_reading + any();
        let ended_reading = answered_reading + any();
        // As the replica writes them: differences of its readings, in whole microseconds.
        let micros = |later: u64, earlier: u64| Duration::from_micros((later - earlier) / 1000);
        let report = HoldReport {
            waited: micros(granted_reading, arrived_reading),
            held: micros(released_reading, granted_reading),
            since: micros(answered_reading, released_reading),
            lost: false,
            valid: None,
            fence: None,
        };
        let began = Instant::now();
        let at = |ns| began + Duration::from_nanos(ns);
        let placed = report.placed([at(sent_reading), at(ended_reading)]).expect("it fits");
        let told = placed.told(|moment| {
            u64::try_from(moment.duration_since(began).as_nanos()).expect("it is small")
        });
        let [from, until] = told.h;
        let hold = LockHold { earliest: sent_reading + told.w, from, until, lost: false };
        Self { freed, read: [granted_reading, released_reading], hold }
    }
}

#[test]
fn an_exclusive_lock_is_never_accused_whichever_thread_is_descheduled() {
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut now, mut holds) = (100_000_000, Vec::new());
        for _ in 0..random.usize(2..8) {
            let purchase = Purchase::of(now, &mut random);
            holds.push((1, purchase.hold));
            now = purchase.freed + length(&mut random);
        }
        let it = overlaps_of(Scope::User, &holds).expect("holds");
        assert_eq!(it.certain, 0, "seed {seed}: {it:?}, {holds:?}");
    }
}

#[test]
fn an_overlap_longer_than_the_resolution_is_found_whichever_thread_is_descheduled() {
    let mut longer = 0;
    for seed in 0..20_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let one = Purchase::of(100_000_000, &mut random);
        let other = Purchase::of(100_000_000 + length(&mut random), &mut random);
        let it = overlaps_of(Scope::User, &[(1, one.hold), (1, other.hold)]).expect("holds");
        let together =
            one.read[1].min(other.read[1]).saturating_sub(one.read[0].max(other.read[0]));
        // Each length is rounded down to a microsecond.
        let resolution = one.hold.uncertainty() + other.hold.uncertainty() + 4_000;
        if together > resolution {
            longer += 1;
            assert_eq!(it.certain, 1, "seed {seed}: {it:?}, {together} ns together");
        }
    }
    assert!(longer > 400, "{longer} overlaps were longer than the resolution");
}

use std::collections::HashSet;

use loadtest_load::history::Mark;
use loadtest_load::history::record::LockHold;

use super::*;
use crate::evidence::AuditCheck;
use crate::stalls::{STALL, Stalls};
use crate::terms::Terms;

const MS: u64 = 1_000_000;
const CODES: [&str; 3] = ["201", TIMED_OUT, "409 sold_out"];

/// Requests for one voucher.
#[derive(Default)]
struct Scene {
    records: Vec<Record>,
    names: Names,
    stalls: Stalls,
}

impl Scene {
    fn ended(&mut self, (user, outcome, code): (u64, Outcome, u8), [start_ns, end_ns]: [u64; 2]) {
        let n = u32::try_from(self.records.len()).expect("few");
        let ended = Record::that_ended(outcome);
        self.records.push(Record { user, n, code, start_ns, end_ns, ..ended });
    }

    /// A purchase that had its lock from `hold[0]` at the earliest and `hold[1]` at the latest.
    fn bought(&mut self, user: u64, times: [u64; 2], [earliest, from, until]: [u64; 3]) {
        let n = u32::try_from(self.records.len()).expect("few");
        self.names.holds.insert(n, LockHold { earliest, from, until, lost: false });
        self.ended((user, Outcome::Bought, 0), times);
    }

    fn judged(&self, lock_per: Scope) -> (Option<bool>, String) {
        let terms = Terms {
            lock_per: Some(lock_per),
            lock_wait_ns: Some(6000 * MS),
            stalls: self.stalls.clone(),
            ..Terms::default()
        };
        let names = Names { codes: CODES.map(str::to_owned).into(), ..self.names.clone() };
        let none = HashSet::new();
        let evidence = Evidence {
            records: &self.records,
            names: &names,
            rows: &[],
            rows_are_all: true,
            earlier: &none,
            elsewhere: &none,
            offered: None,
            grants: &[],
            granted: None,
            left: None,
            effects: &[],
            audit: AuditCheck::Absent,
            terms: &terms,
            marks: &[],
        };
        judge(&evidence, &mut Breaches::default())
    }

    fn longest_ms(&self, lock_per: Scope) -> u64 {
        let (_, detail) = self.judged(lock_per);
        let ms = detail.rsplit("the longest ").next().and_then(|end| end.strip_suffix(" ms"));
        ms.and_then(|ms| ms.parse().ok()).unwrap_or_else(|| panic!("{detail}"))
    }
}

fn ms<const N: usize>(times: [u64; N]) -> [u64; N] {
    times.map(|ms| ms * MS)
}

#[test]
fn a_purchase_that_waits_for_a_slow_one_is_not_late_and_one_that_waits_for_a_free_lock_is() {
    let mut slow = Scene::default();
    slow.bought(1, ms([0, 3900]), ms([5, 5, 3800]));
    slow.bought(1, ms([0, 7900]), ms([3950, 3950, 7800]));
    assert_eq!(slow.judged(Scope::User).0, Some(true), "a busy machine");
    assert_eq!(slow.longest_ms(Scope::User), 50, "from one answer to the next hold");

    let mut late = Scene::default();
    late.bought(1, ms([0, 110]), ms([5, 5, 100]));
    late.bought(1, ms([0, 4000]), ms([3110, 3110, 3900]));
    assert_eq!(late.judged(Scope::User).0, Some(true), "3 s after the answer of the first");
    late.bought(2, ms([0, 4000]), ms([3001, 3001, 3900]));
    let (held, detail) = late.judged(Scope::User);
    let told = "1 of 3 waited more than 3 s for a free lock; the longest 3001 ms";
    assert_eq!((held, detail.as_str()), (Some(false), told));
    assert_eq!(late.longest_ms(Scope::Voucher), 2891, "another buyer had that lock before");
}

#[test]
fn a_request_that_is_refused_at_the_end_of_its_wait_waited_that_long() {
    let refused = (1, Outcome::Refused, 1);
    let mut alone = Scene::default();
    alone.ended(refused, ms([0, 9000]));
    assert_eq!(alone.longest_ms(Scope::User), 6000, "the rest it was on its way");
    alone.bought(1, ms([0, 3600]), ms([1, 1, 3500]));
    assert_eq!(alone.longest_ms(Scope::User), 2400);
    alone.ended((1, Outcome::Unknown, 2), ms([2000, 3000]));
    assert_eq!(alone.longest_ms(Scope::User), 1, "it may hold the lock still");
    let mut others = Scene::default();
    others.ended((1, Outcome::Refused, 2), ms([0, 9000]));
    assert_eq!(others.judged(Scope::User).0, None, "it did not wait for a lock");
}

#[test]
fn a_generator_that_stood_still_did_not_wait() {
    let mut scene = Scene::default();
    scene.bought(1, ms([0, 5000]), ms([4500, 4500, 4900]));
    assert_eq!(scene.judged(Scope::User).0, Some(false));
    let detail = (1500 * MS).to_string().into();
    let what = STALL.into();
    let stall = Mark { t: 2000 * MS, what, detail, ..Mark::default() };
    scene.stalls = Stalls::of(&[stall]);
    assert_eq!(scene.longest_ms(Scope::User), 3000);
    assert_eq!(scene.judged(Scope::User).0, Some(true));
}

/// Purchases of one user, each under the lock once the one before has freed it, at most a second
/// later, with readings that are late by up to 5 s. `free_ns` passes before the last one has it.
fn one_after_the_other(random: &mut fastrand::Rng, free_ns: u64) -> Scene {
    let began = 10_000 * MS;
    let (mut scene, mut freed) = (Scene::default(), began);
    let count = random.usize(2..7);
    for place in 1..=count {
        let mut any = |most_ms: u64| random.u64(0..most_ms * MS);
        let handed_on = if place == count { free_ns } else { any(1000) };
        let (arrived, granted) = ((freed - any(5000)).max(began), freed + handed_on);
        let (sent, held) = (arrived - any(5000), any(5000));
        let answered = granted + held + any(200);
        let read = answered + any(5000);
        let late = read - answered;
        // It was granted `granted - arrived` after its arrival, and held until `answered` at most.
        let earliest = sent + (granted - arrived);
        scene.bought(1, [sent, read], [earliest, granted + late, granted + held + late]);
        freed = granted + held;
    }
    scene
}

#[test]
fn a_lock_that_is_handed_on_within_a_second_is_never_late_whichever_reading_is() {
    for seed in 0..5_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let free_ns = random.u64(0..1000 * MS);
        let scene = one_after_the_other(&mut random, free_ns);
        let (held, detail) = scene.judged(Scope::User);
        assert_eq!(held, Some(true), "seed {seed}: {detail}");
    }
}

#[test]
fn a_lock_that_stays_free_for_longer_than_all_delays_is_always_found() {
    for seed in 0..5_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let scene = one_after_the_other(&mut random, 60_000 * MS);
        let (held, detail) = scene.judged(Scope::User);
        assert_eq!(held, Some(false), "seed {seed}: {detail}");
    }
}

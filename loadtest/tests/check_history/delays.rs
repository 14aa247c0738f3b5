//! A sound run stays good however late a clock is read. Each request seems to be sent earlier and
//! to end later than it was, by any time, and the generator stands still at times. All rules that
//! rest on a clock are demanded.

use std::borrow::Cow;
use std::collections::HashMap;

use loadtest_judge::recovery::{KEPT, SEEN};
use loadtest_judge::stalls::STALL;
use loadtest_judge::verdict::Rule;
use loadtest_load::history::{Completion, DEMANDS, Event, FAULT, LOCK_PER, Mark, ONE_HOLDER_PER};

use crate::tape::{Tape, judge};

/// Runs, each with other delays.
const RUNS: u64 = 60;
/// How many times longer than a made-up sale this one lasts: some 6 s.
const STRETCHED: u64 = 200;
/// The sale begins at this time, so that no reading falls before the first.
const BEGINS_NS: u64 = 20_000_000_000;
/// A fault in its first half.
const FAULT_NS: [u64; 2] = [BEGINS_NS + 1_000_000_000, BEGINS_NS + 2_000_000_000];
/// The longest delay that is not noted as a stall.
const UNNOTED_NS: u64 = 250_000_000;
const ON_FAULTS: &str = "served_after_fault,answered_after_fault,locks_are_handed_on,\
                         each_replica_serves,tickets_end,purchases_end,sold_out_stays_sold_out,\
                         sold_within_window";

fn mark(t: u64, what: &'static str, name: impl Into<Cow<'static, str>>) -> Mark<'static> {
    Mark { t, what: what.into(), name: name.into(), ..Mark::default() }
}

/// A sale under a lock that keeps each user's requests apart, with a fault that has healed.
fn sound() -> Tape {
    let mut tape = Tape::legal();
    tape.settings = vec![(ONE_HOLDER_PER, "user"), (LOCK_PER, "user"), (DEMANDS, ON_FAULTS)];
    let (mut sent, mut free_from) = (HashMap::new(), HashMap::new());
    for event in &mut tape.events {
        match event {
            Event::Invoke(invoke) => {
                invoke.t = BEGINS_NS + invoke.t * STRETCHED;
                sent.insert(invoke.n, (invoke.u, invoke.t));
            }
            Event::Ok(end) | Event::Fail(end) | Event::Unknown(end) => {
                end.t = BEGINS_NS + end.t * STRETCHED;
                let (user, sent) = sent[&end.n];
                let free = free_from.entry(user).or_insert(0);
                let from = sent.max(*free);
                if end.r.is_some() && from < end.t {
                    *free = from + (end.t - from) / 2;
                    (end.h, end.w) = (Some([from, *free]), from - sent);
                }
            }
            _ => {}
        }
    }
    let phases = [("begin", FAULT_NS[0]), ("healed", FAULT_NS[1])];
    let fault = phases.map(|(phase, t)| Mark { phase: phase.into(), ..mark(t, FAULT, "kill") });
    let seen = [
        Rule::EachReplicaServes,
        Rule::PurchasesEnd,
        Rule::SoldOutStaysSoldOut,
        Rule::SoldWithinWindow,
    ];
    let seen = seen.map(|rule| Mark { phase: KEPT.into(), ..mark(1, SEEN, rule.name()) });
    tape.events.extend(fault.into_iter().chain(seen).map(Event::Mark));
    tape
}

/// Some stretches in which the generator stands still, for up to 10 s.
fn stalls(random: &mut fastrand::Rng) -> Vec<[u64; 2]> {
    let count = random.usize(0..3);
    let stall = |_| {
        let from = BEGINS_NS + random.u64(0..6_000_000_000);
        [from, from + random.u64(UNNOTED_NS..10_000_000_000)]
    };
    (0..count).map(stall).collect()
}

/// The run as a generator read it that stood still for these stretches.
fn delayed(mut tape: Tape, stalls: &[[u64; 2]], random: &mut fastrand::Rng) -> Tape {
    let around = |t: u64| stalls.iter().filter(move |[from, until]| (*from..*until).contains(&t));
    for event in &mut tape.events {
        let any = random.u64(0..UNNOTED_NS);
        match event {
            Event::Invoke(invoke) => {
                let read = around(invoke.t).map(|[from, _]| *from).min().unwrap_or(invoke.t);
                invoke.t = read - any;
            }
            Event::Ok(end) | Event::Fail(end) | Event::Unknown(end) => put_off(end, &around, any),
            Event::Mark(mark) if mark.what == FAULT => mark.t += any,
            _ => {}
        }
    }
    let told = stalls.iter().map(|[from, until]| Mark {
        detail: (until - from).to_string().into(),
        ..mark(*until, STALL, "generator")
    });
    tape.events.extend(told.map(Event::Mark));
    tape
}

/// Reads an end late, and with it the hold that counts back from it.
fn put_off<'s, S: Iterator<Item = &'s [u64; 2]>>(
    end: &mut Completion<'static>,
    around: &impl Fn(u64) -> S,
    any: u64,
) {
    let read = around(end.t).map(|[_, until]| *until).max().unwrap_or(end.t) + any;
    let late = read - end.t;
    end.t = read;
    end.h = end.h.map(|hold| hold.map(|moment| moment + late));
}

#[tokio::test]
async fn a_sound_run_stays_good_whichever_reading_is_late() {
    let judgement = judge(&[sound()]).await;
    assert!(judgement.ok, "{:?}", judgement.failed_because);
    let clocked = [Rule::OneHolderAtATime, Rule::ServedAfterFault, Rule::AnsweredAfterFault];
    for rule in clocked.into_iter().chain([Rule::LocksAreHandedOn, Rule::SoldOutIsTrue]) {
        let finding = judgement.vouchers[0].verdict.finding(rule).expect("present");
        assert_eq!(finding.held, Some(true), "{rule:?}: {}", finding.detail);
    }
    for seed in 0..RUNS {
        let mut random = fastrand::Rng::with_seed(seed);
        let stalls = stalls(&mut random);
        let judgement = judge(&[delayed(sound(), &stalls, &mut random)]).await;
        assert!(judgement.ok, "seed {seed}: {:?}", judgement.failed_because);
    }
}

#[tokio::test]
async fn a_request_that_hangs_is_found_though_readings_are_late() {
    for seed in 0..RUNS / 10 {
        let mut tape = sound();
        let is_late = |n: &u32| {
            let Event::Invoke(invoke) = &tape.events[tape.places(*n).0] else { return false };
            invoke.t > FAULT_NS[1] + 2_000_000_000
        };
        let hung = tape.with_code("overloaded").into_iter().find(is_late).expect("one");
        tape.ends_late(hung, 40_000_000_000);
        let tape = delayed(tape, &[], &mut fastrand::Rng::with_seed(seed));
        let judgement = judge(&[tape]).await;
        let finding = judgement.vouchers[0].verdict.finding(Rule::AnsweredAfterFault);
        assert_eq!(finding.expect("present").held, Some(false), "seed {seed}");
    }
}

//! That a queue keeps its order over ten thousand hand-offs between processes. One test, so that
//! nothing else runs. An inversion: a contender enters that had not asked yet when another was
//! known to stand in the queue. The other entered later and was alive all the time.

use std::time::Duration;

use conformance::clock::between;
use conformance::protocol::{Contest, LockRequest, SectionRecord};
use conformance::{
    Contender, Servers, Spread, busy_until_queued, fresh_name, overlaps, overtaken, promise,
};
use distlock::LockKind;

const KIND: LockKind = LockKind::Fair;
const HAND_OFFS: usize = 10_000;
const PROCESSES: usize = 3;
const WAITERS: u32 = 8;
/// Of each waiter: a few more than the hand-offs need, since at the end no waiter is left.
const SECTIONS_PER_WAITER: u64 = 430;
const LEASE: Duration = Duration::from_secs(20);
/// Far more than it takes, which is 10 s on two cores that have nothing else to do.
const LIMIT: Duration = Duration::from_mins(4);

/// A hand-off takes that long only where a server or a process stands still. A waiter that does so
/// for longer than its patience is passed over like a dead one.
const STANDSTILL: Duration = Duration::from_secs(1);
/// How often it is measured where something stood still.
const TRIES: usize = 5;

#[test]
fn in_ten_thousand_hand_offs_of_a_fair_lock_no_live_waiter_is_overtaken() {
    let mut spoiled = Vec::new();
    for _ in 0..TRIES {
        let (inversions, longest) = measure();
        if inversions == 0 {
            return;
        }
        assert!(longest >= STANDSTILL, "{inversions} overtaken; the longest step is {longest:?}");
        spoiled.push((inversions, longest));
    }
    panic!("overtaken each time: {spoiled:?}");
}

/// How many were overtaken, and how long it took at most from one entry to the next.
fn measure() -> (usize, Duration) {
    let servers = Servers::shared();
    let contenders: Vec<_> = (0..PROCESSES).map(|_| Contender::start(servers, KIND)).collect();
    let want = LockRequest::new(&fresh_name(), LEASE).waiting(LIMIT);
    let contest = Contest::new(want, WAITERS, SECTIONS_PER_WAITER, &servers.fresh_path("counter"));
    let begun: Vec<_> =
        contenders.iter().map(|process| process.contend(contest.clone(), LIMIT)).collect();
    let mut records: Vec<SectionRecord> = Vec::new();
    for contest in begun {
        let brought = contest.wait().expect("a report");
        assert!(brought.failures.is_empty(), "{:?}", brought.failures);
        records.extend(brought.records);
    }
    records.sort_by_key(|record| record.acquired_ns);
    assert_eq!(overlaps(&records), 0, "two were in at the same time");

    let busy_until_queued = busy_until_queued(&promise(KIND));
    // To one who stood in the queue when the one before came out.
    let waited = |pair: &&[SectionRecord]| {
        let queued_ns = pair[1].queued_ns(busy_until_queued);
        queued_ns.is_some_and(|queued_ns| queued_ns < pair[0].released_ns)
    };
    let took = |pair: &[SectionRecord]| between(pair[0].valid_until_ns, pair[1].acquired_ns);
    let hand_offs = Spread::of(records.windows(2).filter(waited).map(took));
    let inversions = overtaken(&records, busy_until_queued);
    println!("{KIND}: inversions {inversions}; hand-offs {hand_offs}");
    assert!(hand_offs.count() >= HAND_OFFS, "too few waited: {}", hand_offs.count());
    let steps = records.windows(2).map(|pair| between(pair[0].acquired_ns, pair[1].acquired_ns));
    (inversions, steps.max().expect("there are hand-offs"))
}

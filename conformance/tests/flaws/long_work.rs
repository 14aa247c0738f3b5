//! Work that takes longer than the lease. Witness: the stay of the first, which is longer.

use std::time::Duration;

use conformance::clock::between;
use conformance::counter::Counter;
use conformance::protocol::{Contest, LockRequest, SectionRecord};
use conformance::{Contender, fresh_name, overlaps};
use distlock::{LockKind, RenewalKind, guarantees};

use crate::scene::{WAIT_TIMEOUT, changed, servers};

/// A lease, and how long each works under it: reads a number, and so much later writes it one
/// higher. The second gets the lock while the first works, also if it stands still for seconds.
const UNRENEWED: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(6));
/// Renewed in time also by a server or a process that stands still for a moment.
const RENEWED: (Duration, Duration) = (Duration::from_millis(4500), Duration::from_secs(6));
/// How often it is tried where an answer comes later than the lease ends.
const TRIES: usize = 5;

/// What two brought who each worked once.
struct Work {
    records: [SectionRecord; 2],
    /// The number that started at 0.
    counted: u64,
}

/// Two processes work under the same lock, each as soon as it gets it; in the order in which they
/// got it.
fn work_of_two(kind: LockKind, ignoring_loss: bool, times: (Duration, Duration)) -> Work {
    let mut failures = Vec::new();
    for _ in 0..TRIES {
        match try_work_of_two(kind, ignoring_loss, times) {
            Ok(work) => return work,
            Err(failed) => failures.push(failed),
        }
    }
    panic!("{kind}: {failures:?}");
}

fn try_work_of_two(
    kind: LockKind,
    ignoring_loss: bool,
    (lease, work): (Duration, Duration),
) -> Result<Work, Vec<String>> {
    let setup = changed(kind, |setup| setup.addresses.set_ttl(lease));
    let both = [(); 2].map(|()| Contender::start_as(servers(), &setup));
    let file = servers().fresh_path("work");
    let want = LockRequest::new(&fresh_name(), lease).waiting(WAIT_TIMEOUT);
    let contest = || Contest {
        ignore_loss: ignoring_loss,
        ..Contest::new(want.clone(), 1, 1, &file).holding(work)
    };
    let works = both.each_ref().map(|process| process.contend(contest(), WAIT_TIMEOUT));
    let contended = works.map(|work| work.wait().expect("an answer"));
    let failures: Vec<String> =
        contended.iter().flat_map(|one| one.failures.keys().cloned()).collect();
    // Only what a server may be late with.
    assert!(failures.iter().all(|code| code == "backend"), "{kind}: {failures:?}");
    if !failures.is_empty() {
        return Err(failures);
    }
    let mut records = contended.map(|one| one.records[0]);
    records.sort_by_key(|record| record.acquired_ns);
    let counted = Counter::open(&file).and_then(|counter| counter.read()).expect("a file");
    for record in records {
        assert!(between(record.acquired_ns, record.released_ns) >= work, "{kind}: {record:?}");
    }
    Ok(Work { records, counted })
}

const TWO_HOLDERS: &str = "work longer than the lease has two holders";

/// The kinds that have this flaw, by their own account.
fn unrenewed() -> Vec<LockKind> {
    let has = |kind: &LockKind| guarantees(*kind).flaws.contains(&TWO_HOLDERS);
    LockKind::ALL.into_iter().filter(has).collect()
}

/// The kinds whose lease or session is kept up.
fn renewed() -> Vec<LockKind> {
    let is_kept = |kind: &LockKind| {
        matches!(guarantees(*kind).renewal, RenewalKind::Yes | RenewalKind::Heartbeat)
    };
    LockKind::ALL.into_iter().filter(is_kept).collect()
}

fn of_each(kinds: &[LockKind], check: impl Fn(LockKind) + Sync) {
    assert!(kinds.len() >= 6, "{kinds:?}");
    std::thread::scope(|scope| {
        for kind in kinds {
            scope.spawn(|| check(*kind));
        }
    });
}

#[test]
fn work_longer_than_an_unrenewed_lease_has_two_holders_and_loses_an_update() {
    of_each(&unrenewed(), |kind| {
        let Work { records: [first, second], counted } = work_of_two(kind, true, UNRENEWED);
        assert!(second.acquired_ns < first.released_ns, "{kind}: {first:?} {second:?}");
        assert!(first.wrote && second.wrote, "{kind}");
        assert_eq!(counted, 1, "{kind}: two have counted");
    });
}

#[test]
fn work_that_looks_before_it_writes_does_not_write_after_its_lease() {
    of_each(&unrenewed(), |kind| {
        let Work { records, counted } = work_of_two(kind, false, UNRENEWED);
        assert!(records.iter().all(|record| !record.wrote), "{kind}: {records:?}");
        assert_eq!((overlaps(&records), counted), (0, 0), "{kind}");
    });
}

#[test]
fn work_longer_than_a_lease_that_is_renewed_is_alone() {
    of_each(&renewed(), |kind| {
        let Work { records: [first, second], counted } = work_of_two(kind, true, RENEWED);
        assert_eq!(overlaps(&[first, second]), 0, "{kind}");
        assert!(between(first.acquired_ns, second.acquired_ns) >= RENEWED.1, "{kind}");
        assert_eq!(counted, 2, "{kind}");
    });
}

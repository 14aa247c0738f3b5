//! Work that takes longer than the lease. Witness: the stay of the first, which is longer.

use std::time::Duration;

use conformance::clock::between;
use conformance::counter::Counter;
use conformance::protocol::{Contest, LockRequest, SectionRecord};
use conformance::{fresh_name, overlaps};
use distlock::{LockKind, RenewalKind, guarantees};

use crate::scene::{WAIT_TIMEOUT, servers, start};

const LEASE: Duration = Duration::from_millis(800);
/// How long each works: reads a number, and so much later writes it one higher.
const WORK: Duration = Duration::from_secs(2);

/// What two brought who each worked once.
struct Work {
    records: [SectionRecord; 2],
    /// The number that started at 0.
    counted: u64,
}

/// Two processes work under the same lock, each as soon as it gets it; in the order in which they
/// got it.
fn work_of_two(kind: LockKind, ignoring_loss: bool) -> Work {
    let (both, file) = ([start(kind), start(kind)], servers().fresh_path("work"));
    let want = LockRequest::new(&fresh_name(), LEASE).waiting(WAIT_TIMEOUT);
    let contest = || Contest {
        ignore_loss: ignoring_loss,
        ..Contest::new(want.clone(), 1, 1, &file).holding(WORK)
    };
    let works = both.each_ref().map(|process| process.contend(contest(), WAIT_TIMEOUT));
    let mut records = works.map(|work| {
        let contended = work.wait().expect("an answer");
        assert!(contended.failures.is_empty(), "{kind}: {:?}", contended.failures);
        contended.records[0]
    });
    records.sort_by_key(|record| record.acquired_ns);
    let counted = Counter::open(&file).and_then(|counter| counter.read()).expect("a file");
    for record in records {
        assert!(between(record.acquired_ns, record.released_ns) >= WORK, "{kind}: {record:?}");
    }
    Work { records, counted }
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
        let Work { records: [first, second], counted } = work_of_two(kind, true);
        assert!(second.acquired_ns < first.released_ns, "{kind}: {first:?} {second:?}");
        assert!(first.wrote && second.wrote, "{kind}");
        assert_eq!(counted, 1, "{kind}: two have counted");
    });
}

#[test]
fn work_that_looks_before_it_writes_does_not_write_after_its_lease() {
    of_each(&unrenewed(), |kind| {
        let Work { records, counted } = work_of_two(kind, false);
        assert!(records.iter().all(|record| !record.wrote), "{kind}: {records:?}");
        assert_eq!((overlaps(&records), counted), (0, 0), "{kind}");
    });
}

#[test]
fn work_longer_than_a_lease_that_is_renewed_is_alone() {
    of_each(&renewed(), |kind| {
        let Work { records: [first, second], counted } = work_of_two(kind, true);
        assert_eq!(overlaps(&[first, second]), 0, "{kind}");
        assert!(between(first.acquired_ns, second.acquired_ns) >= WORK, "{kind}");
        assert_eq!(counted, 2, "{kind}");
    });
}

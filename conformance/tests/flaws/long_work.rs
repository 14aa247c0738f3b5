//! Work that takes longer than the lease. Witness: the stay of the first, which is longer.

use std::time::Duration;

use conformance::clock::between;
use conformance::counter::Counter;
use conformance::protocol::{Contest, Stay, Want};
use conformance::{fresh_name, overlaps};
use distlock::LockKind;

use crate::scene::{PATIENCE, servers, start};

const LEASE: Duration = Duration::from_millis(800);
/// How long each works: reads a number, and so much later writes it one higher.
const WORK: Duration = Duration::from_secs(2);

/// What two brought who each worked once.
struct Work {
    stays: [Stay; 2],
    /// The number that started at 0.
    counted: u64,
}

/// Two processes work under the same lock, each as soon as it gets it; in the order in which they
/// got it.
fn work_of_two(kind: LockKind, ignoring_loss: bool) -> Work {
    let (both, file) = ([start(kind), start(kind)], servers().fresh_path("work"));
    let want = Want::new(&fresh_name(), LEASE).waiting(PATIENCE);
    let contest = || Contest {
        ignore_loss: ignoring_loss,
        ..Contest::new(want.clone(), 1, 1, &file).holding(WORK)
    };
    let works = both.each_ref().map(|process| process.contend(contest(), PATIENCE));
    let mut stays = works.map(|work| {
        let contended = work.wait().expect("an answer");
        assert!(contended.failures.is_empty(), "{kind}: {:?}", contended.failures);
        contended.stays[0]
    });
    stays.sort_by_key(|stay| stay.acquired_ns);
    let counted = Counter::open(&file).and_then(|counter| counter.read()).expect("a file");
    for stay in stays {
        assert!(between(stay.acquired_ns, stay.released_ns) >= WORK, "{kind}: {stay:?}");
    }
    Work { stays, counted }
}

/// The kinds whose lease nobody renews.
const UNRENEWED: [LockKind; 6] = [
    LockKind::SetnxExpire,
    LockKind::SetNx,
    LockKind::OwnerCheck,
    LockKind::LuaRelease,
    LockKind::GetsetTimestamp,
    LockKind::Reentrant,
];

/// The kinds whose lease or session is kept up.
const RENEWED: [LockKind; 8] = [
    LockKind::Redisson,
    LockKind::Fair,
    LockKind::ReadWrite,
    LockKind::Multi,
    LockKind::Red,
    LockKind::MysqlTable,
    LockKind::MysqlNamed,
    LockKind::Zookeeper,
];

fn of_each(kinds: &[LockKind], check: impl Fn(LockKind) + Sync) {
    std::thread::scope(|scope| {
        for kind in kinds {
            scope.spawn(|| check(*kind));
        }
    });
}

#[test]
fn work_longer_than_a_lease_that_nobody_renews_has_two_holders_and_loses_an_update() {
    of_each(&UNRENEWED, |kind| {
        let Work { stays: [first, second], counted } = work_of_two(kind, true);
        assert!(second.acquired_ns < first.released_ns, "{kind}: {first:?} {second:?}");
        assert!(first.wrote && second.wrote, "{kind}");
        assert_eq!(counted, 1, "{kind}: two have counted");
    });
}

#[test]
fn work_that_looks_before_it_writes_does_not_write_after_its_lease() {
    of_each(&UNRENEWED, |kind| {
        let Work { stays, counted } = work_of_two(kind, false);
        assert!(stays.iter().all(|stay| !stay.wrote), "{kind}: {stays:?}");
        assert_eq!((overlaps(&stays), counted), (0, 0), "{kind}");
    });
}

#[test]
fn work_longer_than_a_lease_that_is_renewed_is_alone() {
    of_each(&RENEWED, |kind| {
        let Work { stays: [first, second], counted } = work_of_two(kind, true);
        assert_eq!(overlaps(&[first, second]), 0, "{kind}");
        assert!(between(first.acquired_ns, second.acquired_ns) >= WORK, "{kind}");
        assert_eq!(counted, 2, "{kind}");
    });
}

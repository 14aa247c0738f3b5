//! The contender itself: what other tests rely on.

use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::counter::number_in;
use conformance::protocol::{Cause, Contest, LockRequest, Outcome};
use conformance::{Contender, Servers, eventually, fresh_name, overlaps};
use distlock::LockKind;

const LONG: Duration = Duration::from_mins(1);
/// A lease whose end is awaited. A process that stands still for a moment still holds its lock.
const SHORT: Duration = Duration::from_secs(3);

fn pair() -> (Contender, Contender) {
    let servers = Servers::shared();
    let start = || Contender::start(servers, LockKind::LuaRelease);
    (start(), start())
}

#[test]
fn the_contender_executes_each_command_and_reports_its_time() {
    let (one, another) = pair();
    let name = fresh_name();
    let before = now_ns();
    let held = one.lock(&LockRequest::new(&name, LONG)).expect("the lock is free");
    assert!(before < held.asked_ns && held.asked_ns < held.acquired_ns, "{held:?}");
    assert!(held.acquired_ns < now_ns(), "one clock for all processes");
    let busy = another.busy();
    let refused = another.lock(&LockRequest::new(&name, LONG)).expect_err("it is held");
    assert_eq!(refused.code, "timed_out", "{refused:?}");
    assert_eq!(another.busy(), busy + 1);
    // Two orders at the same time.
    let waiting = another.lock_later(&LockRequest::new(&name, LONG).waiting(LONG));
    assert!(
        !another
            .is_lost(another.lock(&LockRequest::new(&fresh_name(), LONG)).expect("free").handle)
    );
    assert_eq!(one.release(held.handle), Ok(Outcome::Released));
    assert_eq!(one.release(held.handle).expect_err("it was released").code, "no_such_handle");
    let held = waiting.wait().expect("it is free");
    another.drop_guard(held.handle);
    another.flush();
    let held = one.lock(&LockRequest::new(&name, LONG)).expect("it was dropped");
    assert_eq!(one.release(held.handle), Ok(Outcome::Released));
    let error = one.lock(&LockRequest::new("", LONG)).expect_err("no name");
    assert_eq!(error.code, "bad_request", "{error:?}");
}

#[test]
fn a_lost_lock_is_reported_and_the_file_is_not_written_afterwards() {
    let (one, _) = pair();
    let file = Servers::shared().fresh_path("effects");
    let held = one.insist(&LockRequest::new(&fresh_name(), SHORT));
    assert_eq!(one.effect(held.handle, &file), Ok(true));
    assert!(!one.is_lost(held.handle));
    let lost = one.lost(held.handle, LONG);
    assert_eq!(lost.cause, Cause::Expired);
    assert_eq!(lost.valid_until_ns, held.valid_until_ns);
    assert!(Some(lost.told_ns) >= lost.valid_until_ns, "{lost:?}");
    assert_eq!(one.effect(held.handle, &file), Ok(false));
    assert!(one.is_lost(held.handle));
    assert_eq!(number_in(&file), 1);
}

#[test]
fn a_watch_reports_when_it_slept_and_what_it_did_afterwards() {
    let (one, _) = pair();
    let file = Servers::shared().fresh_path("effects");
    let held = one.insist(&LockRequest::new(&fresh_name(), SHORT));
    one.watch(held.handle, &file, Duration::from_millis(1));
    let stood = one.freeze();
    let valid_until_ns = held.valid_until_ns.expect("a lease");
    while now_ns() <= valid_until_ns {
        std::thread::sleep(Duration::from_millis(1));
    }
    let standing = one.thaw();
    let watched = one.watched(held.handle, LONG);
    assert!(watched.slept_ns <= stood && watched.woke_ns >= standing, "{watched:?}");
    assert!(watched.looked_ns >= valid_until_ns && watched.effects > 0, "{watched:?}");
    assert_eq!(watched.effects_since, 0, "{watched:?}");
    assert!(watched.valid_ns < valid_until_ns, "{watched:?}");
    let effects = number_in(&file);
    assert_eq!(effects, watched.effects);
}

#[test]
fn a_contest_reports_every_section_and_a_dead_contender_blocks_no_other() {
    let (one, another) = pair();
    let counter = Servers::shared().fresh_path("counter");
    let want = LockRequest::new(&fresh_name(), LONG).waiting(LONG);
    let contest = Contest::new(want.clone(), 3, 10, &counter);
    // Else a busy machine might run one task after the other.
    let (held, busy) = (one.lock(&want).expect("the lock is free"), another.busy());
    let contests = [one.contend(contest.clone(), LONG), another.contend(contest, LONG)];
    eventually("a task has to wait", || another.busy() > busy);
    assert_eq!(one.release(held.handle), Ok(Outcome::Released));
    let brought = contests.map(|contest| contest.wait().expect("a report"));
    let records: Vec<_> = brought.iter().flat_map(|brought| brought.records.clone()).collect();
    assert_eq!((records.len(), overlaps(&records)), (2 * 3 * 10, 0));
    assert!(brought.iter().all(|brought| brought.failures.is_empty()), "{brought:?}");
    assert_eq!(number_in(&counter), 60);
    assert!(records.iter().any(|record| record.busy_ns.0 > 0), "no task had to wait");
    assert!(
        records.iter().all(|record| record.busy_ns.0.max(record.busy_ns.1) < record.acquired_ns)
    );
    assert!(records.iter().all(|record| record.asked_ns < record.acquired_ns
        && record.acquired_ns < record.valid_until_ns
        && record.valid_until_ns < record.released_ns));

    let short = LockRequest { lease_ms: 300, ..want };
    let held = one.insist(&short);
    let killed = one.kill();
    let next = another.insist(&short);
    // The server began the lease after it was asked, and may have answered much later.
    assert!(next.acquired_ns > held.asked_ns + 300_000_000, "{held:?} {next:?}");
    assert!(between(killed, next.acquired_ns) < LONG);
}

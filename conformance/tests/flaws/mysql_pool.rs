//! Waiters that hold a connection each, and a pool that has no more. Witness: the next one's error.

use std::time::{Duration, Instant};

use conformance::protocol::{AcquiredLock, Contest, Failure, LockRequest};
use conformance::{Contender, fresh_name};
use distlock::LockKind;

use crate::scene::{LONG, WAIT_TIMEOUT, changed, enter, eventually, release, servers, start};

/// Connections of the process in which they wait.
const CONNECTIONS: u32 = 3;
/// No answer takes longer, on any machine.
const BOUND: Duration = Duration::from_secs(15);

/// As many wait for a lock as there are connections; then one more wants another lock. All who
/// wait enter in the end, whatever becomes of that one.
fn one_too_many(kind: LockKind) -> Result<AcquiredLock, Failure> {
    let (holder, name, file) = (start(kind), fresh_name(), servers().fresh_path("pool"));
    let setup = changed(kind, |setup| {
        setup.local_queue = false;
        setup.addresses.mysql_connections = Some(CONNECTIONS);
    });
    let crowd = Contender::start_as(servers(), &setup);
    let held = enter(&holder, &name);
    let before = crowd.busy();
    let want = LockRequest::new(&name, LONG).waiting(WAIT_TIMEOUT);
    let waiting = crowd.contend(Contest::new(want, CONNECTIONS, 1, &file), WAIT_TIMEOUT);
    eventually("all wait", || crowd.busy() >= before + u64::from(CONNECTIONS));
    let asked = Instant::now();
    let outcome = crowd.lock(&LockRequest::new(&fresh_name(), LONG));
    assert!(asked.elapsed() < BOUND, "{kind}: {:?}", asked.elapsed());
    release(&holder, &held);
    let entered = waiting.wait().expect("an answer");
    assert!(entered.failures.is_empty(), "{kind}: {:?}", entered.failures);
    assert_eq!(entered.records.len(), CONNECTIONS as usize, "{kind}");
    outcome
}

#[test]
fn a_pool_that_waiters_have_run_dry_is_a_clear_error_in_bounded_time() {
    for kind in [LockKind::MysqlRow, LockKind::MysqlNamed] {
        let refused = one_too_many(kind).expect_err("there is no connection for it");
        assert_eq!(refused.code, "no_connection", "{kind}: {}", refused.message);
    }
}

#[test]
fn waiters_without_a_connection_leave_the_pool_to_others() {
    one_too_many(LockKind::MysqlTable).expect("the lock is free");
}

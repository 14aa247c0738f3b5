//! A process whose wall clock is a minute ahead or behind, and one whose clock is right. Only a
//! kind that trusts the clients' clocks lets the one take what the other holds, which is also what
//! shows that the clock is off.

use std::time::Duration;

use conformance::protocol::LockRequest;
use conformance::{Contender, Servers, fresh_name, promise, setup};
use distlock::LockKind;

const MINUTE_MS: i64 = 60_000;
/// Ends neither in a test nor, by a clock that is a minute off, at the same time.
const LEASE: Duration = Duration::from_secs(20);
/// How long the other one tries.
const SHORT_WAIT: Duration = Duration::from_millis(200);

#[test]
fn a_clock_that_is_a_minute_off_takes_only_a_lock_that_trusts_it() {
    let servers = Servers::shared();
    for kind in LockKind::ALL {
        if !promise(kind).is_on_a_server() {
            continue;
        }
        let right = Contender::start(servers, kind);
        for offset_ms in [MINUTE_MS, -MINUTE_MS] {
            let off = Contender::start_with_clock(servers, &setup(servers, kind), offset_ms);
            let taken = [takes(&off, &right), takes(&right, &off)];
            // To a fast clock a lease has ended; what a slow one writes has ended to others.
            let trusts = kind == LockKind::GetsetTimestamp;
            let expected = [trusts && offset_ms > 0, trusts && offset_ms < 0];
            assert_eq!(taken, expected, "{kind}, a clock that is {offset_ms} ms ahead");
        }
    }
}

/// Whether that one gets a lock that another one holds, and who does not know of it.
fn takes(thief: &Contender, holder: &Contender) -> bool {
    let name = fresh_name();
    let held = holder.insist(&LockRequest::new(&name, LEASE));
    let taken = match thief.lock(&LockRequest::new(&name, LEASE).waiting(SHORT_WAIT)) {
        Ok(_) => true,
        Err(failure) => {
            assert_eq!(failure.code, "timed_out", "{}", failure.message);
            false
        }
    };
    assert!(!holder.is_lost(held.handle), "it is told of a loss");
    taken
}

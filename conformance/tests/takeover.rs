//! How soon after its lease a dead holder is replaced. One test, so that nothing else runs; which
//! of the measured times count is said at `Spread::verdict`.

use std::time::Duration;

use conformance::clock::between;
use conformance::protocol::Want;
use conformance::{Contender, Servers, Spread, fresh_name, promise};
use distlock::{HoldKind, LockKind};

const LEASE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);
/// A waiter has looked again by then.
const NOTICED_WITHIN: Duration = Duration::from_millis(150);
/// A server with sessions looks for dead ones only so often.
const TICK: Duration = Duration::from_millis(200);
/// Locks of each dead holder, and how many of those.
const LOCKS: usize = 24;
const ROUNDS: usize = 2;

#[test]
fn a_dead_holder_is_replaced_150_ms_after_its_lease_at_the_latest() {
    let mut late = Vec::new();
    for kind in LockKind::ALL {
        if !promise(kind).is_on_a_server() {
            continue;
        }
        let waiter = Contender::start(Servers::shared(), kind);
        let times = (0..ROUNDS).flat_map(|_| times_to_replace(kind, &waiter));
        let spread = Spread::of(times);
        println!("{:18}after a lease of {LEASE:?}: {spread}", kind.as_str());
        let is_session = promise(kind).hold == HoldKind::Session;
        let noticed_within = NOTICED_WITHIN + if is_session { TICK } else { Duration::ZERO };
        if spread.verdict() > LEASE + noticed_within {
            late.push(format!("{kind}: {spread}"));
        }
    }
    assert!(late.is_empty(), "later than {NOTICED_WITHIN:?}:\n{}", late.join("\n"));
}

/// From the death to the next holder. The lease began before the death, so this is at most the
/// lease and what it takes to notice.
fn times_to_replace(kind: LockKind, waiter: &Contender) -> Vec<Duration> {
    let holder = Contender::start(Servers::shared(), kind);
    let names: Vec<String> = (0..LOCKS).map(|_| fresh_name()).collect();
    for name in &names {
        holder.lock(&Want::new(name, LEASE)).expect("nobody has it");
    }
    let waiting: Vec<_> =
        names.iter().map(|name| waiter.lock_later(&Want::new(name, LEASE).waiting(LONG))).collect();
    let died_ns = holder.kill();
    let times = waiting.into_iter().map(|waiting| {
        let held = waiting.wait().expect("its holder is dead");
        waiter.release(held.handle).expect("a release");
        between(died_ns, held.acquired_ns)
    });
    times.collect()
}

//! How soon after its lease a dead holder is replaced. One test, so that nothing else runs; which
//! of the measured times count is said in `witness`.

use std::time::Duration;

use conformance::clock::between;
use conformance::protocol::Want;
use conformance::{Contender, Sample, Servers, Spread, Witness, fresh_name, judge, promise};
use distlock::{HoldKind, LockKind};

const LEASE: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);
/// A waiter has looked again by then.
const NOTICED_WITHIN: Duration = Duration::from_millis(150);
/// And no single one is later than that.
const AT_THE_LATEST: Duration = Duration::from_secs(1);
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
        let samples: Vec<Sample> =
            (0..ROUNDS).flat_map(|_| times_to_replace(kind, &waiter)).collect();
        let spread = Spread::of(samples.iter().map(|sample| sample.took));
        println!("{:18}after a lease of {LEASE:?}: {spread}", kind.as_str());
        let is_session = promise(kind).hold == HoldKind::Session;
        let noticed_within = NOTICED_WITHIN + if is_session { TICK } else { Duration::ZERO };
        // What was late before the lease was over cost nobody anything.
        let after = |sample: Sample| Sample { took: sample.took.saturating_sub(LEASE), ..sample };
        let samples: Vec<Sample> = samples.into_iter().map(after).collect();
        if let Err(why) = judge(&samples, noticed_within) {
            late.push(format!("{kind}: after the lease: {why}"));
        }
        if spread.max() > LEASE + AT_THE_LATEST {
            late.push(format!("{kind}: {spread}"));
        }
    }
    assert!(late.is_empty(), "{}", late.join("\n"));
}

/// From the death to the next holder. The lease began before the death, so this is at most the
/// lease and what it takes to notice.
fn times_to_replace(kind: LockKind, waiter: &Contender) -> Vec<Sample> {
    let holder = Contender::start(Servers::shared(), kind);
    let names: Vec<String> = (0..LOCKS).map(|_| fresh_name()).collect();
    for name in &names {
        holder.lock(&Want::new(name, LEASE)).expect("nobody has it");
    }
    let waiting: Vec<_> =
        names.iter().map(|name| waiter.lock_later(&Want::new(name, LEASE).waiting(LONG))).collect();
    let witness = Witness::of([waiter]);
    let died_ns = holder.kill();
    let lease_ns = u64::try_from(LEASE.as_nanos()).unwrap_or(u64::MAX);
    let times = waiting.into_iter().map(|waiting| {
        let held = waiting.wait().expect("its holder is dead");
        waiter.release(held.handle).expect("a release");
        // For most of the lease it has nothing to do.
        let over_ns = (died_ns + lease_ns).min(held.acquired_ns);
        let sample = witness.sample(waiter, over_ns, held.acquired_ns);
        Sample { took: between(died_ns, held.acquired_ns), ..sample }
    });
    times.collect()
}

//! How soon a waiter of one side has what the other side lets go.

use std::time::Duration;

use conformance::clock::{between, now_ns};
use conformance::{Spread, eventually};
use testbed::Stopwatch;

use crate::Check;
use crate::scene::{LONG_WAIT, Scene, Side};

pub(crate) const CHECKS: &[Check] = &[(
    "a_release_wakes_the_waiter_of_the_other_side",
    a_release_wakes_the_waiter_of_the_other_side,
)];

const HAND_OFFS: usize = 200;
/// One in a hundred may be late, on a machine that stands still for a moment.
const LATE_FRACTION: usize = 100;
/// Redisson would look again when the lease of 3 s ends, this library after a second.
const PROMPT_WITHIN: Duration = Duration::from_millis(500);

fn a_release_wakes_the_waiter_of_the_other_side(scene: &Scene) {
    for (holder, waiter) in scene.both_ways() {
        hand_over(scene, holder, waiter, HAND_OFFS);
    }
}

/// One process releases what the other one waits for, again and again.
pub(crate) fn hand_over(scene: &Scene, holder: &Side, waiter: &Side, times: usize) {
    let late_at_most = (times / LATE_FRACTION).max(1);
    let mut late = 0;
    let times = (0..times).map(|_| {
        let want = scene.want_fresh();
        let held = holder.contender.insist(&want);
        let waiting = waiter.contender.lock_later(&want.clone().waiting(LONG_WAIT));
        eventually("the waiter waits", || scene.waiters(&want.name) == 1);
        let (freed_ns, ready) = (now_ns(), Stopwatch::start());
        let released = holder.contender.release_later(held.handle);
        let got = waiting.wait().expect("it is free");
        // In which all that could run did: what counts is the shorter one.
        let ready = ready.elapsed();
        released.wait().expect("it was held");
        waiter.contender.release(got.handle).expect("it is held");
        let took = between(freed_ns, got.acquired_ns);
        late += usize::from(took.min(ready) >= PROMPT_WITHIN);
        assert!(late <= late_at_most, "{holder} to {waiter}: the latest took {took:?}, {ready:?}");
        took
    });
    let times = Spread::of(times);
    println!("{holder} to {waiter}: {times}");
}

//! One clock for all processes of the machine.

use std::sync::LazyLock;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// `CLOCK_MONOTONIC` in nanoseconds: the same in every process of this machine, and the clock by
/// which locks are valid.
pub fn now_ns() -> u64 {
    // The kernel refuses only clocks that it does not have.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has this clock");
    u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX)
}

/// An instant of this process on that clock, to the microsecond.
pub fn at_ns(instant: Instant) -> u64 {
    static ANCHOR: LazyLock<(Instant, u64)> = LazyLock::new(anchor);
    let (known, known_ns) = *ANCHOR;
    let whole = |span: Duration| u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    known_ns
        .saturating_add(whole(instant.saturating_duration_since(known)))
        .saturating_sub(whole(known.saturating_duration_since(instant)))
}

/// Reads the same moment from both clocks. Of many looks the quickest: in the others the thread may
/// have been interrupted between the two.
fn anchor() -> (Instant, u64) {
    let look = || {
        let before_ns = now_ns();
        let instant = Instant::now();
        let took_ns = now_ns() - before_ns;
        (took_ns, instant, before_ns + took_ns / 2)
    };
    let quickest = (0..100).map(|_| look()).min_by_key(|(took_ns, ..)| *took_ns);
    let (_, instant, ns) = quickest.unwrap_or_else(look);
    (instant, ns)
}

/// From one instant of [`now_ns`] to a later one; zero if it is not later.
pub fn between(from_ns: u64, to_ns: u64) -> Duration {
    Duration::from_nanos(to_ns.saturating_sub(from_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_keeps_its_place_on_the_common_clock() {
        let (before, instant, after) = (now_ns(), Instant::now(), now_ns());
        let at = at_ns(instant);
        let slack = 1_000_000;
        assert!(at + slack >= before && at <= after + slack, "{before} {at} {after}");
        assert!(at_ns(instant + Duration::from_secs(3)) >= before + 3_000_000_000 - slack);
    }
}

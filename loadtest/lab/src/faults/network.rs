//! Network faults on the links of one replica.
//!
//! A half-open link is silent in one direction, as if its packets were lost. TCP repeats them until
//! they arrive, so the data comes late and complete.

use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{Counts, Direction, Proxy};
use tokio::time::{Instant, sleep};

use super::{FaultContext, Link, NetworkFault, no_witness, wait_until, witness};

/// Latency of a slow link, in each direction; the jitter is added.
const LATENCY: Duration = Duration::from_millis(60);
const JITTER: Duration = Duration::from_millis(40);
/// Between two resets.
const RESET_INTERVAL: Duration = Duration::from_millis(150);

/// The name on command lines and in reports.
pub(super) fn name(fault: NetworkFault, link: Link) -> &'static str {
    match (fault, link) {
        (NetworkFault::Cut, Link::Redis) => "cut-redis",
        (NetworkFault::Delay, Link::Redis) => "delay-redis",
        (NetworkFault::Reset, Link::Redis) => "reset-redis",
        (NetworkFault::HalfOpen, Link::Redis) => "half-open-redis",
        (NetworkFault::Cut, Link::Database) => "cut-database",
        (NetworkFault::Delay, Link::Database) => "delay-database",
        (NetworkFault::Reset, Link::Database) => "reset-database",
        (NetworkFault::HalfOpen, Link::Database) => "half-open-database",
        (NetworkFault::Cut, Link::Replica) => "cut-replica",
        (NetworkFault::Delay, Link::Replica) => "delay-replica",
        (NetworkFault::Reset, Link::Replica) => "reset-replica",
        (NetworkFault::HalfOpen, Link::Replica) => "half-open-replica",
        (NetworkFault::Cut, Link::Zookeeper) => "cut-zookeeper",
        (NetworkFault::Delay, Link::Zookeeper) => "delay-zookeeper",
        (NetworkFault::Reset, Link::Zookeeper) => "reset-zookeeper",
        (NetworkFault::HalfOpen, Link::Zookeeper) => "half-open-zookeeper",
    }
}

/// What it does, in a sentence without a subject.
pub(super) fn description(fault: NetworkFault, link: Link) -> &'static str {
    match (fault, link) {
        (NetworkFault::Cut, Link::Redis) => "a replica cannot reach Redis",
        (NetworkFault::Delay, Link::Redis) => "a replica's way to Redis is slow",
        (NetworkFault::Reset, Link::Redis) => "a replica's connections to Redis are reset",
        (NetworkFault::HalfOpen, Link::Redis) => {
            "a replica's way to Redis is silent in one direction"
        }
        (NetworkFault::Cut, Link::Database) => "a replica cannot reach the database",
        (NetworkFault::Delay, Link::Database) => "a replica's way to the database is slow",
        (NetworkFault::Reset, Link::Database) => {
            "a replica's connections to the database are reset"
        }
        (NetworkFault::HalfOpen, Link::Database) => {
            "a replica's way to the database is silent in one direction"
        }
        (NetworkFault::Cut, Link::Replica) => "HAProxy cannot reach a replica",
        (NetworkFault::Delay, Link::Replica) => "HAProxy's way to a replica is slow",
        (NetworkFault::Reset, Link::Replica) => "HAProxy's connections to a replica are reset",
        (NetworkFault::HalfOpen, Link::Replica) => {
            "HAProxy's way to a replica is silent in one direction"
        }
        (NetworkFault::Cut, Link::Zookeeper) => "a replica cannot reach ZooKeeper",
        (NetworkFault::Delay, Link::Zookeeper) => "a replica's way to ZooKeeper is slow",
        (NetworkFault::Reset, Link::Zookeeper) => "a replica's connections to ZooKeeper are reset",
        (NetworkFault::HalfOpen, Link::Zookeeper) => {
            "a replica's way to ZooKeeper is silent in one direction"
        }
    }
}

/// Makes the links fail in that way until they are healed. Witness: what the proxies count soon
/// afterwards. A link on which nothing is sent shows nothing.
pub(super) async fn begin(proxies: &[Proxy], fault: NetworkFault) -> Result<String> {
    if proxies.is_empty() {
        return Err(no_witness("there is no way on which it could happen".to_owned()));
    }
    let before = total(proxies);
    let since = || {
        let now = total(proxies);
        let late = [
            now.late_to_server - before.late_to_server,
            now.late_to_client - before.late_to_client,
        ];
        (now.cut - before.cut, late, now.bytes_to_server - before.bytes_to_server)
    };
    match fault {
        NetworkFault::Cut => proxies.iter().for_each(Proxy::start_outage),
        NetworkFault::Reset => proxies.iter().for_each(Proxy::reset),
        NetworkFault::Delay => proxies.iter().for_each(|proxy| {
            proxy.set_latency(Direction::Both, LATENCY, JITTER);
        }),
        NetworkFault::HalfOpen => {
            for proxy in proxies {
                proxy.hold(Direction::ToClient);
            }
            let silent_from = total(proxies);
            let heard = || total(proxies).bytes_to_client - silent_from.bytes_to_client;
            wait_until("requests on a silent link", || since().2 > 0).await?;
            let (sent, heard) = (since().2, heard());
            let text = format!("{sent} bytes of requests passed, and {heard} bytes of answers");
            return witness(heard == 0, text);
        }
    }
    if fault == NetworkFault::Delay {
        wait_until("late parcels", || since().1.iter().all(|parcels| *parcels > 0)).await?;
        let [there, back] = since().1;
        return Ok(format!("{there} parcels took {LATENCY:?} and more there, {back} back"));
    }
    Ok(format!("{} connections cut", since().0))
}

/// Witness: what the proxies on these links have counted.
pub(super) async fn inject(
    context: &FaultContext<'_>,
    fault: NetworkFault,
    link: Link,
) -> Result<String> {
    let (deployment, schedule) = (context.deployment, context.schedule);
    let proxies = deployment.proxies(schedule.victim, link);
    if proxies.is_empty() {
        return Err(no_witness("there is no way on which it could happen".to_owned()));
    }
    let mut before = total(proxies);
    let half = [Direction::ToClient, Direction::ToServer];
    let half = half[usize::from(schedule.variation.is_multiple_of(2))];
    let until = Instant::now() + schedule.lasts();
    match fault {
        NetworkFault::Cut => proxies.iter().for_each(Proxy::start_outage),
        NetworkFault::Delay => proxies.iter().for_each(|proxy| {
            proxy.set_latency(Direction::Both, LATENCY, JITTER);
        }),
        NetworkFault::HalfOpen => {
            for proxy in proxies {
                proxy.hold(half);
            }
            before = total(proxies);
        }
        NetworkFault::Reset => {
            while Instant::now() < until {
                proxies.iter().for_each(Proxy::reset);
                sleep(RESET_INTERVAL).await;
            }
        }
    }
    tokio::time::sleep_until(until).await;
    let last = total(proxies);
    proxies.iter().for_each(Proxy::heal);
    let name = schedule.victim_name();
    let (happened, text) = match fault {
        NetworkFault::Cut => {
            let (cut, refused) = (last.cut - before.cut, last.refused - before.refused);
            (cut + refused > 0, format!("{cut} connections cut, {refused} refused"))
        }
        NetworkFault::Delay => {
            let late = [
                last.late_to_server - before.late_to_server,
                last.late_to_client - before.late_to_client,
            ];
            let [there, back] = late;
            let text = format!("{there} parcels took {LATENCY:?} and more there, {back} back");
            (late.iter().all(|parcels| *parcels > 0), text)
        }
        NetworkFault::Reset => {
            let reset = last.cut - before.cut;
            (reset > 0, format!("{reset} connections reset"))
        }
        NetworkFault::HalfOpen => {
            let passed = |counts: &Counts| match half {
                Direction::ToServer => counts.bytes_to_server,
                _ => counts.bytes_to_client,
            };
            let (passed, held) =
                (passed(&last) - passed(&before), passed(&total(proxies)) - passed(&last));
            (passed == 0 && held > 0, silence(half, passed, held))
        }
    };
    witness(happened, format!("{name}: {text}"))
}

/// Which direction was silent, and what it let through.
fn silence(half: Direction, passed: u64, held: u64) -> String {
    let what = if half == Direction::ToServer { "requests" } else { "answers" };
    format!("{passed} bytes of {what} passed meanwhile, {held} were held back")
}

/// What has happened on all of them.
fn total(proxies: &[Proxy]) -> Counts {
    let mut total = Counts::default();
    for counts in proxies.iter().map(Proxy::counts) {
        total.cut += counts.cut;
        total.refused += counts.refused;
        total.late_to_server += counts.late_to_server;
        total.late_to_client += counts.late_to_client;
        total.bytes_to_server += counts.bytes_to_server;
        total.bytes_to_client += counts.bytes_to_client;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_direction_is_named_by_what_is_sent_in_it() {
        let words = silence(Direction::ToClient, 0, 42);
        assert_eq!(words, "0 bytes of answers passed meanwhile, 42 were held back");
        assert!(silence(Direction::ToServer, 0, 42).contains(" of requests "));
    }
}

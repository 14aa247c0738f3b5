//! Trouble on the ways of one replica.
//!
//! Of a half-open way one direction is silent for a while, as if its packets were lost; TCP repeats
//! them until they arrive, so what was said comes late and whole.

use std::time::Duration;

use testbed::{Counts, Direction, Proxy};
use tokio::time::{Instant, sleep};

use super::{Link, Scene, Trouble, unseen, witness};
use crate::error::Result;

/// Latency of a slow way, in each direction, and up to the jitter more.
const LATENCY: Duration = Duration::from_millis(60);
const JITTER: Duration = Duration::from_millis(40);
/// Between two resets.
const RESET_EVERY: Duration = Duration::from_millis(150);

/// The name on command lines and in reports.
pub(super) fn name(trouble: Trouble, link: Link) -> &'static str {
    match (trouble, link) {
        (Trouble::Cut, Link::Redis) => "cut-redis",
        (Trouble::Delay, Link::Redis) => "delay-redis",
        (Trouble::Reset, Link::Redis) => "reset-redis",
        (Trouble::HalfOpen, Link::Redis) => "half-open-redis",
        (Trouble::Cut, Link::Database) => "cut-database",
        (Trouble::Delay, Link::Database) => "delay-database",
        (Trouble::Reset, Link::Database) => "reset-database",
        (Trouble::HalfOpen, Link::Database) => "half-open-database",
        (Trouble::Cut, Link::Replica) => "cut-replica",
        (Trouble::Delay, Link::Replica) => "delay-replica",
        (Trouble::Reset, Link::Replica) => "reset-replica",
        (Trouble::HalfOpen, Link::Replica) => "half-open-replica",
        (Trouble::Cut, Link::Zookeeper) => "cut-zookeeper",
        (Trouble::Delay, Link::Zookeeper) => "delay-zookeeper",
        (Trouble::Reset, Link::Zookeeper) => "reset-zookeeper",
        (Trouble::HalfOpen, Link::Zookeeper) => "half-open-zookeeper",
    }
}

/// What it does, in a sentence without a subject.
pub(super) fn does(trouble: Trouble, link: Link) -> &'static str {
    match (trouble, link) {
        (Trouble::Cut, Link::Redis) => "a replica cannot reach Redis",
        (Trouble::Delay, Link::Redis) => "a replica's way to Redis is slow",
        (Trouble::Reset, Link::Redis) => "a replica's connections to Redis are reset",
        (Trouble::HalfOpen, Link::Redis) => "a replica's way to Redis is silent in one direction",
        (Trouble::Cut, Link::Database) => "a replica cannot reach the database",
        (Trouble::Delay, Link::Database) => "a replica's way to the database is slow",
        (Trouble::Reset, Link::Database) => "a replica's connections to the database are reset",
        (Trouble::HalfOpen, Link::Database) => {
            "a replica's way to the database is silent in one direction"
        }
        (Trouble::Cut, Link::Replica) => "HAProxy cannot reach a replica",
        (Trouble::Delay, Link::Replica) => "HAProxy's way to a replica is slow",
        (Trouble::Reset, Link::Replica) => "HAProxy's connections to a replica are reset",
        (Trouble::HalfOpen, Link::Replica) => {
            "HAProxy's way to a replica is silent in one direction"
        }
        (Trouble::Cut, Link::Zookeeper) => "a replica cannot reach ZooKeeper",
        (Trouble::Delay, Link::Zookeeper) => "a replica's way to ZooKeeper is slow",
        (Trouble::Reset, Link::Zookeeper) => "a replica's connections to ZooKeeper are reset",
        (Trouble::HalfOpen, Link::Zookeeper) => {
            "a replica's way to ZooKeeper is silent in one direction"
        }
    }
}

/// Witness: what the proxies on these ways have counted.
pub(super) async fn trouble(scene: &Scene<'_>, trouble: Trouble, link: Link) -> Result<String> {
    let (deployment, schedule) = (scene.deployment, scene.schedule);
    let ways = deployment.ways(schedule.victim, link);
    if ways.is_empty() {
        return Err(unseen("there is no way on which it could happen".to_owned()));
    }
    let mut before = total(ways);
    let half = [Direction::ToClient, Direction::ToServer];
    let half = half[usize::from(schedule.variation.is_multiple_of(2))];
    let until = Instant::now() + schedule.lasts();
    match trouble {
        Trouble::Cut => ways.iter().for_each(Proxy::start_outage),
        Trouble::Delay => ways.iter().for_each(|way| {
            way.set_latency(Direction::Both, LATENCY, JITTER);
        }),
        Trouble::HalfOpen => {
            for way in ways {
                way.hold(half);
            }
            before = total(ways);
        }
        Trouble::Reset => {
            while Instant::now() < until {
                ways.iter().for_each(Proxy::reset);
                sleep(RESET_EVERY).await;
            }
        }
    }
    tokio::time::sleep_until(until).await;
    let last = total(ways);
    ways.iter().for_each(Proxy::heal);
    let name = schedule.victim_name();
    let (happened, text) = match trouble {
        Trouble::Cut => {
            let (cut, refused) = (last.cut - before.cut, last.refused - before.refused);
            (cut + refused > 0, format!("{cut} connections cut, {refused} refused"))
        }
        Trouble::Delay => {
            let late = [
                last.late_to_server - before.late_to_server,
                last.late_to_client - before.late_to_client,
            ];
            let [there, back] = late;
            let text = format!("{there} parcels took {LATENCY:?} and more there, {back} back");
            (late.iter().all(|parcels| *parcels > 0), text)
        }
        Trouble::Reset => {
            let reset = last.cut - before.cut;
            (reset > 0, format!("{reset} connections reset"))
        }
        Trouble::HalfOpen => {
            let passed = |counts: &Counts| match half {
                Direction::ToServer => counts.bytes_to_server,
                _ => counts.bytes_to_client,
            };
            let (passed, held) =
                (passed(&last) - passed(&before), passed(&total(ways)) - passed(&last));
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
fn total(ways: &[Proxy]) -> Counts {
    let mut total = Counts::default();
    for counts in ways.iter().map(Proxy::counts) {
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
    fn a_silent_direction_is_named_by_what_goes_there() {
        let words = silence(Direction::ToClient, 0, 42);
        assert_eq!(words, "0 bytes of answers passed meanwhile, 42 were held back");
        assert!(silence(Direction::ToServer, 0, 42).contains(" of requests "));
    }
}

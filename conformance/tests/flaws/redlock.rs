//! A lock on a majority of five servers. Each test has servers of its own. Witnesses: the process
//! id of a server that was restarted and what it knows afterwards; the connections that a proxy
//! refused; the time that a server tells.

use std::time::Duration;

use conformance::protocol::{AcquiredLock, Failure, LockRequest};
use conformance::variant::Variant;
use conformance::{Contender, fresh_name};
use testbed::{Redis, RedisOptions};

use crate::five::{Five, assert_kept_out, enter, enter_later};
use crate::scene::{LONG, SHORT, WAIT_TIMEOUT, assert_both_hold, eventually};

/// How long a server that came up empty stays out, where it does.
const DELAY_MS: u64 = 4_000;

/// Takes the lock on the first three, and restarts the third at once.
fn restarted_third(five: &Five) -> (Contender, AcquiredLock, String) {
    let (holder, proxies) = five.contender_on_the_first_three();
    let (name, lease) = (fresh_name(), Duration::from_millis(DELAY_MS));
    let want = LockRequest::new(&name, if five.variant == Variant::Usual { LONG } else { lease });
    let held = holder.insist(&want.unrenewed().waiting(WAIT_TIMEOUT));
    // It waits for a majority, and may not have come to the others yet.
    let asked = || proxies.iter().all(|proxy| proxy.counts().refused > 0);
    eventually("the others were out of reach", asked);
    assert_eq!(five.have(&name), [true, true, true, false, false]);
    five.restart([2]);
    (holder, held, name)
}

#[test]
fn a_node_that_restarts_empty_makes_a_second_majority() {
    let five = Five::start(RedisOptions::default());
    let (holder, held, name) = restarted_third(&five);
    assert_eq!(five.have(&name), [true, true, false, false, false]);
    let other = five.contender();
    let others = enter(&other, &name);
    assert_both_hold((&holder, &held), (&other, &others));
}

#[test]
fn a_node_that_restarts_with_all_it_had_makes_no_second_majority() {
    let five = Five::start(RedisOptions { appendonly: true, ..RedisOptions::default() });
    let (holder, held, name) = restarted_third(&five);
    assert_eq!(five.have(&name), [true, true, true, false, false]);
    assert_kept_out(&five.contender(), &name);
    assert!(!holder.is_lost(held.handle));
}

#[test]
fn a_node_that_restarts_empty_and_stays_out_for_a_lease_is_not_counted() {
    let mut five = Five::start(RedisOptions::default());
    five.variant = Variant::RestartDelay { ms: DELAY_MS };
    // All are new, so that the first lock has to wait for them.
    let other = five.contender();
    let (_, first) = five.enter_all(&other);
    other.release(first.handle).expect("an answer");
    let (holder, held, name) = restarted_third(&five);
    assert_eq!(five.have(&name), [true, true, false, false, false]);
    assert_kept_out(&other, &name);
    assert!(!holder.is_lost(held.handle));
    let next = enter_later(&other, &name);
    assert!(next.acquired_ns > held.valid_until_ns.expect("a lease"), "{held:?} {next:?}");
}

fn restarted_all(options: RedisOptions) -> (Five, Contender, AcquiredLock, String) {
    let five = Five::start(options);
    let holder = five.contender();
    let (name, held) = five.enter_all(&holder);
    five.restart(0..5);
    (five, holder, held, name)
}

#[test]
fn a_restart_of_all_nodes_without_a_file_forgets_the_lock() {
    let (five, holder, held, name) = restarted_all(RedisOptions::default());
    assert_eq!(five.have(&name), [false; 5]);
    let other = five.contender();
    let others = enter(&other, &name);
    assert_both_hold((&holder, &held), (&other, &others));
}

#[test]
fn a_restart_of_all_nodes_with_a_file_written_through_forgets_nothing() {
    let options = RedisOptions { appendonly: true, ..RedisOptions::default() };
    let (five, holder, held, name) = restarted_all(options);
    assert_eq!(five.have(&name), [true; 5]);
    assert_kept_out(&five.contender(), &name);
    assert!(!holder.is_lost(held.handle));
}

/// The clocks of some jump over the end of the lease.
fn jumped_clocks(numbers: std::ops::Range<usize>) -> (Five, Contender, AcquiredLock, String) {
    let five = Five::start(RedisOptions { clock: true, ..RedisOptions::default() });
    let holder = five.contender();
    let (name, held) = five.enter_all(&holder);
    for number in numbers.clone() {
        let node = &five.nodes[number];
        let seconds = || -> u64 {
            let time = node.command(&["TIME"]).expect("an answer");
            time.lines().next().and_then(|line| line.parse().ok()).expect("seconds")
        };
        let before = seconds();
        let ahead = LONG * 2;
        node.jump_clock(i64::try_from(ahead.as_millis()).expect("minutes")).expect("a clock");
        assert!(seconds() >= before + ahead.as_secs());
    }
    let left = (0..5).map(|number| !numbers.contains(&number)).collect::<Vec<_>>();
    assert_eq!(five.have(&name), left);
    (five, holder, held, name)
}

#[test]
fn a_clock_that_jumps_on_a_majority_ends_the_lock_of_a_living_holder() {
    let (five, holder, held, name) = jumped_clocks(0..3);
    let other = five.contender();
    let others = enter(&other, &name);
    assert_both_hold((&holder, &held), (&other, &others));
}

#[test]
fn a_clock_that_jumps_on_a_minority_ends_nothing() {
    let (five, holder, held, name) = jumped_clocks(0..2);
    assert_kept_out(&five.contender(), &name);
    assert!(!holder.is_lost(held.handle));
}

/// All disks stall, the lock is asked for, and at once all servers are killed. They start again
/// with disks that work.
fn killed_while_disks_stall(
    fsync: &str,
    lease: Duration,
) -> (Five, Contender, Result<AcquiredLock, Failure>, String) {
    let extra = vec![format!("appendfsync {fsync}")];
    let options = RedisOptions { appendonly: true, disk: true, extra, ..RedisOptions::default() };
    let five = Five::start(options);
    let (holder, name) = (five.contender(), fresh_name());
    let stall = |stalled| {
        five.nodes.iter().for_each(|node| node.stall_disk(stalled).expect("a disk of its own"));
    };
    stall(true);
    if fsync == "everysec" {
        // What the warming up has written waits for the disk, in the background.
        let waits = |node: &Redis| {
            node.command(&["SET", "something", "else"]).expect("an answer");
            let state = node.command(&["INFO", "persistence"]).expect("an answer");
            state.lines().any(|line| line.trim() == "aof_pending_bio_fsync:1")
        };
        eventually("all wait for their disks", || five.nodes.iter().all(waits));
    }
    let outcome = holder.lock(&LockRequest::new(&name, lease).unrenewed());
    for node in &five.nodes {
        node.kill().expect("it is killed");
    }
    stall(false);
    five.restart(0..5);
    (five, holder, outcome, name)
}

#[test]
fn a_restart_of_all_nodes_with_a_file_written_through_every_second_forgets_the_lock() {
    let (five, holder, outcome, name) = killed_while_disks_stall("everysec", LONG);
    let held = outcome.expect("they have said so");
    assert!(five.have(&name).into_iter().filter(|has| !has).count() > 2);
    let other = five.contender();
    let others = enter(&other, &name);
    assert_both_hold((&holder, &held), (&other, &others));
}

#[test]
fn a_file_written_through_at_once_grants_nothing_that_it_may_forget() {
    let (five, _holder, outcome, name) = killed_while_disks_stall("always", SHORT);
    assert_eq!(outcome.expect_err("no disk works").code, "backend");
    // It may have been written all the same; then it is left to its lease.
    enter_later(&five.contender(), &name);
}

//! A session of `ZooKeeper` and the wall clock of its server. Witness: the times of the server's
//! log, which jump.

use std::time::Duration;

use conformance::protocol::AcquiredLock;
use conformance::{Contender, Servers, fresh_name, setup};
use distlock::LockKind;
use testbed::{ZooKeeper, ZooKeeperOptions};

use crate::scene::{assert_kept_out, enter, eventually};

/// How far its clock jumps: over the end of any session.
const CLOCK_JUMP: Duration = Duration::from_hours(2);
/// A session whose end is far for a holder that stands still for a moment. The server looks for
/// dead sessions many times between two heartbeats.
const SESSION: Duration = Duration::from_secs(9);
const MINUTES_OF_A_DAY: u64 = 24 * 60;

#[test]
fn a_clock_that_jumps_ends_no_session() {
    let servers = Servers::start();
    let options = ZooKeeperOptions { clock: true, ..ZooKeeperOptions::default() };
    let zookeeper = servers.bed().zookeeper(options).expect("it is installed");
    let mut setup = setup(&servers, LockKind::None);
    setup.kind = LockKind::Zookeeper.to_string();
    setup.addresses.zookeeper = Some(zookeeper.connect_string().to_owned());
    setup.addresses.set_ttl(SESSION);
    let start = || Contender::start_as(&servers, &setup);
    let (holder, other, name) = (start(), start(), fresh_name());
    let held = enter(&holder, &name);

    let before = minute_of_day(&zookeeper);
    let ahead_ms = i64::try_from(CLOCK_JUMP.as_millis()).expect("two hours");
    zookeeper.jump_clock(ahead_ms).expect("a clock of its own");
    let jumped = (minute_of_day(&zookeeper) + MINUTES_OF_A_DAY - before) % MINUTES_OF_A_DAY;
    assert!(jumped >= CLOCK_JUMP.as_secs() / 60, "{jumped}");

    // The first heartbeat may have been under way when the clock jumped.
    for _ in 0..2 {
        await_heartbeat(&holder, &held);
    }
    assert_kept_out(&other, &name);
    assert!(!holder.is_lost(held.handle));
}

/// Waits until the server has confirmed the session, which makes the hold valid for longer.
fn await_heartbeat(holder: &Contender, held: &AcquiredLock) {
    let valid_until_ns = || holder.validity(held.handle).until_ns.expect("an end");
    let before = valid_until_ns();
    eventually("its session is confirmed", || valid_until_ns() > before);
}

/// By the server's clock, as the last line of its log begins with it: `14:05:59.123`.
fn minute_of_day(zookeeper: &ZooKeeper) -> u64 {
    // It logs each of these.
    zookeeper.four_letter_word("srvr").expect("an answer");
    let log = zookeeper.log_tail(20);
    let time = |line: &str| -> Option<u64> {
        let (hour, rest) = line.split_once(':')?;
        Some(hour.parse::<u64>().ok()? * 60 + rest.get(..2)?.parse::<u64>().ok()?)
    };
    log.lines().rev().find_map(time).unwrap_or_else(|| panic!("no time: {log}"))
}

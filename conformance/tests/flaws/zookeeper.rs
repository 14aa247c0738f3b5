//! A session of `ZooKeeper` and the wall clock of its server. Witness: the times of the server's
//! log, which jump.

use std::thread::sleep;
use std::time::Duration;

use conformance::{Contender, Servers, fresh_name, setup};
use distlock::LockKind;
use testbed::{ZooKeeper, ZooKeeperOptions};

use crate::scene::{assert_kept_out, enter};

/// How far its clock jumps: over the end of any session.
const CLOCK_JUMP: Duration = Duration::from_hours(2);
/// Longer than a session lasts without a heartbeat.
const SESSION_OVER: Duration = Duration::from_secs(3);
const MINUTES_OF_A_DAY: u64 = 24 * 60;

#[test]
fn a_clock_that_jumps_ends_no_session() {
    let servers = Servers::start();
    let options = ZooKeeperOptions { clock: true, ..ZooKeeperOptions::default() };
    let zookeeper = servers.bed().zookeeper(options).expect("it is installed");
    let mut setup = setup(&servers, LockKind::None);
    setup.kind = LockKind::Zookeeper.to_string();
    setup.addresses.zookeeper = Some(zookeeper.connect_string().to_owned());
    let start = || Contender::start_as(&servers, &setup);
    let (holder, other, name) = (start(), start(), fresh_name());
    let held = enter(&holder, &name);

    let before = minute_of_day(&zookeeper);
    let ahead_ms = i64::try_from(CLOCK_JUMP.as_millis()).expect("two hours");
    zookeeper.jump_clock(ahead_ms).expect("a clock of its own");
    let jumped = (minute_of_day(&zookeeper) + MINUTES_OF_A_DAY - before) % MINUTES_OF_A_DAY;
    assert!(jumped >= CLOCK_JUMP.as_secs() / 60, "{jumped}");

    sleep(SESSION_OVER);
    assert_kept_out(&other, &name);
    assert!(!holder.is_lost(held.handle));
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

//! Three `ZooKeeper` servers that are one ensemble, and what is left of it when one is away.

mod support;

use std::time::Duration;

use support::await_that;
use testbed::{Bed, ZooKeeper, ZooKeeperOptions};

/// By when an ensemble has noticed what happened, and chosen a leader if need be.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

fn serves(member: &ZooKeeper) -> bool {
    member.four_letter_word("srvr").is_ok_and(|says| says.contains("\nMode: "))
}

#[test]
fn a_member_that_is_cut_off_serves_no_one_and_the_others_choose_another_leader() {
    let bed = Bed::start().unwrap();
    let ensemble = bed.zookeeper_ensemble(ZooKeeperOptions::default()).unwrap();
    assert_eq!(ensemble.connect_string().split(',').count(), 3);
    // A leader, and then a follower.
    for is_leader in [true, false] {
        let leader = ensemble.leader().unwrap();
        let apart = if is_leader { leader } else { (leader + 1) % 3 };
        let others = [(apart + 1) % 3, (apart + 2) % 3].map(|other| &ensemble.members()[other]);
        ensemble.cut_off(apart);
        let apart_is_closed = || !serves(&ensemble.members()[apart]);
        await_that("the end of its service", NOTICED_WITHIN, apart_is_closed);
        await_that("a majority", NOTICED_WITHIN, || others.iter().all(|other| serves(other)));
        assert_ne!(ensemble.leader().unwrap(), apart);
        assert!(apart_is_closed(), "a minority of one serves");
        ensemble.join_again(apart);
        await_that("its return", NOTICED_WITHIN, || serves(&ensemble.members()[apart]));
    }
}

#[test]
fn a_leader_that_is_killed_or_frozen_is_replaced_and_follows_later() {
    let bed = Bed::start().unwrap();
    let ensemble = bed.zookeeper_ensemble(ZooKeeperOptions::default()).unwrap();
    let first = ensemble.leader().unwrap();
    ensemble.members()[first].kill().unwrap();
    let second = ensemble.leader().unwrap();
    assert_ne!(second, first);
    ensemble.members()[first].restart().unwrap();
    ensemble.members()[second].freeze().unwrap();
    assert_ne!(ensemble.leader().unwrap(), second);
    ensemble.members()[second].thaw().unwrap();
    let says = || ensemble.members()[second].four_letter_word("srvr");
    let follows = || says().is_ok_and(|says| says.contains("Mode: follower"));
    await_that("its return", NOTICED_WITHIN, follows);
}

#[test]
fn a_member_whose_disk_is_full_serves_no_one_and_follows_once_it_has_space() {
    let bed = Bed::start().unwrap();
    let options = ZooKeeperOptions { disk: true, ..ZooKeeperOptions::default() };
    let ensemble = bed.zookeeper_ensemble(options).unwrap();
    // A leader, and then a follower.
    for is_leader in [true, false] {
        let leader = ensemble.leader().unwrap();
        let full = if is_leader { leader } else { (leader + 1) % 3 };
        let member = &ensemble.members()[full];
        let before = member.writes_without_space().unwrap();
        member.fill_disk().unwrap();
        // A session of number 0 begins and ends: all members write that.
        let other = &ensemble.members()[(full + 1) % 3];
        let is_closed = || {
            let _while_none_leads = other.end_session(0);
            !serves(member)
        };
        await_that("the end of its service", NOTICED_WITHIN, is_closed);
        assert!(member.writes_without_space().unwrap() > before);
        let leader = ensemble.successor(full).unwrap();
        assert!(serves(&ensemble.members()[leader]));
        member.make_space().unwrap();
        ensemble.await_follower(full).unwrap();
    }
}

//! One etcd server, and three that are one cluster.

mod support;

use std::net::TcpStream;
use std::time::Duration;

use support::await_that;
use testbed::{Bed, Etcd, EtcdOptions};

/// By when a cluster has noticed what happened, and chosen a leader if need be.
const NOTICED_WITHIN: Duration = Duration::from_secs(30);

/// Whether a majority confirms a write by that member.
fn serves(member: &Etcd) -> bool {
    member.etcdctl(&["--command-timeout=1s", "put", "served", "x"]).is_ok()
}

#[test]
fn a_killed_etcd_restarts_on_its_port_with_its_data() {
    let bed = Bed::start().unwrap();
    let etcd = bed.etcd(EtcdOptions::default()).unwrap();
    assert_eq!(etcd.endpoint(), etcd.addr().to_string());
    assert_eq!(etcd.etcdctl(&["put", "kept", "data"]).unwrap(), "OK\n");
    let (pid, address) = (etcd.pid(), etcd.addr());
    etcd.kill().unwrap();
    assert!(TcpStream::connect(address).is_err());
    etcd.restart().unwrap();
    assert!(etcd.pid() != pid && etcd.addr() == address);
    assert_eq!(etcd.etcdctl(&["get", "kept", "--print-value-only"]).unwrap(), "data\n");
}

#[test]
fn a_lease_of_one_second_is_legal_and_its_key_ends_with_it() {
    let bed = Bed::start().unwrap();
    let etcd = bed.etcd(EtcdOptions::default()).unwrap();
    let granted = etcd.etcdctl(&["lease", "grant", "1"]).unwrap();
    assert!(granted.ends_with("granted with TTL(1s)\n"), "{granted}");
    let lease = granted.split(' ').nth(1).unwrap();
    etcd.etcdctl(&["put", "--lease", lease, "leased", "x"]).unwrap();
    let is_there = || !etcd.etcdctl(&["get", "leased"]).unwrap().is_empty();
    await_that("the end of the lease", Duration::from_secs(10), || !is_there());
}

#[test]
fn a_bad_argument_is_shown_and_so_is_what_a_command_fails_with() {
    let bed = Bed::start().unwrap();
    let bad = EtcdOptions { extra: vec!["--no-such-flag".into()], ..EtcdOptions::default() };
    let error = bed.etcd(bad).unwrap_err().to_string();
    assert!(error.contains("no-such-flag"), "{error}");
    let etcd = bed.etcd(EtcdOptions::default()).unwrap();
    let error = etcd.etcdctl(&["lease", "revoke", "7"]).unwrap_err().to_string();
    assert!(error.contains("requested lease not found"), "{error}");
}

#[test]
fn a_member_that_is_cut_off_serves_no_one_and_the_others_choose_another_leader() {
    let bed = Bed::start().unwrap();
    let cluster = bed.etcd_cluster(EtcdOptions::default()).unwrap();
    assert_eq!(cluster.endpoints().split(',').count(), 3);
    // A leader, and then a follower.
    for is_leader in [true, false] {
        let leader = cluster.leader().unwrap();
        let apart = if is_leader { leader } else { (leader + 1) % 3 };
        let others = [(apart + 1) % 3, (apart + 2) % 3].map(|other| &cluster.members()[other]);
        cluster.cut_off(apart);
        let apart_is_closed = || !serves(&cluster.members()[apart]);
        await_that("the end of its service", NOTICED_WITHIN, apart_is_closed);
        await_that("a majority", NOTICED_WITHIN, || others.iter().all(|other| serves(other)));
        await_that("another leader", NOTICED_WITHIN, || cluster.leader().unwrap() != apart);
        assert!(apart_is_closed(), "a minority of one serves");
        cluster.join_again(apart);
        await_that("its return", NOTICED_WITHIN, || serves(&cluster.members()[apart]));
    }
}

#[test]
fn a_leader_that_is_killed_or_frozen_is_replaced_and_follows_later() {
    let bed = Bed::start().unwrap();
    let cluster = bed.etcd_cluster(EtcdOptions::default()).unwrap();
    let first = cluster.leader().unwrap();
    cluster.members()[first].kill().unwrap();
    let second = cluster.leader().unwrap();
    assert_ne!(second, first);
    cluster.members()[first].restart().unwrap();
    let second = cluster.leader().unwrap();
    cluster.members()[second].freeze().unwrap();
    assert_ne!(cluster.leader().unwrap(), second);
    cluster.members()[second].thaw().unwrap();
    await_that("its return", NOTICED_WITHIN, || serves(&cluster.members()[second]));
}

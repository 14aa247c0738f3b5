//! `etcd` on a cluster of three servers, one of which is away.

use std::time::Duration;

use crate::support::{
    LONG, SHORT, at_once, await_queue, eventually, fresh_name, lock, locks_at, options, release,
};
use distlock::{Guard, LockError, LockName, Locks};
use testbed::{Bed, EtcdCluster, EtcdOptions};
use tokio::task::{JoinHandle, block_in_place};
use tokio::time::{Instant, sleep};

/// How a member goes, and comes back.
type Fault = fn(&EtcdCluster, usize) -> testbed::Result<()>;

const FAULTS: [(&str, Fault, Fault); 3] = [
    (
        "killed",
        |cluster, member| cluster.members()[member].kill(),
        |cluster, member| cluster.members()[member].restart(),
    ),
    (
        "frozen",
        |cluster, member| cluster.members()[member].freeze(),
        |cluster, member| cluster.members()[member].thaw(),
    ),
    (
        "cut off",
        |cluster, member| {
            cluster.cut_off(member);
            Ok(())
        },
        |cluster, member| {
            cluster.join_again(member);
            Ok(())
        },
    ),
];

fn cluster() -> (EtcdCluster, Bed) {
    let bed = Bed::start().expect("a private bed");
    let cluster = bed.etcd_cluster(EtcdOptions::default()).expect("a cluster");
    (cluster, bed)
}

fn leader(cluster: &EtcdCluster) -> usize {
    block_in_place(|| cluster.leader()).expect("a leader")
}

/// The endpoints, that of the leader first: it is the one that is asked.
fn leader_first(cluster: &EtcdCluster, leader: usize) -> String {
    let members = (0..3).map(|after| &cluster.members()[(leader + after) % 3]);
    members.map(testbed::Etcd::endpoint).collect::<Vec<_>>().join(",")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_its_waiter_outlive_the_leader() {
    let (cluster, _bed) = cluster();
    for (how, away, back) in FAULTS {
        let first = leader(&cluster);
        let endpoints = leader_first(&cluster, first);
        let (locks, others) = (locks_at(&endpoints, LONG), locks_at(&endpoints, LONG));
        let name = fresh_name();
        let guard = lock(&locks, &name).await;
        let token = guard.token();
        let waiter = tokio::spawn({
            let (name, wait) = (name.clone(), options(Duration::from_mins(2)));
            async move { others.lock(&name, &wait).await }
        });
        await_queue(&cluster.members()[(first + 1) % 3], &name, 2).await;
        block_in_place(|| away(&cluster, first)).expect(how);
        eventually("another leader", async || leader(&cluster) != first).await;
        let before = guard.validity().deadline();
        eventually("it is renewed", async || guard.validity().deadline() > before).await;
        assert!(!guard.is_lost() && !waiter.is_finished(), "{how}");
        release(guard).await;
        let heir = waiter.await.expect("no panic").expect(how);
        assert!(heir.token() > token, "{how}");
        release(heir).await;
        block_in_place(|| back(&cluster, first)).expect(how);
    }
}

/// Takes the lock, also if the servers have no leader yet.
async fn after_the_election(locks: Locks, name: LockName) -> Guard {
    let deadline = Instant::now() + LONG;
    loop {
        match locks.lock(&name, &options(LONG)).await {
            Err(LockError::Backend(reason)) if Instant::now() > deadline => panic!("{reason}"),
            Err(LockError::Backend(_)) => {}
            outcome => return outcome.expect("the lock"),
        }
    }
}

async fn is_lost_before_it_is_taken(guard: &Guard, heir: &JoinHandle<Guard>) {
    let deadline = Instant::now() + LONG;
    while !guard.is_lost() {
        let is_taken = heir.is_finished();
        // If it is still believed in now, it must not have been taken when it was asked.
        assert!(guard.is_lost() || !is_taken, "believed in, and taken by another");
        assert!(Instant::now() < deadline, "never lost");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_stays_closed_and_the_majority_grants_the_lock_after_the_lease() {
    let (cluster, _bed) = cluster();
    for is_leader in [true, false] {
        let leader = leader(&cluster);
        let apart = if is_leader { leader } else { (leader + 1) % 3 };
        let [minority, other] = [apart, (apart + 1) % 3].map(|member| &cluster.members()[member]);
        let inside = locks_at(minority.endpoint(), SHORT);
        let outside = locks_at(other.endpoint(), LONG);
        let [held, free] = [fresh_name(), fresh_name()];
        let guard = lock(&inside, &held).await;
        cluster.cut_off(apart);
        let heir = tokio::spawn(after_the_election(outside.clone(), held.clone()));
        is_lost_before_it_is_taken(&guard, &heir).await;
        // What is asked there is refused, or not answered.
        let refused = inside.lock(&free, &at_once()).await;
        assert!(matches!(refused, Err(LockError::Backend(_))), "{:?}", refused.err());
        let heir = heir.await.expect("no panic");
        assert!(heir.token() > guard.token());
        release(lock(&outside, &free).await).await;
        release(heir).await;
        cluster.join_again(apart);
        eventually("the member is back", async || inside.lock(&free, &at_once()).await.is_ok())
            .await;
    }
}

/// After its thaw it answers what it was asked meanwhile, before it learns of its successor.
#[tokio::test(flavor = "multi_thread")]
async fn a_former_leader_that_is_thawed_renews_no_hold() {
    let (cluster, _bed) = cluster();
    let ttl = Duration::from_millis(6500);
    for _ in 0..2 {
        let former = leader(&cluster);
        let inside = locks_at(cluster.members()[former].endpoint(), ttl);
        let outside = locks_at(cluster.members()[(former + 1) % 3].endpoint(), LONG);
        let name = fresh_name();
        let guard = lock(&inside, &name).await;
        block_in_place(|| cluster.members()[former].freeze()).expect("it freezes");
        let frozen = Instant::now();
        eventually("another leader", async || leader(&cluster) != former).await;
        let heir = tokio::spawn(after_the_election(outside, name));
        // Within the lease of 6 s by the former leader's clock.
        tokio::time::sleep_until(frozen + Duration::from_millis(5200)).await;
        block_in_place(|| cluster.members()[former].thaw()).expect("it thaws");
        // The lease ends by then unless it is renewed by the new leader.
        let over = Instant::now() + Duration::from_secs(12);
        while !guard.is_lost() && Instant::now() < over {
            let is_taken = heir.is_finished();
            assert!(guard.is_lost() || !is_taken, "believed in, and taken by another");
            sleep(Duration::from_millis(2)).await;
        }
        if !guard.is_lost() {
            release(guard).await;
        }
        release(heir.await.expect("no panic")).await;
    }
}

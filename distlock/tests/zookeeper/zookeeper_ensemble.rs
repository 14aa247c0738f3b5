//! `zookeeper` on an ensemble of three servers, one of which is away.

use std::thread;
use std::time::Duration;

use crate::support::{
    Look, at_once, eventually, fresh_name, lock, locks_at, options, patient, release,
};
use distlock::{Guard, LockError, LockName, Locks, LossCause};
use testbed::{Bed, ZooKeeper, ZooKeeperEnsemble, ZooKeeperOptions};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// A session that outlives an election, and a client that tries the frozen server again and again.
const SESSION: Duration = Duration::from_secs(45);
/// Part of the 27 s for which a hold may be believed in. An election takes longer if others join
/// the elected leader too late, on a busy machine.
const QUICK_ELECTION: Duration = Duration::from_secs(12);
/// A session whose end can be waited for.
const SHORT: Duration = Duration::from_secs(4);

/// How a member goes, and comes back.
type Fault = fn(&ZooKeeperEnsemble, usize) -> testbed::Result<()>;

const FAULTS: [(&str, Fault, Fault); 3] = [
    (
        "killed",
        |ensemble, member| ensemble.members()[member].kill(),
        |ensemble, member| ensemble.members()[member].restart(),
    ),
    (
        "frozen",
        |ensemble, member| ensemble.members()[member].freeze(),
        |ensemble, member| ensemble.members()[member].thaw(),
    ),
    (
        "cut off",
        |ensemble, member| {
            ensemble.cut_off(member);
            Ok(())
        },
        |ensemble, member| {
            ensemble.join_again(member);
            Ok(())
        },
    ),
];

/// With those lines of `zoo.cfg` besides.
fn ensemble(lines: &[&str]) -> (ZooKeeperEnsemble, Bed) {
    let bed = Bed::start().expect("a private bed");
    let extra = lines.iter().map(ToString::to_string).collect();
    let options = ZooKeeperOptions { extra, ..Default::default() };
    let ensemble = bed.zookeeper_ensemble(options).expect("an ensemble");
    (ensemble, bed)
}

fn leader(ensemble: &ZooKeeperEnsemble) -> usize {
    tokio::task::block_in_place(|| ensemble.leader()).expect("a leader")
}

/// Whether a waiter watches the node before its own. Until then it may fail for want of an answer.
fn is_watched(ensemble: &ZooKeeperEnsemble) -> bool {
    let has_watches = |member: &ZooKeeper| {
        let says = member.four_letter_word("mntr").unwrap_or_default();
        says.lines().any(|line| line.starts_with("zk_watch_count") && !line.ends_with("\t0"))
    };
    tokio::task::block_in_place(|| ensemble.members().iter().any(has_watches))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_and_its_waiter_outlive_the_leader() {
    let (ensemble, _bed) = ensemble(&[]);
    for fault in FAULTS {
        let mut tries = 1;
        while !outlives(&ensemble, fault).await {
            assert!(tries < 3, "{}: no quick election in {tries} tries", fault.0);
            tries += 1;
        }
    }
}

/// Whether the election was quick enough to say so.
async fn outlives(ensemble: &ZooKeeperEnsemble, (how, away, back): (&str, Fault, Fault)) -> bool {
    let first = leader(ensemble);
    let connect_string = ensemble.connect_string();
    let locks = locks_at(&connect_string, SESSION).await;
    let others = locks_at(&connect_string, SESSION).await;
    let name = fresh_name();
    let guard = lock(&locks, &name).await;
    let token = guard.token();
    let waiter = tokio::spawn({
        let (name, wait) = (name.clone(), options(Duration::from_mins(3)));
        async move { others.lock(&name, &wait).await }
    });
    let look = Look::at(&ensemble.members()[(first + 1) % 3]).await;
    look.await_queue(&name, 2).await;
    eventually("the waiter watches", async || is_watched(ensemble)).await;
    tokio::task::block_in_place(|| away(ensemble, first)).expect(how);
    let began = Instant::now();
    // One that is cut off takes itself for the leader for some ticks.
    eventually("another leader", async || leader(ensemble) != first).await;
    let is_quick = began.elapsed() < QUICK_ELECTION;
    if is_quick {
        // The session has moved once another member answers its heartbeat.
        let before = guard.validity().deadline();
        eventually("the session moves", async || guard.validity().deadline() > before).await;
        assert!(!guard.is_lost() && !waiter.is_finished(), "{how}");
        release(guard).await;
        let heir = waiter.await.expect("no panic").expect(how);
        assert!(heir.token() > token, "{how}");
        release(heir).await;
    }
    tokio::task::block_in_place(|| back(ensemble, first)).expect(how);
    is_quick
}

/// Takes the lock, also if the servers have no leader yet.
async fn after_the_election(locks: Locks, name: LockName) -> Guard {
    let deadline = Instant::now() + SESSION;
    loop {
        match locks.lock(&name, &patient()).await {
            Err(LockError::Backend(reason)) if Instant::now() > deadline => panic!("{reason}"),
            Err(LockError::Backend(_)) => {}
            outcome => return outcome.expect("the lock"),
        }
    }
}

async fn is_lost_before_it_is_taken(guard: &Guard, heir: &JoinHandle<Guard>) {
    while !guard.is_lost() {
        let is_taken = heir.is_finished();
        // If it is still believed in now, it must not have been taken when it was asked.
        assert!(guard.is_lost() || !is_taken, "believed in, and taken by another");
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(guard.lost().await, LossCause::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_stays_closed_and_the_majority_grants_the_lock_after_the_session() {
    let (ensemble, _bed) = ensemble(&[]);
    for is_leader in [true, false] {
        let leader = leader(&ensemble);
        let apart = if is_leader { leader } else { (leader + 1) % 3 };
        let [minority, other] = [apart, (apart + 1) % 3].map(|member| &ensemble.members()[member]);
        let inside = locks_at(minority.connect_string(), SHORT).await;
        let outside = locks_at(other.connect_string(), SESSION).await;
        let [held, free] = [fresh_name(), fresh_name()];
        let guard = lock(&inside, &held).await;
        ensemble.cut_off(apart);
        let heir = tokio::spawn(after_the_election(outside.clone(), held.clone()));
        is_lost_before_it_is_taken(&guard, &heir).await;
        // What is asked there is refused, or not answered.
        let refused = inside.lock(&free, &at_once()).await;
        assert!(matches!(refused, Err(LockError::Backend(_))), "{:?}", refused.err());
        let heir = heir.await.expect("no panic");
        assert!(heir.token() > guard.token());
        release(lock(&outside, &free).await).await;
        release(heir).await;
        ensemble.join_again(apart);
        eventually("the member is back", async || inside.lock(&free, &at_once()).await.is_ok())
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_has_not_noticed_its_isolation_renews_no_hold() {
    // It takes half a minute until it notices.
    let (ensemble, _bed) = ensemble(&["syncLimit=150"]);
    let leader = leader(&ensemble);
    let members = ensemble.members();
    let others = [(leader + 1) % 3, (leader + 2) % 3].map(|other| &members[other]);
    let inside = locks_at(members[leader].connect_string(), SHORT).await;
    let outside = locks_at(others[0].connect_string(), SESSION).await;
    let name = fresh_name();
    let guard = lock(&inside, &name).await;
    ensemble.silence(leader);
    // The others forget their leader at once, as after a failure of their power.
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            for other in others {
                other.kill().expect("killed");
                scope.spawn(|| other.restart().expect("a majority"));
            }
        });
    });
    let heir = tokio::spawn(after_the_election(outside.clone(), name.clone()));
    is_lost_before_it_is_taken(&guard, &heir).await;
    let heir = heir.await.expect("no panic");
    let leads = tokio::task::block_in_place(|| members[leader].four_letter_word("srvr"));
    assert!(leads.expect("an answer").contains("Mode: leader"), "it has noticed");
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_observer_serves_locks_and_makes_no_majority() {
    let bed = Bed::start().expect("a private bed");
    let (ensemble, observer) =
        bed.zookeeper_with_observer(ZooKeeperOptions::default()).expect("an ensemble");
    let says = observer.four_letter_word("srvr").expect("an answer");
    assert!(says.contains("Mode: observer"), "{says}");
    let first = leader(&ensemble);
    let members = ensemble.members();
    let through = locks_at(observer.connect_string(), SESSION).await;
    let direct = locks_at(members[first].connect_string(), SESSION).await;
    let name = fresh_name();
    let guard = lock(&through, &name).await;
    let refused = direct.lock(&name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    let token = guard.token();
    release(guard).await;
    let guard = lock(&direct, &name).await;
    assert!(guard.token() > token);
    let refused = through.lock(&name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    release(guard).await;
    // One of three may fail, also for those who are at the observer.
    members[(first + 1) % 3].kill().expect("killed");
    release(lock(&through, &name).await).await;
    members[(first + 2) % 3].kill().expect("killed");
    let refused = through.lock(&name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::Backend(_))), "{:?}", refused.err());
}

//! Locks seen from outside, in ZooKeeper. What every kind shows is in the crate conformance.

use crate::support::{fresh_name, lock, locks, release, server};
use distlock::{LockName, LockState, LockWaiters, Locks, RemainingLease};
use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode};

async fn names(locks: &Locks, prefix: &str, limit: usize) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list(prefix, cursor, limit).await.expect("a page");
        assert!(page.locks.len() <= limit, "{page:?}");
        names.extend(page.locks.into_iter().map(|lock| lock.name));
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

fn name(text: &str) -> LockName {
    LockName::new(text).expect("a name")
}

async fn make(client: &Client, path: &str, mode: CreateMode, data: &[u8]) -> String {
    let mode = mode.with_acls(Acls::anyone_all());
    let (_, sequence) = client.create(path, data, &mode).await.expect("a znode");
    format!("{path}{sequence}")
}

#[tokio::test]
async fn locks_are_listed_in_pages_whatever_is_in_their_names() {
    let locks = locks().await;
    let prefix = format!("{}/ü %", fresh_name());
    let mut guards = Vec::new();
    for number in 10..18 {
        guards.push(lock(&locks, &name(&format!("{prefix}{number}"))).await);
    }
    let wanted: Vec<_> = (10..18).map(|number| format!("{prefix}{number}")).collect();
    for limit in [1, 3, 8, 1000] {
        assert_eq!(names(&locks, &prefix, limit).await, wanted, "pages of {limit}");
    }
    for guard in guards {
        release(guard).await;
    }
    assert!(names(&locks, &prefix, 3).await.is_empty());
}

#[tokio::test]
async fn a_lock_of_curator_is_shown_with_its_node_and_its_queue() {
    let (locks, client) = (locks().await, Client::connect(server().connect_string()).await);
    let client = client.expect("a session");
    let folder = format!("/curator-{}", Uuid::new_v4());
    make(&client, &folder, CreateMode::Persistent, b"").await;
    let lock = format!("{folder}/report");
    make(&client, &lock, CreateMode::Persistent, b"").await;
    // As Curator's InterProcessMutex names them; it stores an address.
    let contender = |id: u128| format!("{lock}/_c_{}-lock-", Uuid::from_u128(id));
    let holder = make(&client, &contender(9), CreateMode::EphemeralSequential, b"192.0.2.7").await;
    let waiter = make(&client, &contender(1), CreateMode::EphemeralSequential, b"").await;
    let node = |path: &str| path.rsplit('/').next().expect("a name").to_owned();

    let seen = locks.inspect(&name(&lock)).await.expect("an answer");
    let [shown] = seen.state.holders() else { panic!("{seen:?}") };
    assert_eq!((shown.id.clone(), shown.owner.as_deref()), (node(&holder), Some("192.0.2.7")));
    assert_eq!(shown.lease, RemainingLease::Session);
    assert_eq!(seen.waiters, LockWaiters::Ordered(vec![node(&waiter).into()]));
    assert_eq!(names(&locks, &format!("{folder}/"), 10).await, std::slice::from_ref(&lock));

    make(&client, &format!("{lock}/leases"), CreateMode::Persistent, b"").await;
    let seen = locks.inspect(&name(&lock)).await.expect("an answer");
    assert!(matches!(seen.state, LockState::Damaged(_)), "{seen:?}");
}

#[tokio::test]
async fn readers_of_curators_read_write_lock_are_shown_as_sharing_it_and_freed_for_its_writer() {
    let (locks, client) = (locks().await, Client::connect(server().connect_string()).await);
    let client = client.expect("a session");
    let lock = format!("/curator-{}", Uuid::new_v4());
    make(&client, &lock, CreateMode::Persistent, b"").await;
    let mut nodes = Vec::new();
    for mark in ["__READ__", "__READ__", "__WRIT__", "__READ__"] {
        let contender = format!("{lock}/_c_{}-{mark}", Uuid::new_v4());
        let path = make(&client, &contender, CreateMode::EphemeralSequential, b"192.0.2.7").await;
        nodes.push(path.rsplit('/').next().expect("a name").to_owned());
    }
    // How many hold it, and whether they share it.
    for (held, shares) in [(0..2, true), (2..3, false), (3..4, true)] {
        let seen = locks.inspect(&name(&lock)).await.expect("an answer");
        let shown = seen.state.holders().iter().map(|it| (it.id.clone(), it.shares));
        let shown: Vec<_> = shown.collect();
        let waiters = nodes[held.end..].iter().cloned().map(Into::into).collect();
        let held = nodes[held].iter().map(|node| (node.clone(), shares));
        assert_eq!(shown, held.collect::<Vec<_>>());
        assert_eq!(seen.waiters, LockWaiters::Ordered(waiters));
        for (id, _) in shown {
            assert!(locks.force_release(&name(&lock), &id).await.expect("an answer"));
        }
    }
    let seen = locks.inspect(&name(&lock)).await.expect("an answer");
    assert_eq!(seen.state, LockState::Free);
}

#[tokio::test]
async fn a_node_that_no_session_ends_is_shown_as_one_without_an_expiry() {
    let (locks, client) = (locks().await, Client::connect(server().connect_string()).await);
    let client = client.expect("a session");
    let folder = format!("/stuck-{}", Uuid::new_v4());
    make(&client, &folder, CreateMode::Persistent, b"").await;
    make(&client, &format!("{folder}/lock-0000000001"), CreateMode::Persistent, b"").await;
    let seen = locks.inspect(&name(&folder)).await.expect("an answer");
    assert_eq!(seen.state.holders()[0].lease, RemainingLease::NoExpiry, "{seen:?}");
    let id = seen.state.holders()[0].id.clone();
    assert!(locks.force_release(&name(&folder), &id).await.expect("an answer"));
    let seen = locks.inspect(&name(&folder)).await.expect("an answer");
    assert_eq!(seen.state, LockState::Free);
}

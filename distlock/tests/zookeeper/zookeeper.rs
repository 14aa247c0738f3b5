//! `zookeeper` on a real server. Several `Locks`, each with a session of its own, are several
//! processes as far as the server can see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::dropped::up_to;
use crate::support::{
    LONG, Look, SHORT, assert_busy, at_once, await_watches, eventually, fresh_name, lock, locks,
    locks_at, options, patient, release, server, wait_for, watches_below, znode,
};
use distlock::{
    Backends, Guard, Lease, LockError, LockKind, LockName, LockOptions, LossCause, Owner, Release,
    Request, ZooKeeperServer, locker,
};
use tokio::task::JoinSet;
use uuid::Uuid;
use zookeeper_client::CreateMode;

/// Clearly less than any wait in these tests, with room for a busy machine.
const PROMPT_WITHIN: Duration = Duration::from_secs(5);

/// A counter that loses counts, and a section that notices company, unless they are guarded.
#[derive(Default)]
struct Section {
    counter: AtomicU64,
    inside: AtomicU32,
    crowded: AtomicU32,
}

impl Section {
    async fn visit(&self) {
        let company = self.inside.fetch_add(1, Ordering::SeqCst);
        self.crowded.fetch_add(u32::from(company > 0), Ordering::SeqCst);
        let seen = self.counter.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.counter.store(seen + 1, Ordering::SeqCst);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_three_sessions_are_in_the_section_one_at_a_time() {
    let processes = [locks().await, locks().await, locks().await];
    let (section, name) = (Arc::<Section>::default(), fresh_name());
    let mut tasks = JoinSet::new();
    for locks in processes.iter().flat_map(|locks| std::iter::repeat_n(locks, 6)) {
        let (locks, section, name) = (locks.clone(), Arc::clone(&section), name.clone());
        tasks.spawn(async move {
            for _ in 0..5 {
                let guard = locks.lock(&name, &patient()).await.expect("the lock");
                section.visit().await;
                assert!(!guard.is_lost());
                release(guard).await;
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(section.counter.load(Ordering::SeqCst), 3 * 6 * 5);
    assert_eq!(section.crowded.load(Ordering::SeqCst), 0);
    assert_eq!(Look::here().await.queue(&name).await.len(), 0, "something is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_served_in_order_and_each_watches_its_predecessor_only() {
    let processes = [locks().await, locks().await, locks().await];
    let (look, name) = (Look::here().await, fresh_name());
    let holder = lock(&processes[0], &name).await;
    let mut waiters = Vec::new();
    for place in 0..6 {
        waiters.push(wait_for(&processes[place % 3], &name));
        look.await_queue(&name, place + 2).await;
    }
    let queue = look.queue(&name).await;
    let (path, last) = (znode(&name), queue.len() - 1);
    // One watch on each node that has a successor; none on the last one, none on the parent.
    let expected: Vec<_> =
        queue[..last].iter().map(|child| (format!("{path}/{child}"), 1)).collect();
    eventually("each watches one node", async || watches_below(server(), &path) == expected).await;
    let mut tokens = vec![holder.token()];
    release(holder).await;
    for (place, waiter) in waiters.into_iter().enumerate() {
        let guard = waiter.await.expect("no panic").expect("the lock");
        // No other was let in: the own node is the first, and the others are those that came
        // later.
        assert_eq!(look.queue(&name).await, queue[place + 1..]);
        tokens.push(guard.token());
        release(guard).await;
    }
    assert!(tokens.is_sorted_by(|one, next| one.is_some() && one < next), "{tokens:?}");
    assert_eq!(watches_below(server(), &path), [], "watches are left");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_are_curators_and_a_program_with_curator_is_excluded_and_excludes() {
    let (locks, look) = (locks().await, Look::here().await);
    // The path as Curator is given it; its parents do not exist.
    let path = format!("/a/{}/lock", Uuid::new_v4());
    let name = LockName::new(path.as_str()).expect("a name");
    let guard = lock(&locks, &name).await;
    let children = look.0.list_children(&path).await.expect("the parent");
    let [child] = children.as_slice() else { panic!("{children:?}") };
    let id = child.strip_prefix("_c_").and_then(|rest| rest.strip_suffix("-lock-0000000000"));
    assert_eq!(id.expect(child).parse::<Uuid>().expect(child).get_version_num(), 4);
    let (data, node) = look.0.get_data(&format!("{path}/{child}")).await.expect("the node");
    assert!(node.ephemeral_owner > 0, "the node outlives its session");
    assert_eq!(data, guard.owner().as_str().as_bytes());
    assert_eq!(guard.token().map(|token| token.0), u64::try_from(node.czxid).ok());

    // What Curator does: a node of its own, behind ours as long as that is there.
    let prefix = format!("{path}/_c_{}-lock-", Uuid::new_v4());
    let theirs = look.create(&prefix, CreateMode::EphemeralSequential).await;
    assert!(theirs.ends_with("-lock-0000000001"), "{theirs}");
    release(guard).await;
    assert_eq!(look.0.list_children(&path).await.expect("it").len(), 1, "theirs is the first");
    assert_busy(&locks, &name).await;
    let waiter = wait_for(&locks, &name);
    eventually("we are behind", async || {
        look.0.list_children(&path).await.is_ok_and(|children| children.len() == 2)
    })
    .await;
    assert!(!waiter.is_finished());
    look.delete(&theirs).await;
    release(waiter.await.expect("no panic").expect("the lock")).await;
}

#[tokio::test]
async fn an_owner_enters_again_and_the_last_release_frees_the_lock() {
    let (locks, other, look) = (locks().await, locks().await, Look::here().await);
    let name = fresh_name();
    let outer = lock(&locks, &name).await;
    let enter = async || {
        let owner = outer.owner().clone();
        locks.lock_as(owner, &name, &at_once()).await.expect("its own lock")
    };
    let (first, second) = (enter().await, enter().await);
    assert_eq!([first.token(), second.token()], [outer.token(); 2], "it is one ownership");
    assert_eq!(look.queue(&name).await.len(), 1, "an entry is no node");
    assert_busy(&locks, &name).await;
    assert_busy(&other, &name).await;
    let owner = outer.owner().clone();
    release(outer).await;
    release(first).await;
    assert_busy(&other, &name).await;
    release(second).await;
    assert_eq!(look.queue(&name).await.len(), 0);
    // It is an owner without a hold by now, as any other.
    let holder = lock(&other, &name).await;
    let refused = locks.lock_as(owner, &name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    release(holder).await;
}

#[tokio::test]
async fn a_release_distinguishes_freed_held_by_another_and_not_held() {
    let (locks, other, look) = (locks().await, locks().await, Look::here().await);
    let name = fresh_name();
    let gone = lock(&locks, &name).await;
    look.remove_first(&name).await;
    assert_eq!(gone.release().await.expect("an answer"), Release::Gone);

    let late = lock(&locks, &name).await;
    look.remove_first(&name).await;
    let successor = lock(&other, &name).await;
    assert_eq!(late.release().await.expect("an answer"), Release::HeldByOther);
    assert!(!successor.is_lost());
    assert_eq!(look.queue(&name).await.len(), 1, "the successor's node was not touched");
    release(successor).await;
}

#[tokio::test]
async fn a_holder_gets_the_loss_of_a_removed_node_and_a_waiter_makes_another() {
    let session = SHORT * 2;
    let locks = locks_at(server().connect_string(), session).await;
    let (look, name) = (Look::here().await, fresh_name());
    let holder = lock(&locks, &name).await;
    let waiter = wait_for(&locks, &name);
    look.await_queue(&name, 2).await;
    let queue = look.queue(&name).await;
    look.delete(&format!("{}/{}", znode(&name), queue[1])).await;
    look.delete(&format!("{}/{}", znode(&name), queue[0])).await;
    let told = tokio::time::timeout(session, holder.lost()).await;
    assert_eq!(told.expect("the heartbeat sees it"), LossCause::Taken);
    let heir = waiter.await.expect("no panic").expect("the lock");
    assert!(heir.token() > holder.token());
    assert_eq!(holder.release().await.expect("an answer"), Release::HeldByOther);
    release(heir).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_rises_though_the_sequence_begins_again_with_the_parent() {
    let own = crate::support::OwnServer::start(50);
    let locks = locks_at(own.zookeeper.connect_string(), LONG).await;
    let look = Look::at(&own.zookeeper).await;
    let (name, mut last) = (fresh_name(), None);
    for _ in 0..5 {
        let guard = lock(&locks, &name).await;
        let node = look.queue(&name).await.remove(0);
        assert!(node.ends_with("-lock-0000000000"), "{node}");
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        release(guard).await;
        let path = znode(&name);
        eventually("the empty parent is removed", async || !look.exists(&path).await).await;
    }
}

#[tokio::test]
async fn without_a_wait_a_busy_lock_is_refused_and_a_wait_ends_when_it_is_over() {
    let (locks, other, look) = (locks().await, locks().await, Look::here().await);
    let name = fresh_name();
    let holder = lock(&locks, &name).await;
    let queue = look.queue(&name).await;
    for (wait, locks) in [(0, &locks), (0, &other), (250, &locks), (250, &other)] {
        let (started, wait) = (Instant::now(), Duration::from_millis(wait));
        let refused = locks.lock(&name, &options(wait)).await;
        let waited = started.elapsed();
        assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
        assert!(waited >= wait && waited < wait + PROMPT_WITHIN, "{waited:?} of {wait:?}");
        locks.flush().await;
        assert_eq!(look.queue(&name).await, queue, "it has left the queue");
    }
    release(holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_no_node() {
    let (locks, other, look) = (locks().await, locks().await, Look::here().await);
    let mut dropped = 0;
    for polls in 1..=8 {
        let name = fresh_name();
        let done = up_to(polls, locks.lock(&name, &patient())).await;
        dropped += u32::from(done.is_none());
        drop(done);
        locks.flush().await;
        assert_eq!(look.queue(&name).await.len(), 0, "free lock, {polls} polls");
    }
    assert!(dropped >= 3, "only {dropped} were dropped half way");
    // A waiter is pending at the create, at the list, at the look at its predecessor, and then
    // until that is gone.
    for polls in 1..=4 {
        let name = fresh_name();
        let holder = lock(&other, &name).await;
        let waiting = up_to(polls, locks.lock(&name, &patient())).await;
        assert!(waiting.is_none(), "two hold it");
        locks.flush().await;
        assert_eq!(look.queue(&name).await.len(), 1, "busy lock, {polls} polls");
        let waiter = wait_for(&locks, &name);
        await_watches(server(), &name, 1).await;
        waiter.abort();
        await_watches(server(), &name, 0).await;
        look.await_queue(&name, 1).await;
        release(holder).await;
    }
}

#[tokio::test]
async fn what_is_no_lock_and_what_is_no_znode_is_refused() {
    let (locks, look) = (locks().await, Look::here().await);
    let base = format!("/a-{}", Uuid::new_v4());
    look.create(&base, CreateMode::Persistent).await;
    for (node, mode, child) in [
        ("ephemeral", CreateMode::Ephemeral, None),
        ("read-write", CreateMode::Persistent, Some("_c_1-__WRIT__0000000000")),
        ("semaphore", CreateMode::Persistent, Some("leases")),
    ] {
        let path = format!("{base}/{node}");
        look.create(&path, mode).await;
        if let Some(child) = child {
            look.create(&format!("{path}/{child}"), CreateMode::Persistent).await;
        }
        let name = LockName::new(path.as_str()).expect("a name");
        let refused = locks.lock(&name, &at_once()).await.expect_err(node);
        assert!(matches!(refused, LockError::HeldByOtherKind), "{node}: {refused}");
        locks.flush().await;
        let children = look.0.list_children(&path).await.expect("it is as it was");
        assert_eq!(children, Vec::from_iter(child), "{node}");
    }
    for (name, lease, field) in [
        ("/a//b", Lease::Renewed(LONG), "lock name"),
        ("/zookeeper/quota", Lease::Renewed(LONG), "lock name"),
        ("a", Lease::Fixed(LONG), "lease"),
    ] {
        let options = LockOptions::new(Duration::ZERO, lease);
        let name = LockName::new(name).expect("a name");
        match locks.lock(&name, &options).await.expect_err("a refusal") {
            LockError::BadRequest { field: named, .. } => assert_eq!(named, field),
            other => panic!("{name}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_connection_that_cannot_be_is_refused_with_a_reason() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nobody = free.local_addr().expect("an address").to_string();
    drop(free);
    for (connect_string, session, reason) in [
        (nobody.as_str(), LONG, "the lock's server failed: no session: "),
        ("", LONG, "ZooKeeper: empty connect string"),
        ("127.0.0.1:x", LONG, "ZooKeeper: invalid address"),
        (&nobody, Duration::from_millis(99), "session time-out: must be 100 ms to a day"),
        (&nobody, Duration::MAX, "session time-out: must be 100 ms to a day"),
    ] {
        let started = Instant::now();
        let refused = ZooKeeperServer::connect(connect_string, session).await;
        let error = refused.expect_err(reason).to_string();
        assert!(error.starts_with(reason), "{error}");
        assert!(
            started.elapsed() < Duration::from_secs(2) + PROMPT_WITHIN,
            "{:?}",
            started.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_left_to_its_lease_keeps_others_out_for_a_session_and_then_is_free() {
    let locks = locks_at(server().connect_string(), SHORT).await;
    let (other, name) = (crate::support::locks().await, fresh_name());
    let guard = lock(&locks, &name).await;
    let left = Instant::now();
    guard.leave_to_lease();
    let heir = other.lock(&name, &patient()).await.expect("the lock");
    assert!(left.elapsed() >= SHORT, "{:?}", left.elapsed());
    assert!(left.elapsed() < LONG / 3, "{:?}", left.elapsed());
    release(heir).await;
    // The session lives on.
    release(lock(&locks, &name).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_locks_left_to_their_lease_wait_for_its_end_in_one_task() {
    let session = ZooKeeperServer::connect(server().connect_string(), SHORT).await;
    let backends = Backends { zookeeper: session.ok(), ..Backends::default() };
    let mechanism = locker(LockKind::Zookeeper, &backends).expect("a locker");
    let (name, mut holds) = (fresh_name(), Vec::new());
    for number in 0..100 {
        let name = LockName::new(format!("{name}:{number}")).expect("a good name");
        let (owner, id) = (Owner::fresh(), Uuid::new_v4());
        let request = Request { name: name.clone(), owner, may_hold: false, id, lease: SHORT };
        let hold = mechanism.begin(request).attempt().await.expect("an answer");
        holds.push((name, hold.expect("it is free")));
    }
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let (before, left, mut names) = (tasks(), Instant::now(), Vec::new());
    for (name, hold) in holds {
        drop(hold);
        names.push(name);
    }
    let more = tasks().saturating_sub(before);
    assert!(left.elapsed() < SHORT, "too slow to tell");
    assert!(more < 10, "{more} tasks for {} locks", names.len());
    let look = Look::here().await;
    for name in names {
        look.await_queue(&name, 0).await;
    }
    assert!(left.elapsed() >= SHORT, "{:?}", left.elapsed());
}

/// As where too much is under way in the background, and an abandonment is given up.
#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_place_in_the_queue_ends_with_its_session() {
    let session = ZooKeeperServer::connect(server().connect_string(), SHORT).await;
    let backends = Backends { zookeeper: session.ok(), ..Backends::default() };
    let mechanism = locker(LockKind::Zookeeper, &backends).expect("a locker");
    let (look, other, name) = (Look::here().await, crate::support::locks().await, fresh_name());
    let holder = lock(&other, &name).await;
    let (owner, id) = (Owner::fresh(), Uuid::new_v4());
    let request = Request { name: name.clone(), owner, may_hold: false, id, lease: SHORT };
    let mut waiting = mechanism.begin(request);
    assert!(waiting.attempt().await.expect("an answer").is_none(), "somebody holds it");
    look.await_queue(&name, 2).await;
    let left = Instant::now();
    drop(waiting);
    look.await_queue(&name, 1).await;
    assert!(left.elapsed() >= SHORT, "{:?}", left.elapsed());
    release(holder).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_is_closed_with_the_last_user_and_frees_what_it_held() {
    let (locks, look, name) = (locks().await, Look::here().await, fresh_name());
    let guard: Guard = lock(&locks, &name).await;
    let children = look.queue(&name).await;
    assert_eq!(children.len(), 1);
    let dropped = Instant::now();
    drop(guard);
    drop(locks);
    look.await_queue(&name, 0).await;
    assert!(dropped.elapsed() < LONG / 2, "it waited for the end of the session");
}

//! `mysql-named` on a real database. Several servers, each with a pool of its own, are several
//! processes as far as the database can see.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::support::mysql::{
    OwnDb, assert_clean, assert_waiters_are_killed, drop_at_any_point, locks_on, own, renewed,
    server, server_at, try_now, waiting,
};
use crate::support::ran::ran;
use crate::support::{LONG, at_once, but_for_one_standstill, eventually, fresh_name, granted};
use distlock::{Lease, LockError, LockKind, LockName, Locks, LossCause, MySqlServer, Release};
use testbed::Bed;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Clearly less than any wait in these tests, with room for a busy machine.
const PROMPT_WITHIN: Duration = Duration::from_millis(500);

async fn locks() -> Locks {
    locks_on(LockKind::MysqlNamed, &server().await)
}

async fn is_free(locks: &Locks, name: &LockName) -> bool {
    match locks.try_lock(name, Lease::Renewed(LONG)).await.expect("an answer") {
        Some(guard) => guard.release().await.expect("a release") == Release::Released,
        None => false,
    }
}

#[tokio::test]
async fn names_of_any_length_and_case_and_of_other_databases_are_distinguished() {
    let (locks, other) = (locks().await, locks().await);
    let long = "x".repeat(500);
    let names = ["a", "A", "ä", &format!("{long}1"), &format!("{long}2")];
    let mut held = Vec::new();
    for name in names {
        let name = LockName::new(name).expect("a name");
        held.push(locks.lock(&name, &try_now()).await.expect("no other name's lock"));
        assert!(!is_free(&other, &name).await, "{name}");
    }
    own().database.create_database("elsewhere").expect("a database");
    let url = own().database.url("elsewhere");
    let elsewhere = locks_on(LockKind::MysqlNamed, &server_at(&url, 2).await);
    assert!(is_free(&elsewhere, &LockName::new("a").expect("a name")).await);
    for guard in held {
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_wait_a_busy_lock_is_refused_and_nothing_waits_in_the_server() {
    let (server, other, name) = (server_at(&own().url(), 1).await, locks().await, fresh_name());
    let locks = locks_on(LockKind::MysqlNamed, &server);
    let guard = other.lock(&name, &try_now()).await.expect("the lock");
    let number = "SELECT CAST(CONNECTION_ID() AS SIGNED)";
    let before: i64 = sqlx::query_scalar(number).fetch_one(server.pool()).await.expect("it");
    for _ in 0..5 {
        assert!(!is_free(&locks, &name).await);
        locks.flush().await;
    }
    // A waiter that is no longer wanted would have been killed.
    let after: i64 = sqlx::query_scalar(number).fetch_one(server.pool()).await.expect("it");
    assert_eq!(before, after, "the connection was not kept");
    assert_clean(&server).await;
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn its_heartbeat_keeps_a_hold_far_beyond_its_lease() {
    let (server, name) = (server().await, fresh_name());
    let (locks, other) = (locks_on(LockKind::MysqlNamed, &server), locks().await);
    let lease = renewed(Duration::ZERO, Duration::from_millis(4500));
    let guard = locks.lock(&name, &lease).await.expect("the lock");
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        assert!(!guard.is_lost() && !is_free(&other, &name).await);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    assert!(is_free(&other, &name).await);
    assert_clean(&server).await;
    // Without a heartbeat it does not stay alive.
    let refused = locks.lock(&name, &at_once()).await;
    assert!(matches!(refused, Err(LockError::BadRequest { field: "lease", .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connection_is_signalled_to_its_holder_at_the_next_heartbeat() {
    // With one connection, so that its number is known.
    let (server, killer) = (server_at(&own().url(), 1).await, server().await);
    let (locks, name) = (locks_on(LockKind::MysqlNamed, &server), fresh_name());
    for round in 0..3 {
        but_for_one_standstill(async || {
            is_signalled(&server, &killer, &locks, &name, round > 0).await
        })
        .await;
    }
}

async fn is_signalled(
    server: &MySqlServer,
    killer: &MySqlServer,
    locks: &Locks,
    name: &LockName,
    waits: bool,
) -> Result<(), String> {
    let id = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)");
    let id: i64 = id.fetch_one(server.pool()).await.expect("an answer");
    let lease = Duration::from_secs(3);
    let guard = locks.lock(name, &renewed(Duration::ZERO, lease)).await.expect("the lock");
    let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
    sqlx::raw_sql(kill).execute(killer.pool()).await.expect("an answer");
    let (since, mut took) = (ran(), Duration::ZERO);
    if waits {
        let cause = guard.lost_signal().lost().await;
        assert_eq!(cause, LossCause::Taken, "told by the heartbeat");
        took = ran().saturating_sub(since);
    }
    assert_eq!(guard.release().await.expect("an answer"), Release::Gone);
    // The dead connection is not used again.
    assert!(is_free(locks, name).await);
    assert_clean(server).await;
    if took < lease / 3 + PROMPT_WITHIN { Ok(()) } else { Err(format!("{took:?}")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn validity_of_a_cut_off_holder_ends_before_the_server_frees_the_lock() {
    let (link, other) = (Link::to(own().database.addr()).await, locks().await);
    let url = own().url().replace(&own().database.addr().to_string(), &link.address.to_string());
    for lease_ms in [1000, 2000] {
        let server = server_at(&url, 2).await;
        let (locks, name) = (locks_on(LockKind::MysqlNamed, &server), fresh_name());
        let lease = renewed(Duration::ZERO, Duration::from_millis(lease_ms));
        let guard = granted(&locks, &name, &lease).await;
        if lease_ms > 1000 {
            // After a heartbeat.
            tokio::time::sleep(Duration::from_millis(lease_ms / 2)).await;
        }
        link.cut.send_replace(true);
        let cut = Instant::now();
        while !is_free(&other, &name).await {
            assert!(cut.elapsed() < Duration::from_secs(6), "a cut-off holder is never freed");
        }
        assert!(guard.is_lost(), "somebody else has it after {:?}", cut.elapsed());
        link.cut.send_replace(false);
        drop(guard);
        locks.flush().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_cannot_be_left_for_a_time_since_its_session_ends_with_it() {
    let (locks, other, name) = (locks().await, locks().await, fresh_name());
    let guard = locks.lock(&name, &try_now()).await.expect("the lock");
    let left = guard.leave_for(Duration::from_secs(1)).await;
    assert!(matches!(left, Err(LockError::Unsupported(_))), "{left:?}");
    locks.flush().await;
    assert!(is_free(&other, &name).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_server_costs_no_hold() {
    let own = tokio::task::block_in_place(OwnDb::start);
    let (server, name) = (server_at(&own.url(), 4).await, fresh_name());
    let locks = locks_on(LockKind::MysqlNamed, &server);
    let lease = Duration::from_secs(6);
    let guard = locks.lock(&name, &renewed(Duration::ZERO, lease)).await.expect("the lock");
    for _ in 0..2 {
        // A heartbeat gets no answer until most of the lease is over. What is left is for a
        // moment in which all stands still.
        own.database.freeze().expect("a frozen server");
        tokio::time::sleep(lease / 3 + Duration::from_millis(200)).await;
        own.database.thaw().expect("a thawed server");
        tokio::time::sleep(lease / 2).await;
        assert!(!guard.is_lost());
    }
    assert!(!is_free(&locks.clone().without_local_queue(), &name).await);
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
    // A server that is away for longer costs it, and its end is not waited for.
    let guard = granted(&locks, &name, &renewed(Duration::ZERO, PROMPT_WITHIN)).await;
    own.database.freeze().expect("a frozen server");
    guard.lost_signal().lost().await;
    let released = Instant::now();
    assert!(guard.release().await.is_err(), "nobody can say how that ended");
    assert!(released.elapsed() < Duration::from_secs(16), "{:?}", released.elapsed());
    own.database.thaw().expect("a thawed server");
    eventually("it is free again", async || is_free(&locks, &name).await).await;
    locks.flush().await;
    assert_clean(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_gets_the_lock_after_many_slices_however_short_its_lease() {
    but_for_one_standstill(gets_the_lock_after_many_slices).await;
}

async fn gets_the_lock_after_many_slices() -> Result<(), String> {
    let (first, second, name) = (locks().await, locks().await, fresh_name());
    let holder = first.lock(&name, &try_now()).await.expect("the lock");
    let short = renewed(Duration::from_secs(30), Duration::from_millis(200));
    let (waited, freed) = tokio::join!(second.lock(&name, &short), async {
        tokio::time::sleep(Duration::from_millis(1800)).await;
        holder.release().await.expect("a release");
        ran()
    });
    let late = ran().saturating_sub(freed);
    let guard = waited.map_err(|error| error.to_string())?;
    // Its lease does not count from before it was granted.
    let (is_lost, end) = (guard.is_lost(), guard.release().await);
    match end {
        Ok(Release::Released) if !is_lost && late < PROMPT_WITHIN => Ok(()),
        _ => Err(format!("it was told {late:?} late; lost: {is_lost}, {end:?}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_waiter_is_killed_on_the_server() {
    assert_waiters_are_killed(LockKind::MysqlNamed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acquire_dropped_at_any_point_leaves_nothing_behind() {
    drop_at_any_point(LockKind::MysqlNamed, 16).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_guard_and_one_left_to_its_lease_free_the_lock_at_once() {
    let server = server().await;
    let (locks, other) = (locks_on(LockKind::MysqlNamed, &server), locks().await);
    for keep in [false, true] {
        let name = fresh_name();
        let guard = locks.lock(&name, &try_now()).await.expect("the lock");
        if keep {
            guard.leave_to_lease();
        } else {
            drop(guard);
        }
        locks.flush().await;
        eventually("the lock is free", async || is_free(&other, &name).await).await;
        assert_clean(&server).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holders_that_take_all_connections_are_an_error_for_the_next_and_no_deadlock() {
    let small: MySqlServer = server_at(&own().url(), 2).await;
    let locks = locks_on(LockKind::MysqlNamed, &small);
    let one = locks.lock(&fresh_name(), &try_now()).await.expect("the lock");
    let two = locks.lock(&fresh_name(), &try_now()).await.expect("the lock");
    let error = locks.lock(&fresh_name(), &waiting()).await.expect_err("no connection");
    assert!(matches!(error, LockError::NoConnection(_)), "{error}");
    drop(one);
    let three = locks.lock(&fresh_name(), &waiting()).await.expect("the lock");
    for guard in [two, three] {
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}

/// A way to the server that may be cut: bytes stay on it, and no end of a connection gets through.
struct Link {
    address: SocketAddr,
    cut: watch::Sender<bool>,
}

impl Link {
    async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (cut, watched) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut watched = watched.clone();
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(server).await.expect("the server");
                    let flows = copy_bidirectional(&mut client, &mut server);
                    tokio::select! {
                        _ = flows => return,
                        _ = watched.wait_for(|cut| *cut) => {}
                    }
                    // What was cut once stays cut; the sockets live on.
                    tokio::time::sleep(LONG).await;
                    drop((client, server));
                });
            }
        });
        Self { address, cut }
    }
}

/// On a node of Galera, which would grant it although another node has granted it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_galera_is_refused_as_often_as_it_is_asked() {
    let bed = Bed::start().expect("a private bed");
    let [node] = bed.galera(false).expect("Galera is installed");
    node.create_database("locks").expect("it takes statements");
    let server = server_at(&node.url("locks"), 2).await;
    let size: (String, String) = sqlx::query_as("SHOW STATUS LIKE 'wsrep_cluster_size'")
        .fetch_one(server.pool())
        .await
        .expect("an answer");
    assert_eq!(size.1, "1", "it is a cluster");
    let locks = locks_on(LockKind::MysqlNamed, &server);
    for _ in 0..2 {
        let refused = locks.lock(&fresh_name(), &waiting()).await.expect_err("it is Galera");
        assert!(
            matches!(refused, LockError::Unsupported(need) if need.contains("each Galera node")),
            "{refused:?}"
        );
    }
    // A kind whose lock is a row, which all nodes share, is not.
    let table = locks_on(LockKind::MysqlTable, &server);
    let guard = table.lock(&fresh_name(), &waiting()).await.expect("nobody has it");
    assert_eq!(guard.release().await.expect("a release"), Release::Released);
}

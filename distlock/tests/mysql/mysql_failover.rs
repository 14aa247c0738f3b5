//! A hold whose server was lost, after the pool has followed to another primary.

use distlock::{LockKind, Release};
use sqlx::{Connection, MySqlConnection};
use testbed::{Bed, Flavor, Replication};
use tokio::task::block_in_place;

use crate::support::fresh_name;
use crate::support::mysql::{locks_on, server_at, try_now};

/// More connections than the replica gets besides those of the test.
const MARGIN: u64 = 100;

async fn number(session: &mut MySqlConnection, sql: &'static str) -> u64 {
    sqlx::query_scalar(sql).fetch_one(session).await.expect(sql)
}

/// A session of that server whose number is at least that, and its number.
async fn session_from(url: &str, least: u64) -> (MySqlConnection, u64) {
    loop {
        let mut session = MySqlConnection::connect(url).await.expect("a session");
        let id = number(&mut session, "SELECT CAST(CONNECTION_ID() AS UNSIGNED)").await;
        if id >= least {
            return (session, id);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failover_a_release_kills_no_connection_of_the_new_primary() {
    let bed = block_in_place(Bed::start).expect("a private bed");
    let group =
        block_in_place(|| bed.replicated(Flavor::Any, Replication::Async, 1)).expect("a pair");
    let old = group.primary().clone();
    block_in_place(|| old.create_database("locks")).expect("a database");
    for kind in [LockKind::MysqlNamed, LockKind::MysqlRow] {
        let old = group.primary().clone();
        let url = group.primary_url("locks");
        let replica = group.servers().iter().find(|one| one.addr() != old.addr());
        let replica = replica.expect("two servers").addr().to_string();
        let replica_url = url.replace(&old.addr().to_string(), &replica);
        let server = server_at(&url, 1).await;
        // The number of the hold's connection is one that the replica has not given yet.
        let (_, given) = session_from(&replica_url, 0).await;
        let (_, last) = session_from(&url, given + MARGIN).await;
        server.pool().acquire().await.expect("a connection").close().await.expect("an end");
        let guard = locks_on(kind, &server).lock(&fresh_name(), &try_now()).await;
        let guard = guard.expect("the lock");
        block_in_place(|| old.kill()).expect("it is lost");
        block_in_place(|| group.fail_over().map(drop)).expect("the replica is promoted");
        let connect_to_replica = replica_url.parse().expect("an address");
        server.pool().set_connect_options(connect_to_replica);
        let (mut other, id) = session_from(&replica_url, last + 1).await;
        assert_eq!(id, last + 1, "{kind}: the number of the lost connection");
        assert_eq!(number(&mut other, "SELECT CAST(GET_LOCK('others', 0) AS UNSIGNED)").await, 1);
        assert_eq!(guard.release().await.expect("a release"), Release::Gone, "{kind}");
        let holds = "SELECT CAST(IS_USED_LOCK('others') = CONNECTION_ID() AS UNSIGNED)";
        assert_eq!(number(&mut other, holds).await, 1, "{kind}");
        drop(other);
        block_in_place(|| group.rejoin(&old)).expect("it follows the new primary");
    }
}

//! How locks go behind their holders' backs.

use conformance::{Home, Servers, eventually, home};
use distlock::LockKind;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, SqlSafeStr};
use testbed::Redis;
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::Client;

/// What removes the locks of a kind that have these names.
pub(crate) type Remove = fn(LockKind, &[String]);

/// All ways in which locks of that kind go while their servers run and their holders live.
pub(crate) fn removals(kind: LockKind) -> &'static [(&'static str, Remove)] {
    match (home(kind), kind) {
        (Home::Redis | Home::IndependentRedis, _) => {
            &[("deleted", delete), ("flushed", flush), ("evicted", evict)]
        }
        (Home::Database, LockKind::MysqlTable) => &[("row deleted", delete_rows)],
        (Home::ZooKeeper, _) => &[("node deleted", delete_nodes)],
        // Of what is a session's own nothing can be removed but the session.
        (Home::Database | Home::Process, _) => &[],
    }
}

fn servers_of(kind: LockKind) -> &'static [Redis] {
    match home(kind) {
        Home::IndependentRedis => Servers::shared().independent_redis(),
        _ => std::slice::from_ref(Servers::shared().redis()),
    }
}

fn delete(kind: LockKind, names: &[String]) {
    let script = "for _, key in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', key) end";
    for server in servers_of(kind) {
        for name in names {
            server.command(&["EVAL", script, "0", &format!("*{name}*")]).expect("an answer");
        }
    }
}

fn flush(kind: LockKind, _names: &[String]) {
    for server in servers_of(kind) {
        server.command(&["FLUSHALL"]).expect("an answer");
    }
}

/// The server needs memory, and keys go that nobody has removed.
fn evict(kind: LockKind, _names: &[String]) {
    for server in servers_of(kind) {
        let set = |what, to| server.command(&["CONFIG", "SET", what, to]).expect("an answer");
        set("maxmemory-policy", "allkeys-random");
        set("maxmemory", "1");
        let keys = || server.command(&["DBSIZE"]).expect("an answer");
        eventually("all keys are evicted", || keys() == "0");
        set("maxmemory", "0");
    }
}

/// Every text that is written into the statement is a name of a test's own.
fn delete_rows(kind: LockKind, names: &[String]) {
    let url = Servers::shared().addresses(kind).mysql.expect("it lives there");
    let sql = format!("DELETE FROM lock_holders WHERE name IN ('{}')", names.join("', '"));
    let gone = runtime().block_on(async {
        let mut connection = MySqlConnection::connect(&url).await.expect("a database");
        let deleted = sqlx::raw_sql(AssertSqlSafe(sql).into_sql_str()).execute(&mut connection);
        deleted.await.expect("an answer").rows_affected()
    });
    assert_eq!(gone, names.len() as u64, "a row for each lock");
}

fn delete_nodes(_kind: LockKind, names: &[String]) {
    runtime().block_on(async {
        let at = Servers::shared().zookeeper().connect_string();
        let client = Client::connect(at).await.expect("a session");
        for name in names {
            let lock = format!("/distlock/{name}");
            let children = client.list_children(&lock).await.expect("a lock");
            assert_eq!(children.len(), 1, "one node for {name}");
            client.delete(&format!("{lock}/{}", children[0]), None).await.expect("it is there");
        }
    });
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

//! How locks go behind their holders' backs.

use std::collections::BTreeSet;

use conformance::{Home, Servers, eventually, home};
use distlock::LockKind;
use futures_util::TryStreamExt;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, SqlSafeStr};
use testbed::Redis;
use tokio::runtime::{Builder, Runtime};
use zookeeper_client::Client;

/// What removes the locks of a kind that have these names.
pub(crate) type Remove = fn(LockKind, &[String]);

/// All ways in which locks of that kind go while their servers run and their holders live. The
/// first of them concerns no other names than these.
pub(crate) fn removals(kind: LockKind) -> &'static [(&'static str, Remove)] {
    match (home(kind), kind) {
        (Home::Redis | Home::IndependentRedis, _) => {
            &[("deleted", delete), ("flushed", flush), ("evicted", evict)]
        }
        (Home::Database, LockKind::MysqlTable) => &[("row deleted", delete_rows)],
        (Home::Database, LockKind::MysqlNamed) => &[("session ended", kill_sessions)],
        (Home::Etcd, _) => &[("key deleted", delete_keys), ("lease revoked", revoke_leases)],
        (Home::Nats, _) => &[("entry deleted", delete_entries)],
        (Home::ZooKeeper, _) => &[("session ended", end_sessions), ("node deleted", delete_nodes)],
        // Nothing of a transaction can be taken away but all of it.
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

/// The server needs memory, and evicts keys that were never removed.
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

/// By the name that the server knows each lock by.
fn kill_sessions(_kind: LockKind, names: &[String]) {
    for name in names {
        let hash = format!("SHA2(CONCAT(CAST(DATABASE() AS BINARY), '/', '{name}'), 256)");
        let holder = format!("IS_USED_LOCK(CONCAT('lock:', LEFT({hash}, 59)))");
        runtime().block_on(async {
            let mut database = database().await;
            let id = format!("SELECT CAST({holder} AS SIGNED)");
            let id = sqlx::query_scalar(AssertSqlSafe(id).into_sql_str());
            let id: i64 = id.fetch_one(&mut database).await.expect("a session holds it");
            let kill = sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")).into_sql_str());
            kill.execute(&mut database).await.expect("an answer");
        });
    }
}

fn delete_rows(_kind: LockKind, names: &[String]) {
    let sql = format!("DELETE FROM lock_holders WHERE name IN ('{}')", names.join("', '"));
    let gone = runtime().block_on(async {
        let delete = sqlx::raw_sql(AssertSqlSafe(sql).into_sql_str());
        delete.execute(&mut database().await).await.expect("an answer").rows_affected()
    });
    assert_eq!(gone, names.len() as u64, "a row for each lock");
}

/// Every text that is written into a statement is a name of a test's own.
async fn database() -> MySqlConnection {
    let url = Servers::shared().addresses(LockKind::MysqlTable).mysql.expect("it lives there");
    MySqlConnection::connect(&url).await.expect("a database")
}

fn delete_nodes(_kind: LockKind, names: &[String]) {
    runtime().block_on(async {
        let client = client().await;
        for name in names {
            client.delete(&node(&client, name).await, None).await.expect("it is there");
        }
    });
}

/// Each session once: it may hold several of the locks.
fn end_sessions(_kind: LockKind, names: &[String]) {
    let sessions: BTreeSet<i64> = runtime().block_on(async {
        let (client, mut sessions) = (client().await, BTreeSet::new());
        for name in names {
            let stat = client.check_stat(&node(&client, name).await).await.expect("an answer");
            sessions.insert(stat.expect("it is there").ephemeral_owner);
        }
        sessions
    });
    for session in sessions {
        Servers::shared().zookeeper().end_session(session).expect("it is ended");
    }
}

fn delete_keys(_kind: LockKind, names: &[String]) {
    for name in names {
        let deleted = Servers::shared().etcd().etcdctl(&["del", "--prefix", &format!("{name}/")]);
        assert_eq!(deleted.expect("an answer"), "1\n", "one key for {name}");
    }
}

/// The last part of the key is the id of its lease.
fn revoke_leases(_kind: LockKind, names: &[String]) {
    for name in names {
        let etcd = Servers::shared().etcd();
        let keys = etcd.etcdctl(&["get", "--keys-only", "--prefix", &format!("{name}/")]);
        let keys = keys.expect("an answer");
        let (_, lease) = keys.trim().rsplit_once('/').expect("it is there");
        etcd.etcdctl(&["lease", "revoke", lease]).expect("it is ended");
    }
}

/// In the buckets of all TTLs.
fn delete_entries(_kind: LockKind, names: &[String]) {
    let url = Servers::shared().nats().url();
    runtime().block_on(async {
        let client = async_nats::connect(url).await.expect("a connection");
        let jetstream = async_nats::jetstream::new(client);
        let buckets: Vec<String> = jetstream.stream_names().try_collect().await.expect("a list");
        let mut gone = 0;
        for bucket in buckets.iter().filter_map(|stream| stream.strip_prefix("KV_")) {
            let bucket = jetstream.get_key_value(bucket).await.expect("it is there");
            for key in names.iter().map(|name| name.replace(':', "=3A")) {
                if bucket.get(key.as_str()).await.expect("an answer").is_some() {
                    bucket.delete(key).await.expect("an answer");
                    gone += 1;
                }
            }
        }
        assert_eq!(gone, names.len(), "an entry for each lock");
    });
}

async fn client() -> Client {
    Client::connect(Servers::shared().zookeeper().connect_string()).await.expect("a session")
}

/// The only node of the lock.
async fn node(client: &Client, name: &str) -> String {
    let lock = format!("/distlock/{name}");
    let children = client.list_children(&lock).await.expect("a lock");
    assert_eq!(children.len(), 1, "one node for {name}");
    format!("{lock}/{}", children[0])
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

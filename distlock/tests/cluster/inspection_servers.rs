//! Locks seen from outside where they are on several Redis servers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::cluster::{Nodes, shared};
use crate::support::{at_once, connect, connect_with, eventually, fresh_name};
use distlock::{LockError, LockKind, LockName, LockState, Locks, Redlock};
use redis::aio::ConnectionLike;
use redis::{AsyncCommands, RedisResult};
use testbed::{Action, Bed, Command, Direction, Proxy, RedisOptions, Times};
use tokio::time::timeout;

async fn try_names(locks: &Locks, prefix: &str, limit: usize) -> Result<Vec<String>, LockError> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list(prefix, cursor, limit).await?;
        names.extend(page.locks.into_iter().map(|lock| lock.name));
        cursor = page.next;
        if cursor.is_none() {
            names.sort();
            return Ok(names);
        }
    }
}

async fn names(locks: &Locks, prefix: &str, limit: usize) -> Vec<String> {
    try_names(locks, prefix, limit).await.expect("a list")
}

fn name(text: &str) -> LockName {
    LockName::new(text).expect("a good name")
}

async fn assert_held(locks: &Locks, name: &LockName) {
    let seen = locks.inspect(name).await.expect("an answer");
    assert!(matches!(seen.state, LockState::Held(_)), "{seen:?}");
    assert_eq!(names(locks, name.as_str(), 10).await, [name.as_str()], "{}", seen.kind);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_covers_every_master_of_a_cluster() {
    let nodes = shared();
    let prefix = fresh_name();
    for kind in [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite, LockKind::LuaRelease] {
        let locks = nodes.locks(kind).await;
        let mut guards = Vec::new();
        let mut wanted = Vec::new();
        for number in 0..30 {
            // Some with a tag of their own.
            let text = match number % 2 {
                0 => format!("{prefix}:{kind}:{number}"),
                _ => format!("{prefix}:{kind}:{{{number}}}"),
            };
            guards.push(locks.lock(&name(&text), &at_once()).await.expect("the lock"));
            wanted.push(text);
        }
        wanted.sort();
        assert_eq!(names(&locks, &format!("{prefix}:{kind}:"), 100).await, wanted, "{kind}");
        for guard in guards {
            guard.release().await.expect("a release");
        }
        assert!(names(&locks, &format!("{prefix}:{kind}:"), 100).await.is_empty(), "{kind}");
    }
}

/// Stores a lock of that kind by commands of one key, which also a slot that moves can carry out.
async fn store(
    connection: &mut impl ConnectionLike,
    kind: LockKind,
    name: &LockName,
) -> RedisResult<()> {
    let key = match kind {
        LockKind::Fair => format!("distlock_fair:{{{name}}}"),
        LockKind::ReadWrite => format!("distlock_rw_write:{{{name}}}"),
        _ => name.to_string(),
    };
    let set = match kind {
        LockKind::LuaRelease => redis::cmd("SET").arg(&key).arg("owner").to_owned(),
        LockKind::Redisson => redis::cmd("HSET").arg(&key).arg("owner").arg(1).to_owned(),
        _ => redis::cmd("ZADD").arg(&key).arg(1).arg("request:owner").to_owned(),
    };
    set.exec_async(connection).await?;
    redis::cmd("PEXPIRE").arg(&key).arg(60_000).exec_async(connection).await
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_a_slot_that_moves_are_read_where_they_are() {
    let nodes = Nodes::start(0);
    for kind in [LockKind::LuaRelease, LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let (locks, name) = (nodes.locks(kind).await, nodes.name_at(0));
        let seen = locks.inspect(&name).await.expect("an answer");
        assert_eq!(seen.state, LockState::Free, "it knows where the slot is");
        let slot = nodes.act(|cluster| cluster.slot(name.as_str()));
        nodes.act(|cluster| cluster.begin_move(slot, 0, 1));
        let mut connection = nodes.process().await.connection();
        store(&mut connection, kind, &name).await.expect("a key at the new node");
        assert_held(&locks, &name).await;
        nodes.act(|cluster| cluster.finish_move(slot, 0, 1));
        assert_held(&locks, &name).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_shows_each_lock_with_its_own_holder_while_a_slot_moves() {
    let nodes = Nodes::start(0);
    for kind in [LockKind::Redisson, LockKind::Fair, LockKind::ReadWrite] {
        let (locks, moved) = (nodes.locks(kind).await, nodes.name_at(0));
        let mut guards = Vec::new();
        for number in 0..150 {
            let beside = name(&format!("{moved}:{{{number}}}"));
            let guard = locks.lock(&beside, &at_once()).await.expect("the lock");
            guards.push((beside, guard));
        }
        let slot = nodes.act(|cluster| cluster.slot(moved.as_str()));
        nodes.act(|cluster| cluster.begin_move(slot, 0, 1));
        store(&mut nodes.process().await.connection(), kind, &moved).await.expect("a key");
        let page = locks.list(moved.as_str(), None, 1000).await.expect("a list");
        let mut pages = vec![page];
        while let Some(cursor) = pages.last_mut().and_then(|page| page.next.take()) {
            pages.push(locks.list(moved.as_str(), Some(cursor), 1000).await.expect("a list"));
        }
        let seen: HashMap<_, _> = pages
            .into_iter()
            .flat_map(|page| page.locks)
            .map(|lock| (lock.name, lock.state))
            .collect();
        assert!(
            matches!(seen[moved.as_str()], LockState::Held(_)),
            "{kind}: {:?}",
            seen[moved.as_str()]
        );
        for (name, guard) in guards {
            let holders = seen[name.as_str()].holders();
            let ids: Vec<_> = holders.iter().map(|holder| holder.id.as_str()).collect();
            assert_eq!(ids, [guard.owner().as_str()], "{kind}: {name}");
            guard.release().await.expect("a release");
        }
        nodes.act(|cluster| cluster.finish_move(slot, 0, 1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_after_a_failover_asks_the_new_master() {
    let nodes = Nodes::start(1);
    let (locks, names_of) = (nodes.locks(LockKind::LuaRelease).await, nodes.names());
    let seen = locks.inspect(&names_of[1]).await.expect("an answer");
    assert_eq!(seen.state, LockState::Free, "it knows the masters");
    let others = nodes.locks(LockKind::LuaRelease).await;
    nodes.act(|cluster| cluster.masters()[0].kill());
    let prefix = fresh_name();
    let tagged = |number: usize| name(&format!("{prefix}{{{}}}", names_of[number]));
    let mut guards = Vec::new();
    for number in [0, 1, 2] {
        eventually("its master grants it", async || {
            let granted = others.lock(&tagged(number), &at_once()).await;
            granted.map(|guard| guards.push(guard)).is_ok()
        })
        .await;
    }
    let mut wanted = [0, 1, 2].map(|number| tagged(number).to_string());
    wanted.sort();
    // A node that has not heard of the election yet may be asked first.
    eventually("the list is whole", async || {
        try_names(&locks, prefix.as_str(), 10).await.is_ok_and(|names| names == wanted)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_redlock_does_not_ask_a_silent_server_for_every_name() {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(5, RedisOptions::default()).expect("Redis is installed");
    let [first, last] = [0, 4].map(|at| Proxy::before(servers[at].addr()).expect("a proxy"));
    let mut connections = Vec::new();
    for server in &servers {
        let url = first.instead_of(servers[0].addr(), server.url());
        let url = last.instead_of(servers[4].addr(), &url);
        connections.push(connect_with(&url, Duration::from_secs(5)).await);
    }
    let locks = Locks::new(Arc::new(Redlock::new(&connections).expect("five servers")));
    let prefix = fresh_name();
    let wanted: Vec<_> = (10..40).map(|number| format!("{prefix}:{number}")).collect();
    for server in &servers {
        let mut connection = connect(server.url()).await.connection();
        for key in &wanted {
            connection.set_ex::<_, _, ()>(key, "owner", 100).await.expect("a lock");
        }
    }
    let reads = last.watch(Command::redis("").containing(prefix.as_str()));
    assert_eq!(names(&locks, prefix.as_str(), 5).await, wanted);
    assert!(reads.matched() >= 30, "all five were asked: {}", reads.matched());

    let reads = last.watch(Command::redis("").containing(prefix.as_str()));
    last.set_swallowing(Direction::ToClient, true);
    assert_eq!(names(&locks, prefix.as_str(), 5).await, wanted);
    assert!(reads.matched() <= 10, "a page of 5, not {} reads", reads.matched());

    // The first one falls silent as well, when its page has been read.
    let reads = Command::redis("EVALSHA").containing(prefix.as_str());
    let silent = first.arm(reads, Action::LoseAnswer, Times::Nth(2));
    let listed = timeout(Duration::from_mins(1), names(&locks, prefix.as_str(), 5)).await;
    let mut listed = listed.expect("the list ends");
    listed.dedup();
    assert_eq!(listed, wanted);
    assert_eq!(silent.fired(), 1);
}

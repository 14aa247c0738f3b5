//! Shared by the tests of `zookeeper`: a server, sessions as a service makes them, the server's own
//! view, and a proxy on which faults are injected.

// Each test program compiles this file and uses a part of it.
#![allow(dead_code, reason = "not every test program uses all of it")]

#[path = "../dropped.rs"]
pub(crate) mod dropped;
pub(crate) mod line;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use distlock::{
    Backends, Guard, Lease, LockError, LockKind, LockName, LockOptions, Locks, Release,
    ZooKeeperServer, locker,
};
use testbed::{Bed, ZooKeeper, ZooKeeperOptions};
use uuid::Uuid;
use zookeeper_client::{Acls, Client, CreateMode, Error};

/// A session that does not end in a test.
pub(crate) const LONG: Duration = Duration::from_secs(30);
/// A session whose end can be waited for. A server or a process that stands still for a moment does
/// not end it.
pub(crate) const SHORT: Duration = Duration::from_secs(4);

/// A server of one's own. The bed goes last.
pub(crate) struct OwnServer {
    pub(crate) zookeeper: ZooKeeper,
    _bed: Bed,
}

impl OwnServer {
    pub(crate) fn start(container_check_ms: u32) -> Self {
        let bed = Bed::start().expect("a private bed");
        let all_words = "4lw.commands.whitelist=*".to_owned();
        let options =
            ZooKeeperOptions { container_check_ms, extra: vec![all_words], ..Default::default() };
        let zookeeper = bed.zookeeper(options).expect("ZooKeeper is installed");
        Self { zookeeper, _bed: bed }
    }

    pub(crate) fn act(&self, act: impl FnOnce(&ZooKeeper) -> testbed::Result<()>) {
        tokio::task::block_in_place(|| act(&self.zookeeper)).expect("the testbed can do that");
    }
}

/// The server of this test program; the bed takes it down when the process ends.
pub(crate) fn server() -> &'static ZooKeeper {
    static SERVER: OnceLock<OwnServer> = OnceLock::new();
    &SERVER.get_or_init(|| OwnServer::start(60_000)).zookeeper
}

/// The locks of what is another process as far as the server can see.
pub(crate) async fn locks_at(connect_string: &str, session: Duration) -> Locks {
    let server = ZooKeeperServer::connect(connect_string, session).await.expect("a session");
    let backends = Backends { zookeeper: Some(server), ..Backends::default() };
    Locks::new(locker(LockKind::Zookeeper, &backends).expect("a locker"))
}

pub(crate) async fn locks() -> Locks {
    locks_at(server().connect_string(), LONG).await
}

pub(crate) fn fresh_name() -> LockName {
    LockName::new(format!("lock:test:{}", Uuid::new_v4())).expect("a name")
}

/// The znode of such a name.
pub(crate) fn znode(name: &LockName) -> String {
    format!("/distlock/{name}")
}

pub(crate) fn options(wait: Duration) -> LockOptions {
    LockOptions::new(wait, Lease::Renewed(LONG))
}

/// Fails at once if the lock is held.
pub(crate) fn at_once() -> LockOptions {
    options(Duration::ZERO)
}

/// Waits for long.
pub(crate) fn patient() -> LockOptions {
    options(Duration::from_secs(30))
}

/// Takes a lock that is free, though a busy machine may be slow. The node of an attempt without an
/// answer may stand for a moment: the next one waits for its removal.
pub(crate) async fn lock(locks: &Locks, name: &LockName) -> Guard {
    let (mut left, mut options) = (5, at_once());
    loop {
        match locks.lock(name, &options).await {
            Err(LockError::Backend(reason)) if left > 0 && reason.ends_with("in time") => {
                locks.flush().await;
                (left, options) = (left - 1, patient());
            }
            outcome => return outcome.expect("the lock"),
        }
    }
}

pub(crate) async fn release(guard: Guard) {
    assert_eq!(guard.release().await.expect("an answer"), Release::Released);
}

/// Another owner is told that the lock is held, though a busy machine may be slow to say so.
pub(crate) async fn assert_busy(locks: &Locks, name: &LockName) {
    let mut left = 5;
    let refused = loop {
        match locks.lock(name, &at_once()).await {
            Err(LockError::Backend(reason)) if left > 0 && reason.ends_with("in time") => {
                // What is left of this attempt is no other holder.
                locks.flush().await;
                left -= 1;
            }
            outcome => break outcome,
        }
    };
    assert!(matches!(refused, Err(LockError::TimedOut { .. })), "{:?}", refused.err());
    locks.flush().await;
}

/// Waits in the background until it has the lock.
pub(crate) fn wait_for(
    locks: &Locks,
    name: &LockName,
) -> tokio::task::JoinHandle<Result<Guard, LockError>> {
    let (locks, name) = (locks.clone(), name.clone());
    tokio::spawn(async move { locks.lock(&name, &patient()).await })
}

/// What the server knows.
#[derive(Clone)]
pub(crate) struct Look(pub(crate) Client);

impl Look {
    pub(crate) async fn at(server: &ZooKeeper) -> Self {
        let connector = Client::connector().with_session_timeout(LONG);
        Self(connector.connect(server.connect_string()).await.expect("a session"))
    }

    pub(crate) async fn here() -> Self {
        Self::at(server()).await
    }

    /// The contenders, first come first.
    pub(crate) async fn queue(&self, name: &LockName) -> Vec<String> {
        let mut children = match self.0.list_children(&znode(name)).await {
            Ok(children) => children,
            Err(Error::NoNode) => vec![],
            Err(error) => panic!("{error}"),
        };
        children.sort_by_key(|child| child.rsplit_once('-').map(|(_, place)| place.to_owned()));
        children
    }

    pub(crate) async fn await_queue(&self, name: &LockName, length: usize) {
        let what = format!("{length} in the queue");
        eventually(&what, async || self.queue(name).await.len() == length).await;
    }

    /// The session of the first in the queue.
    pub(crate) async fn session_of(&self, name: &LockName) -> i64 {
        let first = self.queue(name).await.swap_remove(0);
        let stat = self.0.check_stat(&format!("{}/{first}", znode(name))).await;
        stat.expect("an answer").expect("it is there").ephemeral_owner
    }

    pub(crate) async fn exists(&self, path: &str) -> bool {
        self.0.check_stat(path).await.expect("an answer").is_some()
    }

    pub(crate) async fn create(&self, path: &str, mode: CreateMode) -> String {
        let options = mode.with_acls(Acls::anyone_all());
        let (_, sequence) = self.0.create(path, b"", &options).await.expect("a node");
        match mode {
            CreateMode::EphemeralSequential => format!("{path}{sequence}"),
            _ => path.to_owned(),
        }
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.0.delete(path, None).await.expect("it is there");
    }

    /// Removes the first contender.
    pub(crate) async fn remove_first(&self, name: &LockName) {
        let first = self.queue(name).await.remove(0);
        self.delete(&format!("{}/{first}", znode(name))).await;
    }
}

/// Each watched node below that path, and how many sessions watch it.
pub(crate) fn watches_below(server: &ZooKeeper, path: &str) -> Vec<(String, usize)> {
    let answer = tokio::task::block_in_place(|| server.four_letter_word("wchp"));
    let mut watches: Vec<(String, usize)> = Vec::new();
    for line in answer.expect("an answer").lines() {
        match watches.last_mut() {
            _ if line.starts_with('/') => watches.push((line.to_owned(), 0)),
            Some((_, count)) if line.starts_with('\t') => *count += 1,
            _ => {}
        }
    }
    watches.retain(|(watched, _)| watched.starts_with(path));
    watches.sort_by_key(|(watched, _)| watched.rsplit_once('-').map(|(_, place)| place.to_owned()));
    watches
}

/// Waits until this number of contenders for the lock watch their predecessors.
pub(crate) async fn await_watches(server: &ZooKeeper, name: &LockName, count: usize) {
    let what = format!("{count} watches");
    eventually(&what, async || watches_below(server, &znode(name)).len() == count).await;
}

/// Waits until the condition holds; panics with `what` after 30 s.
pub(crate) async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "not within 30 s: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

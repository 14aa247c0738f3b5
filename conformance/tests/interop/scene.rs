//! Processes that share locks: of this library, of the JVM, and of the clients.

use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use conformance::protocol::{LockRequest, Setup};
use conformance::variant::Variant;
use conformance::{Addresses, Contender, Peer, Servers, ZOOKEEPER_SYNC};
use distlock::LockKind;
use testbed::{Redis, ZooKeeper, ZooKeeperOptions};
use tokio::runtime::Builder;
use uuid::Uuid;

use crate::nodes;

/// A lease that is renewed, and the time-out of a session.
pub(crate) const RENEWED: Duration = Duration::from_secs(3);
/// A wait that ends only if a waiter starves.
pub(crate) const LONG_WAIT: Duration = Duration::from_mins(1);
/// What may be late on a busy machine.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

/// What the checks of one peer share.
pub(crate) struct Scene {
    pub(crate) peer: Peer,
    pub(crate) ours: Side,
    pub(crate) theirs: Side,
}

/// One of the two.
pub(crate) struct Side {
    pub(crate) name: &'static str,
    pub(crate) contender: Contender,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

impl Scene {
    /// The scene of the peer, whose processes start when they are first needed.
    pub(crate) fn of(peer: Peer) -> &'static Self {
        static REDISSON_4: LazyLock<Scene> = LazyLock::new(|| Scene::start(Peer::Redisson4));
        static REDISSON_3: LazyLock<Scene> = LazyLock::new(|| Scene::start(Peer::Redisson3));
        static CURATOR: LazyLock<Scene> = LazyLock::new(|| Scene::start(Peer::Curator));
        static PYTHON: LazyLock<Scene> = LazyLock::new(|| Scene::start(Peer::Python));
        static GO: LazyLock<Scene> = LazyLock::new(|| Scene::start(Peer::Go));
        static NODE: LazyLock<Scene> = LazyLock::new(|| Scene::start(Peer::Node));
        match peer {
            Peer::Redisson4 => &REDISSON_4,
            Peer::Redisson3 => &REDISSON_3,
            Peer::Curator => &CURATOR,
            Peer::Python => &PYTHON,
            Peer::Go => &GO,
            Peer::Node => &NODE,
        }
    }

    fn start(peer: Peer) -> Self {
        let (ours, theirs) = (another_of_ours(kind(peer)), another_of(peer, kind(peer).as_str()));
        Self {
            peer,
            ours: Side { name: "distlock", contender: ours },
            theirs: Side { name: peer.name(), contender: theirs },
        }
    }

    /// Each as the first, with the other one.
    pub(crate) fn both_ways(&self) -> [(&Side, &Side); 2] {
        [(&self.ours, &self.theirs), (&self.theirs, &self.ours)]
    }

    /// More processes like the two.
    pub(crate) fn more(&self) -> [Side; 2] {
        let Self { ours, theirs, .. } = Self::start(self.peer);
        [ours, theirs]
    }

    pub(crate) fn is_curator(&self) -> bool {
        self.peer == Peer::Curator
    }

    /// A lock that no other check uses.
    pub(crate) fn fresh_name(&self) -> String {
        let folder = if self.is_curator() { "/interop/" } else { "interop:" };
        format!("{folder}{}", Uuid::new_v4())
    }

    /// Asks for a lock with a name of its own.
    pub(crate) fn want_fresh(&self) -> LockRequest {
        want(&self.fresh_name())
    }

    /// How many wait for that lock, as the server sees it.
    pub(crate) fn waiters(&self, name: &str) -> usize {
        if self.is_curator() {
            return nodes::children(name).len().saturating_sub(1);
        }
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let counted = redis_says(&["PUBSUB", "NUMSUB", &channel]);
        counted.lines().last().and_then(|count| count.trim().parse().ok()).expect("a number")
    }
}

/// Asks for that lock without waiting, for as long as it is renewed.
pub(crate) fn want(name: &str) -> LockRequest {
    LockRequest::new(name, RENEWED)
}

/// The kind that speaks the peer's language.
pub(crate) fn kind(peer: Peer) -> LockKind {
    if peer == Peer::Curator { LockKind::Zookeeper } else { LockKind::Redisson }
}

/// A process of this library with locks of that kind.
pub(crate) fn another_of_ours(kind: LockKind) -> Contender {
    Contender::start_as(Servers::shared(), &setup(kind.as_str()))
}

/// Starts a contender of this library whose locks are several of one Redis: their names, with
/// commas.
pub(crate) fn another_multi_of_ours() -> Contender {
    let multi = Setup { variant: Variant::OfNames, ..setup(LockKind::Multi.as_str()) };
    Contender::start_as(Servers::shared(), &multi)
}

/// A process of the peer with locks of that kind, which may be one that this library has not.
pub(crate) fn another_of(peer: Peer, kind: &str) -> Contender {
    Contender::start_peer(Servers::shared(), peer, &setup(kind), RENEWED)
}

/// Why that lock is not to be had.
pub(crate) fn refusal(contender: &Contender, want: &LockRequest) -> String {
    contender.lock(want).expect_err("it is not to be had").code
}

pub(crate) fn setup(kind: &str) -> Setup {
    let mut addresses = Addresses::default();
    if kind.starts_with(LockKind::Zookeeper.as_str()) {
        addresses.zookeeper = Some(zookeeper().connect_string().to_owned());
        addresses.zookeeper_session_ms = u64::try_from(RENEWED.as_millis()).ok();
    } else {
        addresses.redis = Some(Servers::shared().redis().url().to_owned());
    }
    let (kind, variant) = (kind.to_owned(), Variant::Usual);
    Setup { kind, variant, addresses, local_queue: true, warm_up: true, token_source: None }
}

/// The Redis of all checks.
pub(crate) fn redis() -> &'static Redis {
    Servers::shared().redis()
}

/// What it answers.
pub(crate) fn redis_says(words: &[&str]) -> String {
    redis().command(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// The `ZooKeeper` of all checks: it grants the sessions that they ask for.
pub(crate) fn zookeeper() -> &'static ZooKeeper {
    static ZOOKEEPER: LazyLock<ZooKeeper> = LazyLock::new(|| {
        let options = ZooKeeperOptions {
            tick_time_ms: 200,
            extra: vec![ZOOKEEPER_SYNC.into()],
            ..ZooKeeperOptions::default()
        };
        Servers::shared().bed().zookeeper(options).expect("a ZooKeeper")
    });
    &ZOOKEEPER
}

/// Runs a check of this library's own calls.
pub(crate) fn in_a_runtime(check: impl AsyncFnOnce()) {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("threads").block_on(check());
}

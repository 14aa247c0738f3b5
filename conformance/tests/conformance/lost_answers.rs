//! An answer that is lost after the server has acted counts once.
//!
//! The connection is cut instead of telling the first answer, then the second, and so on until an
//! acquisition, a re-entry or a release has no more of them.

use std::time::Duration;

use conformance::{Home, home, warm_up};
use distlock::{Guard, LockError, LockKind, LockName, LockOptions, Locks, Owner, Release};
use testbed::{Action, Command, Proxy, Rule, Times};
use tokio::spawn;

use crate::arena::{Applicability, Arena, Check, Subject, assert_free_for, fresh_name};

pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "an_acquire_whose_answer_is_lost_counts_once",
        asked: of_idempotent,
        run: |arena| arena.run(async || acquires(arena).await),
    },
    Check {
        name: "a_re_entry_whose_answer_is_lost_counts_once",
        asked: |subject| match of_idempotent(subject) {
            Applicability::Yes => {
                Applicability::of_those_that(subject.promise.reentrant.is_yes(), "is not reentrant")
            }
            Applicability::No(why) => Applicability::No(why),
        },
        run: |arena| arena.run(async || entries(arena).await),
    },
    Check {
        name: "a_release_whose_answer_is_lost_frees_the_lock_and_no_other",
        asked: of_idempotent,
        run: |arena| arena.run(async || releases(arena).await),
    },
];

/// More answers than any of these takes.
const MANY: u64 = 30;
/// A database takes a moment to see that a connection has ended.
const WAIT: Duration = Duration::from_secs(5);

fn of_idempotent(subject: &Subject) -> Applicability {
    if !subject.promise.is_on_a_server() {
        return Applicability::No("asks no server");
    }
    if matches!(home(subject.kind), Home::ZooKeeper | Home::Etcd | Home::Nats) {
        return Applicability::No("speaks what the proxy does not; has tests of its own for this");
    }
    Applicability::of_those_that(subject.promise.idempotent.is_yes(), "does not promise that")
}

/// Whether a release that is sent again is told what became of the first one.
fn remembers_releases(kind: LockKind) -> bool {
    use LockKind::{Fair, Multi, MysqlTable, ReadWrite, Redisson};
    matches!(kind, Redisson | Fair | ReadWrite | Multi | MysqlTable)
}

/// Locks by ways on which answers are lost, and others by the direct one.
struct LossyServers {
    ways: Vec<Proxy>,
    locks: Locks,
    others: Locks,
}

impl LossyServers {
    async fn of(arena: &Arena) -> Self {
        let (ways, addresses) = arena.ways();
        let backends = addresses.connect().await.expect("addresses of servers that run");
        let locks = Locks::new(arena.locker(&backends).expect("a mechanism"));
        warm_up(&locks).await.expect("servers that answer");
        Self { ways, locks, others: arena.locks().await }
    }

    /// The answer of that number is lost, by each of the ways whose language is understood.
    fn lose(&self, number: u64) -> LostSignal {
        let lose = |way: &Proxy| {
            let commands = [Command::redis(""), Command::sql("")];
            commands.map(|command| way.arm(command, Action::CutAnswer, Times::Nth(number)))
        };
        LostSignal(self.ways.iter().flat_map(lose).collect())
    }

    async fn assert_free(&self, name: &LockName, what: &str) {
        self.locks.flush().await;
        assert_free_for(&self.others, name, what).await;
        warm_up(&self.locks).await.expect("the ways are as good as ever");
        assert_free_for(&self.locks, name, what).await;
    }
}

struct LostSignal(Vec<Rule>);

impl LostSignal {
    /// No more are lost; whether one was.
    fn end(self) -> bool {
        self.0.iter().for_each(Rule::disarm);
        self.0.iter().any(|rule| rule.fired() > 0)
    }
}

/// Asks again and again until no answer is lost any more.
async fn each_answer(what: &str, mut ask: impl AsyncFnMut(u64) -> bool) {
    for number in 1..=MANY {
        if !ask(number).await {
            assert!(number > 1, "{what} has no answer that could be lost");
            return;
        }
    }
    panic!("{what} has more than {MANY} answers");
}

async fn assert_busy(locks: &Locks, name: &LockName, options: &LockOptions, what: &str) {
    let options = LockOptions { wait: Duration::ZERO, ..*options };
    let outcome = locks.lock(name, &options).await;
    assert!(matches!(outcome, Err(LockError::TimedOut { .. })), "{what}: {outcome:?}");
}

async fn assert_released(guard: Guard, what: &str) {
    assert_eq!(guard.release().await.expect("a release"), Release::Released, "{what}");
}

async fn acquires(arena: &Arena) {
    let (lossy, options) = (LossyServers::of(arena).await, arena.options(WAIT));
    each_answer("an acquire", async |number| {
        let (name, what) = (fresh_name(), format!("answer {number} to an acquire"));
        let loss = lossy.lose(number);
        let outcome = lossy.locks.lock(&name, &options).await;
        let is_lost = loss.end();
        match outcome {
            Ok(guard) => {
                assert_busy(&lossy.others, &name, &options, &what).await;
                assert_released(guard, &what).await;
            }
            Err(LockError::Backend(_) | LockError::NoConnection(_)) if is_lost => {}
            Err(error) => panic!("{what}: {error}"),
        }
        lossy.assert_free(&name, &what).await;
        is_lost
    })
    .await;
}

async fn entries(arena: &Arena) {
    let (lossy, options) = (LossyServers::of(arena).await, arena.options(WAIT));
    each_answer("a re-entry", async |number| {
        let (name, what) = (fresh_name(), format!("answer {number} to a re-entry"));
        let outer = lossy.locks.lock(&name, &options).await.expect("it is free");
        let owner: Owner = outer.owner().clone();
        let loss = lossy.lose(number);
        let inner = lossy.locks.lock_as(owner, &name, &options).await;
        let is_lost = loss.end();
        match inner {
            Ok(inner) => assert_released(inner, &what).await,
            Err(LockError::Backend(_) | LockError::NoConnection(_)) if is_lost => {}
            Err(error) => panic!("{what}: {error}"),
        }
        lossy.locks.flush().await;
        assert_busy(&lossy.others, &name, &options, &what).await;
        assert_released(outer, &what).await;
        lossy.assert_free(&name, &what).await;
        is_lost
    })
    .await;
}

async fn releases(arena: &Arena) {
    let (lossy, options) = (LossyServers::of(arena).await, arena.options(WAIT));
    each_answer("a release", async |number| {
        let (name, what) = (fresh_name(), format!("answer {number} to a release"));
        let guard = lossy.locks.lock(&name, &options).await.expect("it is free");
        let next = spawn({
            let (others, name) = (lossy.others.clone(), name.clone());
            async move { others.lock(&name, &options).await }
        });
        let loss = lossy.lose(number);
        let released = guard.release().await;
        let is_lost = loss.end();
        // Sent again, it may find that the first one was carried out, and by whom is forgotten.
        let told = matches!(&released, Ok(Release::Released))
            || (is_lost
                && !remembers_releases(arena.kind)
                && matches!(&released, Ok(Release::Gone | Release::HeldByOther)));
        assert!(told, "{what}: {released:?}");
        let next = next.await.expect("no panic").expect("it was released");
        lossy.locks.flush().await;
        assert!(!next.is_lost());
        warm_up(&lossy.locks).await.expect("the ways are as good as ever");
        assert_busy(&lossy.locks, &name, &options, &what).await;
        assert_released(next, &what).await;
        lossy.assert_free(&name, &what).await;
        is_lost
    })
    .await;
}

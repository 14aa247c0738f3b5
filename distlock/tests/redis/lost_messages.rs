//! Waiters of every kind that is woken by a message, and both sides of `read-write`, when the
//! message is lost, its connection ends, or the server restarts. Each looks within the same bound,
//! and gets messages again afterwards. `redisson_waiting` has more of `redisson`; the semaphores
//! and the latch have their own tests.

use std::time::Instant;

use crate::support::synchronizers::{LOOK, SLACK};
use crate::support::{at_once, connect, eventually, fresh_name, patient};
use distlock::{Backends, Guard, LockKind, LockName, Locks, ReadWrite, Release, WakeKind, locker};
use testbed::{Bed, Command, MessageDrop, Proxy, Redis, RedisOptions};
use tokio::task::{JoinHandle, JoinSet, block_in_place};

/// Servers of `multi`; all other kinds use the first.
const SERVERS: usize = 3;

/// Servers of one's own, each with a way to it that can be broken. The bed goes last.
struct Ways {
    nodes: Vec<(Redis, Proxy)>,
    _bed: Bed,
}

/// The holder and the waiter, in two processes as far as the servers can see.
struct Side {
    who: String,
    holder: Locks,
    waiter: Locks,
}

/// A lock that is held, and whose waiter relies on being told.
struct ContendedLock {
    who: String,
    name: LockName,
    holder: Guard,
    waiter: JoinHandle<(Guard, Instant)>,
}

impl Ways {
    fn start() -> Self {
        block_in_place(|| {
            let bed = Bed::start().expect("a private bed");
            let node = |_| {
                let redis = bed.redis(RedisOptions::default()).expect("Redis is installed");
                let proxy = Proxy::before(redis.addr()).expect("a port");
                (redis, proxy)
            };
            Self { nodes: (0..SERVERS).map(node).collect(), _bed: bed }
        })
    }

    /// Another process.
    async fn process(&self) -> Backends {
        let mut independent_redis = Vec::new();
        for (redis, proxy) in &self.nodes {
            independent_redis.push(connect(&proxy.instead_of(redis.addr(), redis.url())).await);
        }
        let redis = independent_redis.first().cloned();
        Backends { redis, independent_redis, ..Backends::default() }
    }

    /// All waiters that a message wakes, by what the kinds promise.
    async fn sides(&self) -> Vec<Side> {
        let (one, other) = (self.process().await, self.process().await);
        let mut sides = Vec::new();
        let mut add = |who: &str, holder, waiter| {
            let (holder, waiter) = (Locks::new(holder), Locks::new(waiter));
            sides.push(Side { who: who.to_owned(), holder, waiter });
        };
        for kind in LockKind::ALL {
            let (Ok(holder), Ok(waiter)) = (locker(kind, &one), locker(kind, &other)) else {
                continue;
            };
            let promise = holder.guarantees();
            if promise.is_on_a_server() && promise.wake == WakeKind::Message {
                add(kind.as_str(), holder, waiter);
            }
        }
        let both = |process: &Backends| ReadWrite::new(process.redis.as_ref().expect("a server"));
        let (one, other) = (both(&one), both(&other));
        add("a reader behind a writer", one.writer(), other.reader());
        add("a writer behind a reader", one.reader(), other.writer());
        for kind in ["redisson", "fair", "read-write", "multi"] {
            assert!(sides.iter().any(|side| side.who == kind), "{kind} is told by a message");
        }
        sides
    }

    /// A lock of each of them.
    async fn contend(&self, sides: &[Side]) -> Vec<ContendedLock> {
        let mut all = Vec::new();
        for side in sides {
            all.push(ContendedLock::new(self, side).await);
        }
        all
    }

    fn is_subscribed(&self, name: &LockName) -> bool {
        let asked = ["PUBSUB", "CHANNELS", &format!("*{name}*")];
        let on = |redis: &Redis| !redis.command(&asked).expect("an answer").trim().is_empty();
        block_in_place(|| self.nodes.iter().any(|(redis, _)| on(redis)))
    }

    /// Messages that were dropped, and messages that came by.
    fn messages(&self) -> (u64, u64) {
        let counts = self.nodes.iter().map(|(_, proxy)| proxy.counts());
        counts.fold((0, 0), |(dropped, all), counts| {
            (dropped + counts.messages_dropped, all + counts.messages)
        })
    }

    /// Ends all connections for messages, on the way or by the server; how many there were.
    fn end_subscriptions(&self, on_the_way: bool) -> u64 {
        let cut = || self.nodes.iter().map(|(_, proxy)| proxy.counts().cut).sum::<u64>();
        if on_the_way {
            let before = cut();
            self.nodes.iter().for_each(|(_, proxy)| proxy.cut_subscribers());
            return cut() - before;
        }
        let kill = |redis: &Redis| {
            let killed = redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).expect("an answer");
            killed.trim().parse::<u64>().expect("a number")
        };
        block_in_place(|| self.nodes.iter().map(|(redis, _)| kill(redis)).sum())
    }

    /// Later waiters have subscribed again, and a message comes.
    async fn assert_all_are_told_again(&self, sides: &[Side]) {
        for side in sides {
            let (_, before) = self.messages();
            let contended = ContendedLock::new(self, side).await;
            contended.hand_over_in_time("later").await;
            let what = format!("{}: a message comes again", side.who);
            eventually(&what, async || self.messages().1 > before).await;
        }
    }
}

impl ContendedLock {
    async fn new(ways: &Ways, side: &Side) -> Self {
        // From here on the servers know the scripts, and each look of the waiter is one command.
        let other = side.waiter.lock(&fresh_name(), &at_once()).await.expect("the lock");
        other.release().await.expect("a release");
        let name = fresh_name();
        let holder = side.holder.lock(&name, &at_once()).await.expect("the lock");
        let (_, first) = &ways.nodes[0];
        let asked = first.watch(Command::redis("EVALSHA").containing(name.as_str()));
        let waiter = tokio::spawn({
            let (locks, name) = (side.waiter.clone(), name.clone());
            async move {
                let guard = locks.lock(&name, &patient()).await.expect("the lock");
                (guard, Instant::now())
            }
        });
        // Busy; subscribed; busy still, so that it relies on messages from here on.
        let what = format!("{} waits", side.who);
        eventually(&what, async || asked.matched() >= 2 && ways.is_subscribed(&name)).await;
        asked.disarm();
        Self { who: side.who.clone(), name, holder, waiter }
    }

    /// From the release to the next hold.
    async fn hand_over_in_time(self, what: &'static str) {
        let released = Instant::now();
        assert_eq!(self.holder.release().await.expect("a release"), Release::Released);
        let (guard, got) = self.waiter.await.expect("the waiter gets the lock");
        let took = got.saturating_duration_since(released);
        println!("{what}, {}: {took:?}", self.who);
        assert!(took < LOOK + SLACK, "{what}, {}: {took:?}", self.who);
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_message_costs_a_waiter_of_any_kind_at_most_one_poll_interval() {
    let ways = Ways::start();
    for side in ways.sides().await {
        let contended = ContendedLock::new(&ways, &side).await;
        for (_, proxy) in &ways.nodes {
            proxy.drop_messages(contended.name.as_str(), MessageDrop::All);
        }
        let (before, _) = ways.messages();
        contended.hand_over_in_time("without a message").await;
        eventually("a message was lost", async || ways.messages().0 > before).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_that_ends_costs_a_waiter_of_any_kind_at_most_one_poll_interval() {
    let ways = Ways::start();
    let sides = ways.sides().await;
    for what in ["cut", "ended by the server"] {
        let all = ways.contend(&sides).await;
        assert!(ways.end_subscriptions(what == "cut") > 0, "nobody had subscribed");
        // At once, before they have subscribed again.
        let mut hand_overs = JoinSet::new();
        for contended in all {
            hand_overs.spawn(contended.hand_over_in_time(what));
        }
        hand_overs.join_all().await;
        ways.assert_all_are_told_again(&sides).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_of_any_kind_whose_subscription_ended_has_another_soon() {
    let ways = Ways::start();
    let sides = ways.sides().await;
    let all = ways.contend(&sides).await;
    assert!(ways.end_subscriptions(false) > 0, "nobody had subscribed");
    for contended in all {
        let what = format!("{} waits for messages again", contended.who);
        eventually(&what, async || ways.is_subscribed(&contended.name)).await;
        contended.hand_over_in_time("subscribed anew").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarts_costs_its_waiters_of_any_kind_at_most_one_poll_interval() {
    let ways = Ways::start();
    let sides = ways.sides().await;
    let all = ways.contend(&sides).await;
    block_in_place(|| {
        for (redis, _) in &ways.nodes {
            redis.restart().expect("it starts again");
        }
    });
    // It has forgotten all locks, without a message.
    let (back, mut stale) = (Instant::now(), Vec::new());
    for ContendedLock { who, holder, waiter, .. } in all {
        let (guard, got) = waiter.await.expect("the waiter gets the lock");
        let took = got.saturating_duration_since(back);
        println!("restarted, {who}: {took:?}");
        assert!(took < LOOK + SLACK, "{who}: {took:?}");
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
        stale.push(holder);
    }
    drop(stale);
    ways.assert_all_are_told_again(&sides).await;
}

//! The COMMIT of an order, held on its way to the database: its holder has checked its lock for the
//! last time. Whatever costs it the lock now comes too late to stop it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use loadtest_judge::audit::{FENCE_WRITE, STOCK_WRITE};
use loadtest_measure::error::Result;
use testbed::{Action, Command, Proxy, Rule, Times};
use tokio::time::{Instant, sleep};

use super::{FaultContext, Link, POLL_INTERVAL, no_witness, wait_until};
use crate::deployment::Deployment;

/// Between the write of another and the COMMIT: that write waits for the row.
const PAUSE_BEFORE_COMMIT: Duration = Duration::from_millis(30);

/// The statement of a purchase that is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldStatement {
    /// The COMMIT after an unguarded write of the stock.
    UnguardedCommit,
    /// The next COMMIT. With guards its packet has the write of the stock too.
    AnyCommit,
    /// The token that a fenced holder shows.
    Token,
}

impl HeldStatement {
    /// Where it is, in words.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::UnguardedCommit | Self::AnyCommit => "COMMIT on the way",
            Self::Token => "token on the way",
        }
    }
}

/// A COMMIT of the victim, or its token, that has not arrived.
pub(super) struct HeldCommit<'a> {
    proxy: &'a Proxy,
    rule: Rule,
    began: Instant,
}

impl<'a> HeldCommit<'a> {
    /// Holds the next COMMIT of an order of the victim.
    pub(super) async fn of_order(context: &FaultContext<'a>) -> Result<Self> {
        Self::of_replica(context.deployment, context.schedule.victim).await
    }

    /// Holds the next COMMIT of an order of that replica.
    pub(super) async fn of_replica(deployment: &'a Deployment, replica: usize) -> Result<Self> {
        Self::of_statement(deployment, replica, HeldStatement::UnguardedCommit).await
    }

    /// Holds the next such statement of that replica.
    pub(super) async fn of_statement(
        deployment: &'a Deployment,
        replica: usize,
        statement: HeldStatement,
    ) -> Result<Self> {
        let proxies = deployment.proxies(replica, Link::Database);
        let Some(proxy) = proxies.first() else {
            return Err(no_witness("there is no way on which a COMMIT could be held".to_owned()));
        };
        let hold = |command| proxy.arm(command, Action::HoldRequest, Times::Next(1));
        let rule = match statement {
            HeldStatement::UnguardedCommit => hold(commit_after_write(proxy)),
            HeldStatement::AnyCommit => hold(Command::commit()),
            HeldStatement::Token => hold(Command::sql(FENCE_WRITE)),
        };
        wait_until("a COMMIT is held", || rule.fired() > 0).await.inspect_err(|_| rule.disarm())?;
        Ok(Self { proxy, rule, began: Instant::now() })
    }

    /// Waits until another purchase has written, or for that time at most.
    pub(super) async fn until_another_wrote(
        &self,
        mut wrote: impl FnMut() -> u64,
        at_most: Duration,
    ) {
        while wrote() == 0 && self.began.elapsed() < at_most {
            sleep(POLL_INTERVAL).await;
        }
        sleep(PAUSE_BEFORE_COMMIT).await;
    }

    /// How long it has been held.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Lets it arrive when another purchase has written, or after that time. What others did
    /// meanwhile, in words.
    pub(super) async fn arrive_after(
        self,
        others: &OtherPurchases,
        at_most: Duration,
    ) -> Result<String> {
        self.until_another_wrote(|| others.wrote(), at_most).await;
        let (words, ms) = (others.words(), self.elapsed().as_millis());
        self.arrive().await?;
        Ok(format!("a COMMIT was on the way for {ms} ms, and {words} meanwhile"))
    }

    /// Lets it arrive, and waits for its answer.
    pub(super) async fn arrive(self) -> Result<()> {
        let before = self.proxy.counts().bytes_to_client;
        self.rule.release();
        wait_until("the COMMIT is answered", || self.proxy.counts().bytes_to_client > before).await
    }
}

/// What purchases do from now on, on all replicas.
pub(super) struct OtherPurchases {
    writes: Vec<Rule>,
    tokens: Vec<Rule>,
}

impl OtherPurchases {
    pub(super) fn watch(deployment: &Deployment) -> Self {
        let replicas = 0..deployment.replicas().len();
        let proxies = replicas.flat_map(|one| deployment.proxies(one, Link::Database));
        let count = |what: fn() -> Command| {
            proxies.clone().map(|proxy| proxy.watch(what())).collect::<Vec<_>>()
        };
        Self { writes: count(stock_write), tokens: count(|| Command::sql(FENCE_WRITE)) }
    }

    fn wrote(&self) -> u64 {
        self.writes.iter().map(Rule::matched).sum()
    }

    fn shown(&self) -> u64 {
        self.tokens.iter().map(Rule::matched).sum()
    }

    /// Whether one got the lock: it wrote, or came to the fence.
    pub(super) fn got_lock(&self) -> bool {
        self.wrote() + self.shown() > 0
    }

    fn words(&self) -> String {
        match (self.wrote(), self.shown()) {
            (0, 0) => "no other purchase wrote".to_owned(),
            (0, _) => "another purchase showed its token and did not write".to_owned(),
            (1, _) => "another purchase wrote".to_owned(),
            (more, _) => format!("{more} other purchases wrote"),
        }
    }
}

/// The COMMIT of an order: of the commits on this way, the one after a write of the stock.
fn commit_after_write(proxy: &Proxy) -> Command {
    let has_written = Arc::new(AtomicBool::new(false));
    let (seen, due) = (has_written.clone(), has_written);
    proxy.arm(
        stock_write().when(move |_| {
            seen.store(true, Ordering::SeqCst);
            true
        }),
        Action::CutBoth,
        Times::Next(0),
    );
    Command::commit().when(move |_| due.swap(false, Ordering::SeqCst))
}

/// The unguarded sale writes back the stock that it has read.
pub(super) fn stock_write() -> Command {
    let [start, part] = STOCK_WRITE;
    Command::sql(start).containing(part)
}

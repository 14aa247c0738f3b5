//! Commands of every replica that are executed, and whose answers are lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use loadtest_measure::error::Result;
use testbed::{Action, Command, Rule, Times};

use super::{FaultContext, Link, wait_until, witness};
use crate::cell_axes::PurchaseMode;
use crate::deployment::Deployment;

/// Answers that each replica loses.
const LOST_PER_REPLICA: u64 = 2;
/// Writes of the stock that are slow on each link.
const SLOW_WRITES: u64 = 5;

/// Witness: the proxies read the answers to their ends and passed none on.
pub(super) async fn lose_commit(context: &FaultContext<'_>) -> Result<String> {
    inject_loss(context, Link::Database, "transactions", || vec![Command::commit()]).await
}

/// Loses answers to the scripts by which locks are taken, renewed and released. A lock on a
/// majority sends them with their text. In the queued mode only answers to admissions are lost:
/// workers ask for entries all the time, so a lost answer to those has no effect.
pub(super) async fn lose_script(context: &FaultContext<'_>) -> Result<String> {
    match context.mode {
        PurchaseMode::Direct => {
            let commands = || ["EVALSHA", "EVAL"].map(Command::redis).into();
            inject_loss(context, Link::Redis, "scripts", commands).await
        }
        PurchaseMode::Queued => {
            inject_loss(context, Link::Redis, "admissions", || vec![admission()]).await
        }
    }
}

/// The only script of a queue with four keys and eight arguments: the others have another number of
/// keys, four arguments, or six for each entry.
fn admission() -> Command {
    Command::redis("EVALSHA").when(|parts| {
        let [_, _, keys, rest @ ..] = parts else { return false };
        let [sale, users, tickets, stream, arguments @ ..] = rest else { return false };
        let ends = [(sale, ":sale"), (users, ":users"), (tickets, ":tickets"), (stream, ":stream")];
        let is_queue = ends.iter().all(|(key, end)| key.ends_with(end.as_bytes()));
        is_queue && *keys == b"4" && arguments.len() == 8
    })
}

/// Every COMMIT takes so much longer to arrive, from now on.
pub fn slow_down_commits(deployment: &Deployment, by: Duration) {
    for replica in 0..deployment.replicas().len() {
        for proxy in deployment.proxies(replica, Link::Database) {
            proxy.arm(Command::commit(), Action::DelayRequest(by), Times::Always);
        }
    }
}

/// Delays one in `one_in` writes of the stock on each link, `SLOW_WRITES` times at most. Without
/// that bound guarded purchases, which also write when nothing is left, would stay slow.
pub fn slow_down_some_writes(deployment: &Deployment, (by, one_in): (Duration, u64)) {
    for replica in 0..deployment.replicas().len() {
        for proxy in deployment.proxies(replica, Link::Database) {
            let written = AtomicU64::new(0);
            let write = Command::sql("UPDATE").containing(" SET stock = ").when(move |_| {
                let number = written.fetch_add(1, Ordering::SeqCst) + 1;
                number.is_multiple_of(one_in) && number <= SLOW_WRITES * one_in
            });
            proxy.arm(write, Action::DelayRequest(by), Times::Always);
        }
    }
}

async fn inject_loss(
    context: &FaultContext<'_>,
    link: Link,
    name: &str,
    commands: impl Fn() -> Vec<Command>,
) -> Result<String> {
    let deployment = context.deployment;
    let (action, instead) = loss_of(context.schedule.variation);
    let proxies = (0..deployment.replicas().len()).flat_map(|one| deployment.proxies(one, link));
    let arm =
        |proxy: &testbed::Proxy, command| proxy.arm(command, action, Times::Next(LOST_PER_REPLICA));
    let rules: Vec<Rule> = proxies
        .clone()
        .flat_map(|proxy| commands().into_iter().map(move |command| arm(proxy, command)))
        .collect();
    let fired = || rules.iter().map(Rule::fired).sum::<u64>();
    wait_until(&format!("an answer to {name} is lost"), || fired() > 0).await?;
    tokio::time::sleep(context.schedule.lasts()).await;
    proxies.for_each(testbed::Proxy::heal);
    let lost = fired();
    witness(lost > 0, format!("{lost} answers to {name} were lost ({instead})"))
}

/// The action that loses an answer, and what comes instead of the answer.
fn loss_of(variation: u64) -> (Action, &'static str) {
    match variation % 3 {
        0 => (Action::LoseAnswer, "the connections fell silent"),
        1 => (Action::CutAnswer, "the connections were closed instead"),
        _ => (Action::ResetAnswer, "the connections were reset instead"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_reply_is_named_by_what_replaces_the_answer() {
        assert_eq!(loss_of(3), (Action::LoseAnswer, "the connections fell silent"));
        assert_eq!(loss_of(4), (Action::CutAnswer, "the connections were closed instead"));
        assert_eq!(loss_of(5), (Action::ResetAnswer, "the connections were reset instead"));
    }
}

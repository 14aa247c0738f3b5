//! What was executed and is not answered, of every replica.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use testbed::{Action, Command, Rule, Times};

use super::{Link, Scene, until, witness};
use crate::error::Result;
use crate::lab::deployment::Deployment;
use crate::lab::place::Path;

/// Answers that each replica loses.
const EACH: u64 = 2;
/// Writes of the stock that are slow on each way.
const SLOW_WRITES: u64 = 5;

/// Witness: the proxies have read the answers to their ends and told nobody.
pub(super) async fn lose_commit(scene: &Scene<'_>) -> Result<String> {
    lose(scene, Link::Database, "transactions", || vec![Command::commit()]).await
}

/// As [`lose_commit`], of the scripts by which locks are taken, renewed and released. A lock on a
/// majority sends them with their text. On the path `queued` only of admissions: others ask for
/// entries all the time, and nobody would notice that an answer to these is lost.
pub(super) async fn lose_script(scene: &Scene<'_>) -> Result<String> {
    match scene.path {
        Path::Direct => {
            let commands = || ["EVALSHA", "EVAL"].map(Command::redis).into();
            lose(scene, Link::Redis, "scripts", commands).await
        }
        Path::Queued => lose(scene, Link::Redis, "admissions", || vec![admission()]).await,
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
        for way in deployment.ways(replica, Link::Database) {
            way.arm(Command::commit(), Action::DelayRequest(by), Times::Always);
        }
    }
}

/// One in so many writes of the stock takes so much longer to arrive on each way, until
/// `SLOW_WRITES` have: guarded purchases also write when nothing is left, and would go on being
/// slow.
pub fn slow_down_some_writes(deployment: &Deployment, (by, one_in): (Duration, u64)) {
    for replica in 0..deployment.replicas().len() {
        for way in deployment.ways(replica, Link::Database) {
            let written = AtomicU64::new(0);
            let write = Command::sql("UPDATE").containing(" SET stock = ").when(move |_| {
                let number = written.fetch_add(1, Ordering::SeqCst) + 1;
                number.is_multiple_of(one_in) && number <= SLOW_WRITES * one_in
            });
            way.arm(write, Action::DelayRequest(by), Times::Always);
        }
    }
}

async fn lose(
    scene: &Scene<'_>,
    link: Link,
    name: &str,
    commands: impl Fn() -> Vec<Command>,
) -> Result<String> {
    let deployment = scene.deployment;
    let (action, instead) = loss(scene.schedule.variation);
    let ways = (0..deployment.replicas().len()).flat_map(|one| deployment.ways(one, link));
    let arm = |way: &testbed::Proxy, command| way.arm(command, action, Times::Next(EACH));
    let rules: Vec<Rule> = ways
        .clone()
        .flat_map(|way| commands().into_iter().map(move |command| arm(way, command)))
        .collect();
    let fired = || rules.iter().map(Rule::fired).sum::<u64>();
    until(&format!("an answer to {name} is lost"), || fired() > 0).await?;
    tokio::time::sleep(scene.schedule.lasts()).await;
    ways.for_each(testbed::Proxy::heal);
    let lost = fired();
    witness(lost > 0, format!("{lost} answers to {name} were lost ({instead})"))
}

/// A kind of loss, and what comes instead of the answer.
fn loss(variation: u64) -> (Action, &'static str) {
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
    fn a_loss_is_told_by_what_comes_instead_of_the_answer() {
        assert_eq!(loss(3), (Action::LoseAnswer, "the connections fell silent"));
        assert_eq!(loss(4), (Action::CutAnswer, "the connections were closed instead"));
        assert_eq!(loss(5), (Action::ResetAnswer, "the connections were reset instead"));
    }
}

//! Removes nodes that were given up without a release, one session time-out later, as if that were
//! a lease: the session itself lives on.
//!
//! One task per [`ZooKeeperServer`](super::ZooKeeperServer) removes them in the order in which they
//! were given up. Of two sessions with different time-outs, one may have to wait for the other.
//! Bounds: [`MAX_BACKGROUND_TASKS`] nodes wait, and [`MAX_REMOVALS_IN_FLIGHT`] are being removed. A
//! node beyond that stays until its session ends, and is counted in
//! `distlock_cleanups_dropped_total`. Test: `tests/zookeeper.rs`.

use metrics::counter;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::contender::{Contender, Node};
use crate::LockKind;
use crate::background::MAX_BACKGROUND_TASKS;

/// How many removals may wait for their answers.
const MAX_REMOVALS_IN_FLIGHT: usize = 64;

struct GivenUpNode {
    due: Instant,
    contender: Contender,
    node: Option<Node>,
}

/// Where they wait.
pub(crate) struct DelayedRemovals(mpsc::Sender<GivenUpNode>);

impl DelayedRemovals {
    /// Starts the task, which ends when this is dropped and no node is left.
    pub(crate) fn on(runtime: &Handle) -> Self {
        let (sender, left) = mpsc::channel(MAX_BACKGROUND_TASKS);
        runtime.spawn(remove_when_due(left));
        Self(sender)
    }

    /// Removes the node, or whatever a create without an answer has made or may yet make, after one
    /// more time-out of the session.
    pub(crate) fn add(&self, contender: Contender, node: Option<Node>) {
        let due = Instant::now() + contender.session.timeout();
        if let Err(error) = self.0.try_send(GivenUpNode { due, contender, node }) {
            counter!("distlock_cleanups_dropped_total", "kind" => LockKind::Zookeeper.as_str())
                .increment(1);
            let what = "too many nodes to remove; the lock stays taken until its session ends";
            tracing::error!(limit = MAX_BACKGROUND_TASKS, %error, "{what}");
        }
    }
}

async fn remove_when_due(mut left: mpsc::Receiver<GivenUpNode>) {
    let mut removing = JoinSet::new();
    while let Some(GivenUpNode { due, contender, node }) = left.recv().await {
        sleep_until(due).await;
        while removing.len() >= MAX_REMOVALS_IN_FLIGHT {
            removing.join_next().await;
        }
        removing.spawn(contender.removed(node));
    }
    // Dropped, they would be stopped.
    removing.join_all().await;
}

//! Nodes that were given up without a release: they are removed one time-out of their session
//! later, as if that were a lease, because the session itself goes on.
//!
//! One task per [`ZooKeeperServer`](super::ZooKeeperServer) sees to all of them, in the order in
//! which they were given up, so that of two sessions with different time-outs one may have to wait
//! for the other. Bounds: [`LIMIT`] nodes wait, and [`AT_ONCE`] are being removed; a node beyond
//! that stays until its session ends, and is counted in `distlock_given_up_total`. Test:
//! `tests/zookeeper.rs`.

use metrics::counter;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::contender::{Contender, Node};
use crate::LockKind;
use crate::background::LIMIT;

/// How many removals may wait for their answers.
const AT_ONCE: usize = 64;

struct Left {
    due: Instant,
    contender: Contender,
    node: Option<Node>,
}

/// Where they wait.
pub(super) struct Leaving(mpsc::Sender<Left>);

impl Leaving {
    /// Its task ends when this is dropped and no node is left.
    pub(super) fn on(runtime: &Handle) -> Self {
        let (sender, left) = mpsc::channel(LIMIT);
        runtime.spawn(remove_when_due(left));
        Self(sender)
    }

    /// Removes the node, or whatever a create without an answer has made or may yet make, after one
    /// more time-out of the session.
    pub(super) fn add(&self, contender: Contender, node: Option<Node>) {
        let due = Instant::now() + contender.session.timeout();
        if let Err(error) = self.0.try_send(Left { due, contender, node }) {
            counter!("distlock_given_up_total", "kind" => LockKind::Zookeeper.as_str())
                .increment(1);
            tracing::error!(limit = LIMIT, %error, "a node stays until its session ends");
        }
    }
}

async fn remove_when_due(mut left: mpsc::Receiver<Left>) {
    let mut removing = JoinSet::new();
    while let Some(Left { due, contender, node }) = left.recv().await {
        sleep_until(due).await;
        while removing.len() >= AT_ONCE {
            removing.join_next().await;
        }
        removing.spawn(contender.removed(node));
    }
    // Dropped, they would be stopped.
    removing.join_all().await;
}

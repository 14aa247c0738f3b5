//! The turn in this process that belongs to a hold on a server.
//!
//! It ends with the belief in the hold, whatever the holder does: the server lets others in by
//! then, so a holder that hangs must not keep its neighbours in the process waiting.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::sleep_until;

use crate::Belief;
use crate::background::Background;
use crate::keyed::Turn;

pub(crate) struct StageTurn {
    turn: Arc<Mutex<Option<Turn>>>,
    timer: Option<tokio::task::AbortHandle>,
}

impl StageTurn {
    pub(crate) fn new(turn: Turn, belief: Belief, background: &Background) -> Self {
        let turn = Arc::new(Mutex::new(Some(turn)));
        let timer = belief.deadline().map(|deadline| {
            let turn = Arc::clone(&turn);
            background.timer(async move {
                sleep_until(deadline.into()).await;
                drop(take(&turn));
            })
        });
        Self { turn, timer }
    }
}

impl Drop for StageTurn {
    fn drop(&mut self) {
        if let Some(timer) = &self.timer {
            timer.abort();
        }
        drop(take(&self.turn));
    }
}

fn take(turn: &Mutex<Option<Turn>>) -> Option<Turn> {
    // Taking out of an option cannot be left half done by a panic.
    turn.lock().unwrap_or_else(PoisonError::into_inner).take()
}

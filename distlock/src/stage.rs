//! The turn in this process that belongs to a hold on a server.
//!
//! It ends with the belief in the hold, whatever the holder does: the server lets others in by
//! then, so a holder that hangs must not keep its neighbours in the process waiting.

use std::sync::{Arc, Mutex, PoisonError};

use crate::background::{Background, Timer};
use crate::keyed::Turn;
use crate::tenure::Tenure;

pub(crate) struct StageTurn {
    turn: Arc<Mutex<Option<Turn>>>,
    _timer: Timer,
}

impl StageTurn {
    pub(crate) fn new(turn: Turn, tenure: Arc<Tenure>, background: &Background) -> Self {
        let turn = Arc::new(Mutex::new(Some(turn)));
        let own = Arc::clone(&turn);
        let timer = background.timer(async move {
            tenure.lost().await;
            drop(take(&own));
        });
        Self { turn, _timer: timer }
    }
}

impl Drop for StageTurn {
    fn drop(&mut self) {
        drop(take(&self.turn));
    }
}

fn take(turn: &Mutex<Option<Turn>>) -> Option<Turn> {
    // Taking out of an option cannot be left half done by a panic.
    turn.lock().unwrap_or_else(PoisonError::into_inner).take()
}

//! The turn in this process that belongs to a hold on a server.
//!
//! It ends with the belief in the hold, whatever the holder does: the server lets others in by
//! then, so a holder that hangs must not keep its neighbours in the process waiting. Only they need
//! the timer that ends it, so it is started when the first of them comes: a hold that nobody waits
//! for costs no task.

use std::sync::{Arc, Mutex, PoisonError};

use crate::background::{Background, Timer};
use crate::keyed::Turn;
use crate::tenure::Tenure;

pub(crate) struct StageTurn(Arc<Mutex<Stage>>);

struct Stage {
    turn: Option<Turn>,
    timer: Option<Timer>,
}

impl StageTurn {
    pub(crate) fn new(turn: Turn, tenure: Arc<Tenure>, background: &Background) -> Self {
        let expected = turn.expected();
        let stage = Arc::new(Mutex::new(Stage { turn: Some(turn), timer: None }));
        let (own, background) = (Arc::downgrade(&stage), background.clone());
        expected.when_somebody_waits(Box::new(move || {
            let Some(stage) = own.upgrade() else { return };
            // Who does not wait at all is let in at once.
            if tenure.is_lost() {
                return drop(take(&stage));
            }
            let timer = background.timer(async move {
                tenure.lost().await;
                if let Some(stage) = own.upgrade() {
                    drop(take(&stage));
                }
            });
            stage.lock().unwrap_or_else(PoisonError::into_inner).timer = Some(timer);
        }));
        Self(stage)
    }
}

impl Drop for StageTurn {
    fn drop(&mut self) {
        drop(take(&self.0));
    }
}

fn take(stage: &Mutex<Stage>) -> Option<Turn> {
    // Taking out of an option cannot be left half done by a panic.
    stage.lock().unwrap_or_else(PoisonError::into_inner).turn.take()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::runtime::Handle;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::keyed::KeyedMutex;
    use crate::pulse::Pulse;
    use crate::{Belief, LockName};

    const BELIEF: Duration = Duration::from_secs(10);

    fn hung(turn: Turn) -> StageTurn {
        let tenure = Tenure::new(Belief::until(Instant::now() + BELIEF), &Pulse::here());
        StageTurn::new(turn, tenure, &Background::here("none"))
    }

    fn tasks() -> usize {
        Handle::current().metrics().num_alive_tasks()
    }

    async fn gets_it_when_belief_ends(waiter: tokio::task::JoinHandle<Turn>, began: Instant) {
        let turn = timeout(BELIEF * 2, waiter).await.expect("in time").expect("no panic");
        assert!(began.elapsed() >= BELIEF, "{:?}", began.elapsed());
        drop(turn);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_hold_that_somebody_waits_for_has_a_task_which_ends_its_turn_with_belief() {
        let (keyed, name) = (KeyedMutex::new(), LockName::new("a").unwrap());
        let (began, before) = (Instant::now(), tasks());
        let hold = hung(keyed.try_lock(&name).unwrap());
        assert_eq!(tasks(), before);
        let (queue, wanted) = (keyed.clone(), name.clone());
        let waiter = tokio::spawn(async move { queue.lock(&wanted).await });
        tokio::task::yield_now().await;
        assert_eq!(tasks(), before + 3, "the waiter, the timer that it needs, and the pulse");
        gets_it_when_belief_ends(waiter, began).await;
        drop(hold);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_comes_after_the_end_of_belief_is_let_in_without_waiting() {
        let (keyed, name) = (KeyedMutex::new(), LockName::new("a").unwrap());
        let hold = hung(keyed.try_lock(&name).unwrap());
        tokio::time::advance(BELIEF).await;
        assert!(keyed.try_lock(&name).is_some());
        drop(hold);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waited_before_the_server_had_granted_the_lock_is_let_in_as_well() {
        let (keyed, name) = (KeyedMutex::new(), LockName::new("a").unwrap());
        let (began, turn) = (Instant::now(), keyed.try_lock(&name).unwrap());
        let (queue, wanted) = (keyed.clone(), name.clone());
        let waiter = tokio::spawn(async move { queue.lock(&wanted).await });
        tokio::task::yield_now().await;
        let hold = hung(turn);
        gets_it_when_belief_ends(waiter, began).await;
        drop(hold);
    }
}

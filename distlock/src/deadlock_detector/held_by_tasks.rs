//! What the tasks of this process hold and wait for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use tokio::task;
use tokio::time::Instant;
use uuid::Uuid;

use super::wait_graph::{LockUse, WaitingTask};
use crate::hold_state::HoldState;
use crate::{LockName, Owner};

/// The most holds of one task that are published: the first ones.
const MAX_HOLDS: usize = 16;

/// A task of the runtime, or a thread that is in `block_on`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TaskKey {
    Task(task::Id),
    Thread(ThreadId),
}

impl TaskKey {
    pub(crate) fn current() -> Self {
        task::try_id().map_or_else(|| Self::Thread(thread::current().id()), Self::Task)
    }
}

/// The locks of a mechanism, as the graph distinguishes them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LockClass {
    pub(crate) kind: &'static str,
    pub(crate) shares: bool,
}

impl LockClass {
    fn lock(self, name: &LockName) -> LockUse {
        let Self { kind, shares } = self;
        LockUse { kind: kind.into(), name: name.as_str().into(), shares }
    }
}

struct TaskHold {
    id: u64,
    class: LockClass,
    name: LockName,
    owner: Owner,
    /// A hold that is lost keeps no task waiting.
    hold_state: Arc<HoldState>,
}

struct TaskWait {
    id: Uuid,
    class: LockClass,
    name: LockName,
    since: Instant,
}

#[derive(Default)]
struct TaskLocks {
    holds: Vec<TaskHold>,
    waits: Vec<TaskWait>,
}

/// All tasks of this process that hold a lock or wait for one. Bounded by these.
#[derive(Clone, Default)]
pub(crate) struct HeldByTasks(Arc<Mutex<TaskTable>>);

#[derive(Default)]
struct TaskTable {
    next_id: u64,
    tasks: HashMap<TaskKey, TaskLocks>,
}

/// A hold in the table, until it is dropped.
pub(crate) struct HoldEntry {
    table: HeldByTasks,
    task: TaskKey,
    id: u64,
}

/// A wait in the table, until it is dropped.
pub(crate) struct WaitEntry {
    table: HeldByTasks,
    task: TaskKey,
    id: Uuid,
}

impl HeldByTasks {
    /// Enters a hold of the current task.
    pub(crate) fn enter_hold(
        &self,
        class: LockClass,
        (name, owner): (&LockName, &Owner),
        hold_state: &Arc<HoldState>,
    ) -> HoldEntry {
        let task = TaskKey::current();
        let mut table = self.table();
        table.next_id += 1;
        let id = table.next_id;
        let (name, owner, hold_state) = (name.clone(), owner.clone(), Arc::clone(hold_state));
        let hold = TaskHold { id, class, name, owner, hold_state };
        table.tasks.entry(task).or_default().holds.push(hold);
        HoldEntry { table: self.clone(), task, id }
    }

    /// Enters a wait of the current task.
    pub(crate) fn enter_wait(
        &self,
        class: LockClass,
        name: &LockName,
        since: Instant,
    ) -> WaitEntry {
        let (task, id) = (TaskKey::current(), Uuid::new_v4());
        let wait = TaskWait { id, class, name: name.clone(), since };
        self.table().tasks.entry(task).or_default().waits.push(wait);
        WaitEntry { table: self.clone(), task, id }
    }

    /// The tasks that wait for one lock. A task with several acquisitions under way is left out: it
    /// may need only one of them.
    pub(crate) fn waiting(&self, inherited: &[(LockUse, String)]) -> Vec<WaitingTask> {
        let table = self.table();
        let waiting = table.tasks.values().filter_map(|task| match &task.waits[..] {
            [wait] => Some(WaitingTask {
                wait: wait.id,
                wants: wait.class.lock(&wait.name),
                waited: wait.since.elapsed(),
                holds: inherited.iter().cloned().chain(task.live_holds()).take(MAX_HOLDS).collect(),
            }),
            _ => None,
        });
        waiting.filter(|task| !task.holds.is_empty()).collect()
    }

    /// What the current task holds.
    pub(crate) fn held_by_this_task(&self) -> Vec<(LockUse, String)> {
        let table = self.table();
        let task = table.tasks.get(&TaskKey::current());
        task.map(|task| task.live_holds().take(MAX_HOLDS).collect()).unwrap_or_default()
    }

    fn remove(&self, task: TaskKey, of: impl FnOnce(&mut TaskLocks)) {
        let mut table = self.table();
        if let Some(locks) = table.tasks.get_mut(&task) {
            of(locks);
            if locks.holds.is_empty() && locks.waits.is_empty() {
                table.tasks.remove(&task);
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, TaskTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TaskLocks {
    fn live_holds(&self) -> impl Iterator<Item = (LockUse, String)> {
        let live = self.holds.iter().filter(|hold| !hold.hold_state.is_lost());
        live.map(|hold| (hold.class.lock(&hold.name), hold.owner.to_string()))
    }
}

impl Drop for HoldEntry {
    fn drop(&mut self) {
        self.table.remove(self.task, |locks| locks.holds.retain(|hold| hold.id != self.id));
    }
}

impl Drop for WaitEntry {
    fn drop(&mut self) {
        self.table.remove(self.task, |locks| locks.waits.retain(|wait| wait.id != self.id));
    }
}

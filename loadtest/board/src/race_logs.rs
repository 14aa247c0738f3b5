//! What pages read of a race: its events, and the commands and locks of its lanes.

use std::sync::Arc;

use crate::commands::CommandLog;
use crate::event_log::EventLog;
use crate::held_locks::LockWatch;

/// The logs of the current race. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct RaceLogs {
    pub(crate) events: Arc<EventLog>,
    pub(crate) commands: [Arc<CommandLog>; 2],
    pub(crate) locks: [Arc<LockWatch>; 2],
}

impl RaceLogs {
    /// Begins the logs of a new race. A page that sees its setup finds no command of the last one.
    pub(crate) fn begin(&self, setup: String) {
        self.commands.iter().for_each(|commands| commands.begin());
        self.events.begin(setup);
    }
}

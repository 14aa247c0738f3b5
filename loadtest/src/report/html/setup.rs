//! What a cell was started with: its load, and the flags of the service.

use serde::Serialize;

use crate::lab::cell::CellReport;
use crate::lab::staged::Setup;
use crate::report::html::cell::Fact;
use crate::report::repeat::command_line;

/// What stands for a setting that the laboratory left to the service.
const USUAL: &str = "the service's own";

/// What a cell was started with, in names and values.
#[derive(Debug, Serialize)]
pub struct SetupView {
    /// The load, and what flags come to.
    pub facts: Vec<Fact>,
    /// The service's command with all flags that tell this cell from others.
    pub serve: String,
}

impl SetupView {
    /// That of a cell, if it came so far that it was started.
    pub fn of(cell: &CellReport) -> Option<Self> {
        let setup = cell.setup.as_ref()?;
        let Setup { flags, load } = setup;
        // A round ends when its fault is over and all is sold, which most of them do not see.
        let users = if cell.fault.is_some() { "users, at most" } else { "users" };
        let mut facts = vec![
            Fact::new(users, load.users),
            Fact::new("units", load.stock),
            Fact::new("requests of a user at once", load.requests_per_user),
            Fact::new("connections", load.connections),
            Fact::new("extra work under the lock", format!("{} ms", load.work_ms)),
            Fact::new("path", load.path.name()),
            Fact::new("lease", milliseconds(setup, "--lease-ms")),
            Fact::new("wait for the lock", milliseconds(setup, "--lock-wait-ms")),
            Fact::new("on a lost lock", setup.value("--on-lost").unwrap_or(USUAL)),
            Fact::new("fenced", if setup.has("--fenced") { "yes" } else { "no" }),
        ];
        facts.extend(load.plant.map(|plant| Fact::new("planted bug", plant.name())));
        Some(Self { facts, serve: command_line("seckill serve", flags) })
    }
}

fn milliseconds(setup: &Setup, flag: &str) -> String {
    setup.value(flag).map_or(USUAL.to_owned(), |ms| format!("{ms} ms"))
}

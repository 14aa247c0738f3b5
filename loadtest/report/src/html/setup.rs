//! What a cell was started with: its load, and the flags of the service.

use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_plan::{DEFAULT_LOCK_WAIT_MS, DEFAULT_ON_LOST, Setup};
use loadtest_lab::lock::Lock;
use serde::Serialize;

use crate::html::cell::Fact;
use crate::repeat::command_line;

/// What stands after a setting that the laboratory left to the service.
const USUAL: &str = "the service's own";

/// What a cell was started with, in names and values.
#[derive(Debug, Serialize)]
pub struct SetupView {
    /// The load, and what flags come to.
    pub facts: Vec<Fact>,
    /// The service's command with all flags that distinguish this cell from others.
    pub serve: String,
}

impl SetupView {
    /// The setup of a cell, if it was started.
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
            Fact::new("mode", load.mode.name()),
            Fact::new("lease", lease(setup, cell.axes.lock)),
            Fact::new("wait for the lock", wait(setup, cell.axes.lock)),
            Fact::new("on a lost lock", on_lost(setup)),
            Fact::new("fenced", if setup.has("--fenced") { "yes" } else { "no" }),
        ];
        facts.extend(load.injected_bug.map(|bug| Fact::new("injected bug", bug.name())));
        Some(Self { facts, serve: command_line("seckill serve", flags) })
    }
}

fn lease(setup: &Setup, lock: Lock) -> String {
    match (lock.default_lease_ms(), setup.value("--lease-ms")) {
        (None, _) => format!("none: {} has no lease", lock.name()),
        (Some(_), Some(ms)) => format!("{ms} ms"),
        (Some(ms), None) => format!("{ms} ms, {USUAL}"),
    }
}

fn wait(setup: &Setup, lock: Lock) -> String {
    match setup.value("--lock-wait-ms") {
        _ if lock == Lock::None => "none: there is no lock".to_owned(),
        Some(ms) => format!("{ms} ms"),
        None => format!("{DEFAULT_LOCK_WAIT_MS} ms, {USUAL}"),
    }
}

fn on_lost(setup: &Setup) -> String {
    let told = setup.value("--on-lost").map(str::to_owned);
    told.unwrap_or_else(|| format!("{DEFAULT_ON_LOST}, {USUAL}"))
}

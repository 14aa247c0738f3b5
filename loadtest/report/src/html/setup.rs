//! What a cell was started with: its load, and the flags of the service.

use loadtest_lab::cell::CellReport;
use loadtest_lab::cell_plan::{DEFAULT_LOCK_WAIT_MS, DEFAULT_ON_LOST, Setup};
use loadtest_lab::lock::Lock;
use serde::Serialize;

use crate::html::cell::Fact;
use crate::repeat::command_line;
use crate::text::Text;

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
        let users = if cell.fault.is_some() { "users_at_most" } else { "users" };
        let mut facts = vec![
            Fact::new(users, load.users),
            Fact::new("units", load.stock),
            Fact::new("requests_per_user", load.requests_per_user),
            Fact::new("connections", load.connections),
            Fact::new("extra_work", format!("{} ms", load.work_ms)),
            Fact::new("mode", load.mode.name()),
            Fact::new("lease", lease(setup, cell.axes.lock)),
            Fact::new("lock_wait", wait(setup, cell.axes.lock)),
            Fact::new("on_lost", on_lost(setup)),
            Fact::new("fenced", Text::of(if setup.has("--fenced") { "yes" } else { "no" })),
        ];
        facts.extend(load.injected_bug.map(|bug| Fact::new("injected_bug", bug.name())));
        Some(Self { facts, serve: command_line("seckill serve", flags) })
    }
}

fn lease(setup: &Setup, lock: Lock) -> Text {
    match (lock.default_lease_ms(), setup.value("--lease-ms")) {
        (None, _) => Text::of("no_lease").with("lock", lock.name()),
        (Some(_), Some(ms)) => format!("{ms} ms").into(),
        (Some(ms), None) => default(format!("{ms} ms").into()),
    }
}

fn wait(setup: &Setup, lock: Lock) -> Text {
    match setup.value("--lock-wait-ms") {
        _ if lock == Lock::None => Text::of("no_wait"),
        Some(ms) => format!("{ms} ms").into(),
        None => default(format!("{DEFAULT_LOCK_WAIT_MS} ms").into()),
    }
}

fn on_lost(setup: &Setup) -> Text {
    setup.value("--on-lost").map_or_else(|| default(DEFAULT_ON_LOST.into()), Text::from)
}

/// A setting that the laboratory left to the service.
fn default(value: Text) -> Text {
    Text::of("service_default").with("value", value)
}

//! `--once-per`: a command runs at most once in a window, on all machines together.
//!
//! The run is recorded while the lock is held, and before the command starts: a machine that dies
//! leaves the record, because the command may have done its work. A run that failed withdraws it.

use std::time::Duration;

use anyhow::Context;
use distlock::{Backend, LockName};
use humantime::format_duration;
use tokio::time::sleep;
use uuid::Uuid;

use super::failure::{Failure, RAN_ALREADY, SERVER_FAILED, code_of_opening};
use super::host_name;
use crate::config::LockRun;
use crate::database;
use crate::store::{RunRecord, RunRecords};

/// How often a withdrawal is tried.
const WITHDRAWALS: u32 = 5;
/// Before the second one; doubles.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// The window of one run.
pub(super) struct RunWindow {
    name: LockName,
    records: RunRecords,
    record: RunRecord,
    length: Duration,
}

impl RunWindow {
    /// Connects to where the last run is recorded; `None` without `--once-per`.
    pub(super) async fn open(config: &LockRun) -> Result<Option<Self>, Failure> {
        let Some(length) = config.once_per else { return Ok(None) };
        let records = open_records(config).await.map_err(|error| failure(&error))?;
        let record = RunRecord {
            name: match config.kind.backend() {
                Backend::Redis => redis_key(&config.name),
                _ => config.name.to_string(),
            },
            id: Uuid::new_v4().to_string(),
            host: host_name().chars().take(255).collect(),
        };
        Ok(Some(Self { name: config.name.clone(), records, record, length }))
    }

    /// Records the run; fails if one began within the window.
    pub(super) async fn begin(&self) -> Result<(), Failure> {
        match self.records.begin(&self.record, self.length).await {
            Ok(None) => Ok(()),
            Ok(Some(earlier)) => {
                let [ago, window] = [earlier.ago, self.length].map(format_duration);
                let (name, host) = (&self.name, earlier.host);
                let sentence =
                    format!("{name}: a run began {ago} ago on {host}, and --once-per is {window}");
                Err(Failure::new(RAN_ALREADY, sentence))
            }
            Err(error) => {
                let failure = failure(&anyhow::Error::new(error).context("cannot record the run"));
                if failure.code == SERVER_FAILED {
                    // Its answer may be all that was lost.
                    self.withdraw().await;
                }
                Err(failure)
            }
        }
    }

    /// Withdraws the record, so that another run may begin within the window.
    pub(super) async fn withdraw(&self) {
        let mut pause = RETRY_PAUSE;
        for _ in 1..WITHDRAWALS {
            if self.records.withdraw(&self.record).await.is_ok() {
                return;
            }
            sleep(pause).await;
            pause *= 2;
        }
        if let Err(error) = self.records.withdraw(&self.record).await {
            tracing::warn!(%error, "cannot withdraw the record of the run; it counts as one");
        }
    }
}

async fn open_records(config: &LockRun) -> anyhow::Result<RunRecords> {
    let addresses = &config.addresses;
    if config.records_in_database() {
        let url = addresses.database_url.as_ref().context("--once-per needs --database-url")?;
        let records = RunRecords::in_database(database::connect(url).await?).await;
        return records.context("cannot make the table of runs");
    }
    let url = addresses.redis_url.as_ref().context("--once-per needs --redis-url")?;
    Ok(RunRecords::in_redis(super::redis(url, &addresses.servers.redis).await?))
}

fn failure(error: &anyhow::Error) -> Failure {
    Failure::new(code_of_opening(error), format!("{error:#}"))
}

/// The key of the record: on a cluster in the slot of the lock.
fn redis_key(name: &LockName) -> String {
    if name.has_tag() { format!("last_run::{name}") } else { format!("last_run:{{{name}}}") }
}

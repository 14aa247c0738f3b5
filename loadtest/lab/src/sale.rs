//! One voucher on a private deployment, from its opening to its verdict.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use loadtest_judge::audit::DatabaseReader;
use loadtest_judge::check::judge_all;
use loadtest_judge::holds::HoldOverlaps;
use loadtest_judge::terms::Terms;
use loadtest_judge::verdict::{Rule, Verdict};
use loadtest_load::api;
use loadtest_load::api::{ApiError, NewVoucher};
use loadtest_load::client::{Connection, Target};
use loadtest_load::history::final_state::{Audit, DatabaseReading};
use loadtest_load::history::{
    Condition, DEMANDS, Event, EventObserver, FENCED, FinalRead, History, LOCK_PER, LOCK_WAIT_MS,
    ONE_HOLDER_PER, Recorder,
};
use loadtest_load::history_file::HistoryFile;
use loadtest_load::outcome::Outcome;
use loadtest_load::plan::Plan;
use loadtest_load::stats::Figures;
use loadtest_load::tokens::User;
use loadtest_measure::error::{Error, Result};

use crate::cell::CellReport;
use crate::cell_axes::{Load, flag};
use crate::cell_plan::CellPlan;
use crate::cell_spec::CellSpec;
use crate::deployment::Deployment;
use crate::detail::Detail;
use crate::faults::StockAdmin;
use crate::metrics;

/// When a request of the load is given up: far beyond every bound of the service, so that it is the
/// service's own answer that counts.
const REQUEST_DEADLINE: Duration = Duration::from_secs(40);
/// When a request is given up where a fault may take its answer: beyond the service's own waits.
const FAULT_REQUEST_DEADLINE: Duration = Duration::from_secs(8);
/// When a ticket is given up: beyond the 10 s after which a ticket that Redis has lost ends.
pub(super) const TICKET_DEADLINE: Duration = Duration::from_secs(20);
/// How long a call besides the load may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How often the database is read again until two readings are equal.
const SETTLE_READINGS: u32 = 25;
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// A voucher that is on sale.
#[derive(Debug)]
pub(super) struct Sale<'a> {
    /// Where.
    pub(super) deployment: &'a Deployment,
    trial: CellSpec,
    /// What comes.
    pub(super) load: &'a Load,
    seed: u64,
    fenced: bool,
    /// How long a purchase waits for its lock, if the cell's flags say so.
    lock_wait_ms: Option<String>,
    admin: HeaderValue,
    /// Its id.
    pub(super) voucher: u64,
    /// The users who may buy it.
    pub(super) users: Vec<User>,
    /// The processes of its replicas when it was put on sale.
    pids: Vec<u32>,
    /// What sees each event of its history.
    pub(super) observer: Option<EventObserver>,
}

impl<'a> Sale<'a> {
    /// Puts a voucher on sale to the load's users.
    pub(super) async fn open(deployment: &'a Deployment, cell_plan: &'a CellPlan) -> Result<Self> {
        let CellPlan { trial, load, seed, .. } = cell_plan;
        let ((users, _), (admins, _)) =
            tokio::try_join!(deployment.users(load.users, false), deployment.users(1, true))?;
        let admin = admins[0].authorization.clone();
        let mut private = Connection::new(Target::parse(deployment.url())?, CALL_DEADLINE);
        let voucher = api::put_on_sale(&mut private, &admin, &NewVoucher::of_now(load.stock))
            .await
            .map_err(|error| Error::Setup(error.to_string()))?;
        let pids = deployment.replicas().iter().map(|replica| replica.pid()).collect();
        let (trial, seed) = (*trial, *seed);
        let fenced = cell_plan.flags.iter().any(|flag| flag == "--fenced");
        let lock_wait_ms = flag(&cell_plan.flags, "--lock-wait-ms").map(str::to_owned);
        let sale = Self {
            deployment,
            trial,
            load,
            seed,
            fenced,
            lock_wait_ms,
            admin,
            voucher,
            users,
            pids,
            observer: None,
        };
        Ok(sale)
    }

    /// Puts a voucher on sale beside it, of which the verdict does not speak; its id.
    pub(super) async fn put_another_on_sale(&self, stock: u64) -> Result<u64> {
        let mut private = Connection::new(Target::parse(self.deployment.url())?, CALL_DEADLINE);
        api::put_on_sale(&mut private, &self.admin, &NewVoucher::of_now(stock))
            .await
            .map_err(|error| Error::Setup(error.to_string()))
    }

    /// A plan in which each of these users sends `per_user` requests at once to `target`.
    pub(super) fn plan(&self, users: &[User], target: Arc<Target>, per_user: usize) -> Plan {
        Plan {
            seed: self.seed,
            connections: self.load.connections,
            timeout: match self.trial.fault {
                Some(_) => FAULT_REQUEST_DEADLINE,
                None => REQUEST_DEADLINE,
            },
            ticket_timeout: TICKET_DEADLINE,
            ..Plan::closed(target, self.voucher, users.into(), per_user)
        }
    }

    /// The administrator who adds stock to the voucher.
    pub(super) fn stock_admin(&self, clock: Recorder) -> StockAdmin {
        let url = self.deployment.url().to_owned();
        StockAdmin::new(url, self.voucher, self.admin.clone(), clock)
    }

    /// Units that are left, as the database says.
    pub(super) async fn left(&self) -> Result<i64> {
        let mut reader = DatabaseReader::connect(&self.deployment.database_url()).await?;
        let reading = reader.read(&self.voucher.to_string(), self.trial.axes.guards).await?;
        Ok(reading.account.stock_left)
    }

    /// The history of the planned requests.
    pub(super) fn record(&self, plan: &Plan) -> Result<HistoryFile> {
        // What a killed run leaves is removed with the folder of its servers.
        let file = (self.deployment.history(), self.deployment.folder());
        let mut demands = self.trial.demands(self.load);
        // An audit that could not be read is missing in the history.
        demands.push(Rule::AuditAgrees);
        let demands: Vec<String> = demands.into_iter().map(Rule::name).collect();
        let demands = demands.join(",");
        let mut settings = vec![(DEMANDS, demands.as_str())];
        settings.extend(self.fenced.then_some((FENCED, "on")));
        settings.extend(
            self.trial.excludes_others().then(|| (ONE_HOLDER_PER, self.trial.axes.scope.name())),
        );
        settings.push((LOCK_PER, self.trial.axes.scope.name()));
        settings.extend(self.lock_wait_ms.as_deref().map(|ms| (LOCK_WAIT_MS, ms)));
        let stock = [i64::try_from(self.load.stock).ok()];
        let mut recorded = HistoryFile::begin_with(plan, file, &stock, &settings)?;
        if let Some(observer) = &self.observer {
            recorded.observe(observer.clone());
        }
        Ok(recorded)
    }

    /// Reads the outcome of the voucher and judges the history, which [`end_history`] ends. The
    /// figures are those of its main load.
    pub(super) async fn judge(
        &self,
        recorded: &HistoryFile,
        figures: Figures,
    ) -> Result<(CellReport, History)> {
        let quiet = self.trial.fault.is_none() && figures.count(Outcome::Unknown) == 0;
        let (reading, said) = self.read(quiet).await?;
        let dead = self.deployment.dead();
        if !dead.is_empty() {
            return Err(Error::Died(dead.join(" and ")));
        }
        let read = FinalRead::Database { reading: &reading, said: said.as_ref().ok() };
        recorded.recorder().final_read(self.voucher, read).await;
        let history = recorded.so_far().await?;
        let terms = Terms::of_history(&history).map_err(|error| Error::Setup(error.to_string()))?;
        let mut detail = Detail::of(&history.records, &history.names, self.load.stock);
        let replicas: Vec<_> =
            self.deployment.replicas().iter().map(|replica| replica.addr()).collect();
        detail.locks = metrics::read(&replicas, self.trial.axes.lock.name()).await;
        if let Some(locks) = &mut detail.locks {
            let now = self.deployment.replicas().iter().map(|replica| replica.pid());
            locks.started_anew = now.zip(&self.pids).filter(|(now, then)| now != *then).count();
        }
        let mut report =
            CellReport::of(self.trial, self.load.stock, figures, verdict(&history, &terms))
                .with_history(&history, &terms);
        report.detail = Some(detail);
        if let Err(error) = &said {
            report.error = Some(error.to_string());
        }
        report.audit = said.ok();
        report.overlaps = HoldOverlaps::of(&history.records, &history.names, self.trial.axes.scope);
        Ok((report, history))
    }

    /// Judges a load without a round, and ends its history.
    pub(super) async fn judge_and_end(
        &self,
        recorded: HistoryFile,
        figures: Figures,
    ) -> Result<CellReport> {
        let (report, _) = self.judge(&recorded, figures).await?;
        end_history(recorded, &report).await?;
        Ok(report)
    }

    /// The audit at each of these addresses: one replica may lie where others do not.
    async fn audit(&self, auditors: &mut [Connection], own: &Audit) -> AuditResult {
        let id = self.voucher.to_string();
        let said = auditors.iter_mut().map(|auditor| api::audit(auditor, &self.admin, &id));
        unequal_or_first(said, own).await
    }

    /// The judge's own reading of the voucher and the service's audit, which were made of the same
    /// orders: the audit stands between two equal readings. Unless all is `quiet`, a request whose
    /// outcome is unknown may still be at work, so these are [`SETTLE_PAUSE`] apart at least.
    async fn read(&self, quiet: bool) -> Result<(DatabaseReading, AuditResult)> {
        let (guards, id) = (self.trial.axes.guards, self.voucher.to_string());
        let mut reader = DatabaseReader::connect(&self.deployment.database_url()).await?;
        let replicas = self.deployment.replicas().iter().map(|replica| replica.base_url());
        let addresses = std::iter::once(self.deployment.operator_url()).chain(replicas);
        let auditors = addresses.map(|url| Ok(Connection::new(Target::parse(url)?, CALL_DEADLINE)));
        let mut auditors = auditors.collect::<Result<Vec<_>>>()?;
        let mut last = reader.read(&id, guards).await?;
        let mut is_unread = false;
        for reading in 1..=SETTLE_READINGS {
            if !quiet || is_unread {
                tokio::time::sleep(SETTLE_PAUSE).await;
            }
            let said = self.audit(&mut auditors, &last.account).await;
            let next = reader.read(&id, guards).await?;
            // One that could not be read is read again, as one of a moving sale is.
            is_unread = said.is_err();
            let is_settled = next.account == last.account;
            if is_settled && (!is_unread || reading == SETTLE_READINGS) {
                return Ok((next, said));
            }
            last = next;
        }
        Err(Error::Setup("the orders still changed after the load had ended".to_owned()))
    }
}

/// Ends the history of a cell with the conditions that make it a real load. `loadtest check` says
/// which of them were not met.
pub(super) async fn end_history(recorded: HistoryFile, report: &CellReport) -> Result<()> {
    let condition = |met, detail: &str| {
        let (what, detail) = ("it was a real load".to_owned(), detail.to_owned());
        Event::Condition(Condition { what, met, detail })
    };
    for why in &report.invalid_because {
        recorded.recorder().record(condition(false, why)).await;
    }
    if report.valid {
        let all = condition(true, "all conditions of such a cell are met");
        recorded.recorder().record(all).await;
    }
    recorded.close().await
}

/// The first of these that is not what the judge has read, or else the first one.
async fn unequal_or_first(
    said: impl Iterator<Item = impl Future<Output = AuditResult>>,
    own: &Audit,
) -> AuditResult {
    let mut first = None;
    for audit in said {
        let audit = audit.await?;
        if !audit.differences(own).is_empty() {
            return Ok(audit);
        }
        first.get_or_insert(audit);
    }
    Ok(first.unwrap_or_else(|| own.clone()))
}

/// The service's audit, if it can be read.
type AuditResult = std::result::Result<Audit, ApiError>;

/// The verdict on a history with one voucher. It is judged by the stock that was asked for,
/// whatever the service made of it.
pub(super) fn verdict(history: &History, terms: &Terms) -> Verdict {
    let judged = judge_all(history, terms).pop();
    judged.map_or_else(|| Verdict::unjudged("nothing was on sale"), |judged| judged.verdict)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_audit_that_differs_is_found_behind_one_that_agrees() {
        let tables = ["orders", "voucher_stock", "stock_grants"];
        let audit = |left| Audit::of(&[], 100, left, tables);
        let read = async |said: [i64; 2]| {
            let said = said.into_iter().map(|left| std::future::ready(Ok(audit(left))));
            unequal_or_first(said, &audit(100)).await.expect("read").stock_left
        };
        assert_eq!(read([100, 100]).await, 100);
        assert_eq!(read([100, 50]).await, 50, "the second one lies");
        assert_eq!(read([50, 100]).await, 50);
    }
}

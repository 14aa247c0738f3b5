//! One cell of the comparison: a fresh deployment, a voucher, a load, a verdict.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::api::{self, NewVoucher};
use crate::error::{Error, Result};
use crate::history::{FinalRead, Past};
use crate::judge::audit::{Reader, Reading};
use crate::judge::check::judge_all;
use crate::judge::evidence::Audit;
use crate::judge::validity;
use crate::judge::verdict::{Rule, Verdict};
use crate::lab::cluster::{Cluster, Deployment, Spec};
use crate::lab::place::{Load, Place};
use crate::lab::predict::{Guards, Prediction};
use crate::load::client::{Connection, Target};
use crate::load::drive;
use crate::load::live::Live;
use crate::load::outcome::Outcome;
use crate::load::plan::Plan;
use crate::load::progress::Progress;
use crate::load::recorded::Recorded;
use crate::load::stats::Figures;

/// When a request of the load is given up: far beyond every bound of the service, so that it is the
/// service's own answer that counts.
const REQUEST_DEADLINE: Duration = Duration::from_secs(40);
/// How long a call besides the load may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How often the database is read again, [`SETTLE_PAUSE`] apart, until two readings are equal.
const SETTLE_READINGS: u32 = 25;
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// What came out of a cell; the members of the report's JSON.
#[derive(Debug, Clone, Serialize)]
pub struct CellReport {
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// Requests sent.
    pub requests: u64,
    /// Units on sale.
    pub stock: u64,
    /// Orders in the database afterwards.
    pub orders: u64,
    /// Orders beyond the stock.
    pub oversold: u64,
    /// Users with more than one order.
    pub duplicate_users: u64,
    /// Orders that were acknowledged and are absent from the database.
    pub lost: u64,
    /// What was to be shown.
    pub predicted: Prediction,
    /// What was.
    pub observed: Prediction,
    /// Observed equals predicted, and every rule that this cell must keep held.
    pub as_predicted: bool,
    /// Whether this was a real load.
    pub valid: bool,
    /// Acknowledged orders, divided by the seconds from the first request to the last
    /// acknowledgement.
    pub orders_per_s: f64,
    /// Half of all requests were answered within this many milliseconds.
    pub p50_ms: f64,
    /// 99 % of all requests were answered within this many milliseconds.
    pub p99_ms: f64,
    /// Why it was no real load.
    pub invalid_because: Vec<String>,
    /// Rules that this cell had to keep and did not.
    pub broken_rules: Vec<Rule>,
    /// Why the cell could not be run, if so.
    pub error: Option<String>,
    /// All figures of the load.
    pub load: Option<Figures>,
    /// Every rule with its figures.
    pub verdict: Option<Verdict>,
    /// The service's own audit.
    pub audit: Option<Audit>,
    /// Seconds that the cell took, its servers included.
    pub took_s: f64,
}

impl CellReport {
    /// Whether the cell is a real load and came out as predicted.
    pub fn ok(&self) -> bool {
        self.valid && self.as_predicted
    }

    /// A cell that could not be run: invalid, whatever was predicted.
    pub fn failed(place: Place, stock: u64, error: String, took: Duration) -> Self {
        Self {
            place,
            requests: 0,
            stock,
            orders: 0,
            oversold: 0,
            duplicate_users: 0,
            lost: 0,
            predicted: place.predicted(),
            observed: Prediction::HOLDS,
            as_predicted: false,
            valid: false,
            orders_per_s: 0.0,
            p50_ms: 0.0,
            p99_ms: 0.0,
            invalid_because: vec!["it could not be run".to_owned()],
            broken_rules: Vec::new(),
            error: Some(error),
            load: None,
            verdict: None,
            audit: None,
            took_s: took.as_secs_f64(),
        }
    }

    /// The report on a load that was run and judged.
    pub fn of(place: Place, stock: u64, figures: Figures, verdict: Verdict) -> Self {
        let predicted = place.predicted();
        let observed =
            Prediction { oversells: verdict.oversold > 0, duplicates: verdict.duplicate_users > 0 };
        let mut demanded = demanded(predicted);
        demanded.retain(|rule| *rule != Rule::TokensRise || verdict.fenced());
        let broken_rules: Vec<Rule> =
            verdict.broken(&demanded).map(|finding| finding.rule).collect();
        let invalid_because = validity::reasons(&figures, stock, verdict.orders, place.replicas);
        Self {
            place,
            requests: figures.requests,
            stock,
            orders: verdict.orders,
            oversold: verdict.oversold,
            duplicate_users: verdict.duplicate_users,
            lost: verdict.lost,
            predicted,
            observed,
            as_predicted: observed == predicted && broken_rules.is_empty(),
            valid: invalid_because.is_empty(),
            orders_per_s: figures.orders_per_s,
            p50_ms: figures.all.p50_ms,
            p99_ms: figures.all.p99_ms,
            invalid_because,
            broken_rules,
            error: None,
            load: Some(figures),
            verdict: Some(verdict),
            audit: None,
            took_s: 0.0,
        }
    }
}

/// The rules that a cell must keep. What it is predicted to break is not demanded, nor that the
/// stock adds up where naive code overwrites it; that nothing acknowledged is lost, no refusal
/// leaves an order and the audit tells the truth is demanded everywhere; that tokens do not fall,
/// wherever holders are fenced. So is a true "sold out":
/// even a stock that loses updates falls by at most one for each order.
pub fn demanded(predicted: Prediction) -> Vec<Rule> {
    let hangs_on_it = |rule: &Rule| match rule {
        Rule::OrdersWithinStock => predicted.oversells,
        Rule::OneOrderPerUser => predicted.duplicates,
        Rule::StockAddsUp => !predicted.holds(),
        _ => false,
    };
    Rule::ALL.into_iter().filter(|rule| !hangs_on_it(rule)).collect()
}

/// Runs one cell from its database to its verdict.
pub async fn run(cluster: &Cluster, number: u16, place: Place, load: &Load) -> CellReport {
    let began = Instant::now();
    let (replicas, flags, needs) = (place.replicas, place.flags(load), place.lock.needs());
    let spec = Spec { number, replicas, flags, needs, page_port: None };
    let deployment = match cluster.deploy(spec).await {
        Ok(deployment) => deployment,
        Err(error) => {
            return CellReport::failed(place, load.stock, error.to_string(), began.elapsed());
        }
    };
    let mut report = match sell(&deployment, place, load).await {
        Ok(report) => report,
        Err(error) => {
            let text = format!("{error}\n{}", deployment.log_tails());
            CellReport::failed(place, load.stock, text, began.elapsed())
        }
    };
    deployment.end().await;
    report.took_s = began.elapsed().as_secs_f64();
    report
}

async fn sell(deployment: &Deployment, place: Place, load: &Load) -> Result<CellReport> {
    let ((users, _), (admins, _)) =
        tokio::try_join!(deployment.users(load.users, false), deployment.users(1, true))?;
    let admin = admins[0].authorization.clone();
    let target = Target::parse(deployment.url())?;
    let mut private = Connection::new(target.clone(), CALL_DEADLINE);
    let voucher = api::put_on_sale(&mut private, &admin, &on_sale_now(load.stock))
        .await
        .map_err(|error| Error::Setup(error.to_string()))?;
    let plan = Plan {
        connections: load.connections,
        timeout: REQUEST_DEADLINE,
        ..Plan::closed(target, voucher, users.into(), load.requests_per_user)
    };
    plan.check()?;
    let connections = drive::connect(&plan).await?;
    let live = Arc::new(Live::new(&plan));
    let progress = Progress::follow(&place.to_string(), &live, &plan);
    let recorded = Recorded::begin(&plan, None, &[i64::try_from(load.stock).ok()])?;
    let figures = drive::run(&plan, connections, recorded.recorder(), &live).await?;
    drop(progress);
    let quiet = figures.count(Outcome::Unknown) == 0;
    let id = voucher.to_string();
    let reading = read(deployment, &id, (place.guards, quiet)).await?;
    let mut operator = Connection::new(Target::parse(deployment.operator_url())?, CALL_DEADLINE);
    let said = api::audit(&mut operator, &admin, &id).await;
    let dead = deployment.dead();
    if !dead.is_empty() {
        return Err(Error::Setup(format!("replica {} died", dead.join(" and "))));
    }
    let read = FinalRead::Database { reading: &reading, said: said.as_ref().ok() };
    recorded.recorder().final_read(voucher, read).await;
    let verdict = verdict(&recorded.end().await?);
    let mut report = CellReport::of(place, load.stock, figures, verdict);
    if let Err(error) = &said {
        report.error = Some(error.to_string());
    }
    report.audit = said.ok();
    Ok(report)
}

/// The verdict on a history with one voucher. It is judged by the stock that was asked for,
/// whatever the service made of it.
fn verdict(past: &Past) -> Verdict {
    let judged = judge_all(past).pop();
    judged.map_or_else(|| Verdict::unjudged("nothing was on sale"), |judged| judged.verdict)
}

/// Reads the voucher; unless all is `quiet`, until two readings are equal, because a request whose
/// outcome is unknown may still be at work.
async fn read(
    deployment: &Deployment,
    voucher: &str,
    (guards, quiet): (Guards, bool),
) -> Result<Reading> {
    let mut reader = Reader::connect(deployment.database_url()).await?;
    let mut last = reader.read(voucher, guards).await?;
    if quiet {
        return Ok(last);
    }
    for _ in 0..SETTLE_READINGS {
        tokio::time::sleep(SETTLE_PAUSE).await;
        let next = reader.read(voucher, guards).await?;
        if next.account == last.account {
            return Ok(next);
        }
        last = next;
    }
    Err(Error::Setup("the orders still changed after the load had ended".to_owned()))
}

fn on_sale_now(stock: u64) -> NewVoucher {
    let now = time::OffsetDateTime::now_utc();
    NewVoucher {
        title: "100-yuan voucher for 80".to_owned(),
        description: "Sold in one go, to whoever comes first.".to_owned(),
        price_cents: 8000,
        face_value_cents: 10_000,
        starts_at: api::rfc3339(now - time::Duration::minutes(1)),
        ends_at: api::rfc3339(now + time::Duration::hours(1)),
        stock,
    }
}

#[cfg(test)]
#[path = "cell_tests.rs"]
mod tests;

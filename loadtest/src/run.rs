//! One load on any deployment, judged by what clients can see, and by the audit if its address is
//! given.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use loadtest_judge::check::{Judgement, VoucherJudgement};
use loadtest_judge::conditions::share;
use loadtest_judge::terms::Terms;
use loadtest_judge::witness;
use loadtest_load::api::{ApiError, Voucher};
use loadtest_load::arrival::Arrival;
use loadtest_load::client::{Connection, Target};
use loadtest_load::history::final_state::{Audit, OrderRow};
use loadtest_load::history::{Condition, Event, FinalRead, Recorder};
use loadtest_load::history_file::{AcknowledgedOrders, HistoryFile};
use loadtest_load::live::LiveFigures;
use loadtest_load::mix::Mix;
use loadtest_load::outcome::Outcome;
use loadtest_load::plan::{MAX_REQUESTS, Plan};
use loadtest_load::progress::Progress;
use loadtest_load::stats::Figures;
use loadtest_load::{api, drive, tokens};
use loadtest_measure::error::{Error, Result};
use loadtest_report::run_report::{RunReport, VoucherReport};

/// Part of the requests that must have come after the last unit, where the mix says so.
const MIN_LATE_SHARE: f64 = 0.5;
/// Requests without a known outcome may continue: so long after one look at the orders there is
/// another, until two see the same. All of them take longer than the 30 s in which the service
/// finds the outcome of a COMMIT.
const SETTLE_PAUSE: Duration = Duration::from_secs(3);
const MAX_READINGS: usize = 12;
/// How long a call besides the load may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// Where the service's own audit is read.
#[derive(Debug, Clone)]
pub struct AuditSource {
    /// The operators' address, or a replica's own.
    pub target: Arc<Target>,
    /// An administrator.
    pub admin: HeaderValue,
}

impl AuditSource {
    /// From the command line: both or neither.
    pub fn of(url: Option<&str>, admin: Option<&PathBuf>) -> Result<Option<Self>> {
        match (url, admin) {
            (Some(url), Some(file)) => {
                let admin = tokens::read(file)?[0].authorization.clone();
                Ok(Some(Self { target: Target::parse(url)?, admin }))
            }
            (None, None) => Ok(None),
            _ => Err(Error::Usage("--audit-url and --admin-token-file go together".to_owned())),
        }
    }

    async fn read(&self, voucher: &str) -> std::result::Result<Audit, ApiError> {
        let mut connection = Connection::new(self.target.clone(), CALL_DEADLINE);
        api::audit(&mut connection, &self.admin, voucher).await
    }
}

/// What is known of a voucher before the first request.
struct VoucherBefore {
    voucher: Voucher,
    audit: Option<Audit>,
    earlier: HashSet<u64>,
}

/// What is known of a voucher after the last answer.
#[derive(Default)]
struct VoucherAfter {
    left: Option<i64>,
    audits: Option<[Audit; 2]>,
}

/// Runs the load, records it in `file` (or a temporary one) and judges it. Errors are those that
/// stop it before its first request, and a history that cannot be written.
pub async fn run(
    plan: &Plan,
    source: Option<&AuditSource>,
    file: Option<&Path>,
) -> Result<RunReport> {
    plan.check()?;
    greet(plan).await?;
    let connections = drive::connect(plan).await?;
    let before = read_before(plan, source).await?;
    let offered: Vec<Option<i64>> = before.iter().map(|one| one.voucher.stock).collect();
    let recorded = HistoryFile::begin(plan, file, &offered)?;
    let live = Arc::new(LiveFigures::new(plan));
    let progress = Progress::follow("load", &live, plan);
    let figures = drive::run(plan, connections, recorded.recorder(), &live).await?;
    drop(progress);
    let mut conditions = conditions(plan, &before, &figures);
    let acknowledged = recorded.acknowledged().await?;
    let reader = FinalReader { plan, source, before: &before, acknowledged: &acknowledged };
    let seen = if figures.count(Outcome::Unknown) > 0 {
        reader.until_settled(&mut conditions).await
    } else {
        reader.read_all().await
    };
    let mut after = Vec::new();
    for (before, seen) in before.iter().zip(seen) {
        after.push(seen.record(before, recorded.recorder(), &mut conditions).await);
    }
    for condition in conditions {
        recorded.recorder().record(Event::Condition(condition)).await;
    }
    let history = recorded.end().await?;
    let terms = Terms::of_history(&history).map_err(|error| Error::Setup(error.to_string()))?;
    let judgement = Judgement::of(file.unwrap_or(Path::new("")), &history, &terms);
    let Judgement { ok, failed_because, conditions, vouchers, .. } = judgement;
    Ok(RunReport {
        ok,
        failed_because,
        target: plan.target.to_string(),
        seed: plan.seed,
        settings: plan.settings(),
        conditions,
        vouchers: vouchers.into_iter().zip(before).zip(after).map(voucher_report).collect(),
        no_speed_verdict: figures.bottlenecks(),
        load: figures,
    })
}

async fn read_before(plan: &Plan, source: Option<&AuditSource>) -> Result<Vec<VoucherBefore>> {
    let mut all = Vec::new();
    for id in &plan.vouchers {
        let id = id.to_string();
        let voucher = witness::voucher(plan, &id).await.map_err(unreachable)?;
        let audit = match source {
            Some(source) => Some(source.read(&id).await.map_err(unreachable)?),
            None => None,
        };
        let earlier = match &audit {
            Some(audit) if audit.orders == 0 => HashSet::new(),
            _ => witness::earlier(plan, &id).await.map_err(unreachable)?,
        };
        all.push(VoucherBefore { voucher, audit, earlier });
    }
    Ok(all)
}

fn voucher_report(
    ((judged, before), after): ((VoucherJudgement, VoucherBefore), VoucherAfter),
) -> VoucherReport {
    let findings = judged.verdict.findings.iter();
    let not_judged = findings.filter(|finding| finding.held.is_none());
    VoucherReport {
        not_judged: not_judged.map(|finding| finding.rule.words()).collect(),
        judged,
        title: before.voucher.title,
        stock_left: after.left,
        audit: after.audits,
    }
}

/// A look at the outcome of the vouchers.
struct FinalReader<'a> {
    plan: &'a Plan,
    source: Option<&'a AuditSource>,
    before: &'a [VoucherBefore],
    acknowledged: &'a AcknowledgedOrders,
}

/// What it sees of one.
struct FinalReading {
    audit: Option<std::result::Result<Audit, ApiError>>,
    rows: std::result::Result<Vec<OrderRow>, ApiError>,
    voucher: std::result::Result<Voucher, ApiError>,
}

impl FinalReader<'_> {
    /// Looks until nothing changes any more. If it does to the end, that is a condition that was
    /// not met.
    async fn until_settled(&self, conditions: &mut Vec<Condition>) -> Vec<FinalReading> {
        let mut seen = self.read_all().await;
        let (mut readings, mut met) = (1, false);
        while !met && readings < MAX_READINGS {
            tokio::time::sleep(SETTLE_PAUSE).await;
            let next = self.read_all().await;
            met = next.iter().zip(&seen).all(|(next, last)| next.settles(last));
            (seen, readings) = (next, readings + 1);
        }
        let detail = format!("{readings} looks, {SETTLE_PAUSE:?} apart");
        conditions.push(Condition { what: "two looks saw the same orders".into(), met, detail });
        seen
    }

    async fn read_all(&self) -> Vec<FinalReading> {
        let mut seen = Vec::with_capacity(self.before.len());
        for before in self.before {
            seen.push(self.at(&before.voucher.id).await);
        }
        seen
    }

    async fn at(&self, id: &str) -> FinalReading {
        let audit = match self.source {
            Some(source) => Some(source.read(id).await),
            None => None,
        };
        let none = HashMap::new();
        let voucher_report = self.acknowledged.get(&number(id)).unwrap_or(&none);
        let rows = witness::afterwards(self.plan, id, voucher_report).await;
        FinalReading { audit, rows, voucher: witness::voucher(self.plan, id).await }
    }
}

impl FinalReading {
    /// Whether nothing has changed since the last look. Nor does another one help if the orders
    /// cannot be seen: that was tried often enough.
    fn settles(&self, last: &Self) -> bool {
        let stock = |seen: &Self| seen.voucher.as_ref().ok().and_then(|voucher| voucher.stock);
        match (&self.rows, &last.rows) {
            (Ok(rows), Ok(before)) => rows == before && stock(self) == stock(last),
            (Ok(_), Err(_)) => false,
            (Err(_), _) => true,
        }
    }

    /// Records it. What cannot be seen is a condition that was not met; without its orders a
    /// voucher cannot be judged.
    async fn record(
        self,
        before: &VoucherBefore,
        recorder: &Recorder,
        conditions: &mut Vec<Condition>,
    ) -> VoucherAfter {
        let Self { audit, rows, voucher } = self;
        let audit = audit.and_then(|audit| noted(conditions, "the audit can be read", audit));
        let rows = noted(conditions, "orders can be looked at", rows);
        let voucher = noted(conditions, "the voucher can be looked at", voucher);
        let left = voucher.and_then(|voucher| voucher.stock);
        let audits = before.audit.clone().zip(audit).map(|(before, after)| [before, after]);
        let Some(rows) = rows else { return VoucherAfter::default() };
        let read = FinalRead::Clients {
            rows: &rows,
            earlier: &before.earlier,
            left,
            audits: audits.as_ref().map(|[before, after]| [before, after]),
        };
        recorder.final_read(number(&before.voucher.id), read).await;
        VoucherAfter { left, audits }
    }
}

/// The id of a voucher that was named by its number.
fn number(id: &str) -> u64 {
    id.parse().unwrap_or_default()
}

/// Shows the first token to the target: one that is not accepted would make the whole load say
/// nothing.
async fn greet(plan: &Plan) -> Result<()> {
    let user = plan.users.first().ok_or_else(|| Error::Usage("there are no users".to_owned()))?;
    let mut connection = Connection::new(plan.target.clone(), plan.timeout);
    match api::user_id(&mut connection, &user.authorization).await {
        Ok(id) if id == user.id.to_string() => Ok(()),
        Ok(id) => Err(Error::Usage(format!(
            "line 1 of the token file is broken: its token is that of user {id}, not of {}",
            user.id
        ))),
        Err(ApiError::Status { status: 401, .. }) => Err(Error::Usage(format!(
            "{} does not accept the token in line 1 of the token file (401)",
            plan.target
        ))),
        Err(error) => Err(unreachable(error)),
    }
}

#[allow(clippy::needless_pass_by_value)]
fn unreachable(error: ApiError) -> Error {
    Error::Setup(error.to_string())
}

/// The value, or `None` with a condition that was not met.
fn noted<T>(
    conditions: &mut Vec<Condition>,
    what: &str,
    result: std::result::Result<T, ApiError>,
) -> Option<T> {
    let (met, detail) = match &result {
        Ok(_) => (true, "yes".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    conditions.push(Condition { what: what.to_owned(), met, detail });
    result.ok()
}

/// Conditions that the requests of the history do not show; the judge adds the others.
fn conditions(plan: &Plan, before: &[VoucherBefore], figures: &Figures) -> Vec<Condition> {
    let mut conditions: Vec<Condition> = before.iter().map(|one| on_sale(&one.voucher)).collect();
    let mut add = |what: &str, met: bool, detail: String| {
        conditions.push(Condition { what: what.to_owned(), met, detail });
    };
    if plan.was_cut_off(figures.requests) {
        let detail = format!("it ended at {MAX_REQUESTS} requests, all that a load may have");
        add("the load went on until its time was over", false, detail);
    }
    if plan.arrival.is_open() {
        let dropped = figures.cost.dropped;
        let detail = format!("{dropped} requests found no connection in time");
        add("every arrival was sent", dropped == 0, detail);
    }
    if plan.mix == Mix::AfterSoldOut && !matches!(plan.arrival, Arrival::Trace(_)) {
        let late = figures.count(Outcome::SoldOut) + figures.count(Outcome::AlreadyOrdered);
        let met = share(late, figures.requests) > MIN_LATE_SHARE;
        let detail = format!("{late} of {} were sold out or ordered already", figures.requests);
        add("most requests came after the last unit", met, detail);
    }
    conditions
}

fn on_sale(voucher: &Voucher) -> Condition {
    Condition {
        what: "the voucher is on sale".to_owned(),
        met: voucher.status == "on_sale" && voucher.phase == "open",
        detail: format!("voucher {}: {}, {}", voucher.id, voucher.status, voucher.phase),
    }
}

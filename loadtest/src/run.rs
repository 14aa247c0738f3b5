//! One load on any deployment, judged by what clients can see, and by the audit if its address is
//! given.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde::Serialize;

use crate::api::{self, ApiError, Voucher};
use crate::error::{Error, Result};
use crate::history::{Condition, Event, FinalRead, Recorder};
use crate::judge::check::{Judged, Judgement};
use crate::judge::conditions::share;
use crate::judge::evidence::{Audit, OrderRow};
use crate::judge::witness;
use crate::load::arrival::Arrival;
use crate::load::client::{Connection, Target};
use crate::load::drive;
use crate::load::live::Live;
use crate::load::mix::Mix;
use crate::load::outcome::Outcome;
use crate::load::plan::{MAX_REQUESTS, Plan};
use crate::load::progress::Progress;
use crate::load::recorded::{Acknowledged, Recorded};
use crate::load::stats::Figures;
use crate::load::tokens;

/// Part of the requests that must have come after the last unit, where the mix says so.
const MIN_LATE_SHARE: f64 = 0.5;
/// Requests without a known outcome may go on: so long after one look at the orders there is
/// another, until two see the same. All of them take longer than the 30 s in which the service
/// finds out what became of a COMMIT.
const SETTLE: Duration = Duration::from_secs(3);
const MOST_LOOKS: usize = 12;
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

/// What came out of one load; the report's JSON.
#[derive(Debug, Serialize)]
pub struct RunReport {
    /// Whether every condition is met, every demanded rule was judged and held, and no other rule
    /// is broken.
    pub ok: bool,
    /// Why not, in words.
    pub failed_because: Vec<String>,
    /// Where the requests went.
    pub target: String,
    /// What all random choices came from; the same seed gives the same plan.
    pub seed: u64,
    /// What was asked for.
    pub settings: BTreeMap<String, String>,
    /// What must be so for the load to say anything.
    pub conditions: Vec<Condition>,
    /// Each voucher by itself.
    pub vouchers: Vec<VoucherReport>,
    /// All figures of the load.
    pub load: Figures,
    /// Why its figures on speed say too little for the service; empty if they say something.
    pub no_speed_verdict: Vec<String>,
}

/// What came of one voucher.
#[derive(Debug, Serialize)]
pub struct VoucherReport {
    /// The rules that must hold, and every rule with its figures.
    #[serde(flatten)]
    pub judged: Judged,
    /// The voucher's name.
    pub title: String,
    /// Units that were left after the load.
    pub stock_left: Option<i64>,
    /// Names of rules that could not be judged with what is known. They do not count as held.
    pub not_judged: Vec<&'static str>,
    /// The service's own audit before and after, if it was read.
    pub audit: Option<[Audit; 2]>,
}

/// What is known of a voucher before the first request.
struct Before {
    voucher: Voucher,
    audit: Option<Audit>,
    earlier: HashSet<u64>,
}

/// What is known of a voucher after the last answer.
#[derive(Default)]
struct After {
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
    let before = look_before(plan, source).await?;
    let offered: Vec<Option<i64>> = before.iter().map(|one| one.voucher.stock).collect();
    let recorded = Recorded::begin(plan, file, &offered)?;
    let live = Arc::new(Live::new(plan));
    let progress = Progress::follow("load", &live, plan);
    let figures = drive::run(plan, connections, recorded.recorder(), &live).await?;
    drop(progress);
    let mut conditions = conditions(plan, &before, &figures);
    let acknowledged = recorded.acknowledged().await?;
    let look = Look { plan, source, before: &before, acknowledged: &acknowledged };
    let seen = if figures.count(Outcome::Unknown) > 0 {
        look.until_settled(&mut conditions).await
    } else {
        look.at_all().await
    };
    let mut after = Vec::new();
    for (before, seen) in before.iter().zip(seen) {
        after.push(seen.record(before, recorded.recorder(), &mut conditions).await);
    }
    for condition in conditions {
        recorded.recorder().record(Event::Condition(condition)).await;
    }
    let judgement = Judgement::of(file.unwrap_or(Path::new("")), &recorded.end().await?);
    let Judgement { ok, failed_because, conditions, vouchers, .. } = judgement;
    Ok(RunReport {
        ok,
        failed_because,
        target: plan.target.to_string(),
        seed: plan.seed,
        settings: plan.settings(),
        conditions,
        vouchers: vouchers.into_iter().zip(before).zip(after).map(told).collect(),
        no_speed_verdict: figures.bottlenecks(),
        load: figures,
    })
}

async fn look_before(plan: &Plan, source: Option<&AuditSource>) -> Result<Vec<Before>> {
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
        all.push(Before { voucher, audit, earlier });
    }
    Ok(all)
}

fn told(((judged, before), after): ((Judged, Before), After)) -> VoucherReport {
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

/// A look at what became of the vouchers.
struct Look<'a> {
    plan: &'a Plan,
    source: Option<&'a AuditSource>,
    before: &'a [Before],
    acknowledged: &'a Acknowledged,
}

/// What it sees of one.
struct Seen {
    audit: Option<std::result::Result<Audit, ApiError>>,
    rows: std::result::Result<Vec<OrderRow>, ApiError>,
    voucher: std::result::Result<Voucher, ApiError>,
}

impl Look<'_> {
    /// Looks until nothing changes any more. If it does to the end, that is a condition that was
    /// not met.
    async fn until_settled(&self, conditions: &mut Vec<Condition>) -> Vec<Seen> {
        let mut seen = self.at_all().await;
        let (mut looks, mut met) = (1, false);
        while !met && looks < MOST_LOOKS {
            tokio::time::sleep(SETTLE).await;
            let next = self.at_all().await;
            met = next.iter().zip(&seen).all(|(next, last)| next.settles(last));
            (seen, looks) = (next, looks + 1);
        }
        let detail = format!("{looks} looks, {SETTLE:?} apart");
        conditions.push(Condition { what: "two looks saw the same orders".into(), met, detail });
        seen
    }

    async fn at_all(&self) -> Vec<Seen> {
        let mut seen = Vec::with_capacity(self.before.len());
        for before in self.before {
            seen.push(self.at(&before.voucher.id).await);
        }
        seen
    }

    async fn at(&self, id: &str) -> Seen {
        let audit = match self.source {
            Some(source) => Some(source.read(id).await),
            None => None,
        };
        let none = HashMap::new();
        let told = self.acknowledged.get(&number(id)).unwrap_or(&none);
        let rows = witness::afterwards(self.plan, id, told).await;
        Seen { audit, rows, voucher: witness::voucher(self.plan, id).await }
    }
}

impl Seen {
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
        before: &Before,
        recorder: &Recorder,
        conditions: &mut Vec<Condition>,
    ) -> After {
        let Self { audit, rows, voucher } = self;
        let audit = audit.and_then(|audit| noted(conditions, "the audit can be read", audit));
        let rows = noted(conditions, "orders can be looked at", rows);
        let voucher = noted(conditions, "the voucher can be looked at", voucher);
        let left = voucher.and_then(|voucher| voucher.stock);
        let audits = before.audit.clone().zip(audit).map(|(before, after)| [before, after]);
        let Some(rows) = rows else { return After::default() };
        let read = FinalRead::Clients {
            rows: &rows,
            earlier: &before.earlier,
            left,
            audits: audits.as_ref().map(|[before, after]| [before, after]),
        };
        recorder.final_read(number(&before.voucher.id), read).await;
        After { left, audits }
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
    match api::me(&mut connection, &user.authorization).await {
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

/// Those that the requests of the history do not show; the judge adds the others.
fn conditions(plan: &Plan, before: &[Before], figures: &Figures) -> Vec<Condition> {
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

//! One load on any deployment, judged by what clients can see, and by the audit if its address is
//! given.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde::Serialize;

use crate::api::{self, ApiError, Voucher};
use crate::error::{Error, Result};
use crate::judge::evidence::{Audit, AuditCheck, Evidence, OrderRow};
use crate::judge::validity::MAX_UNKNOWN_SHARE;
use crate::judge::verdict::{Finding, Rule, Verdict, judge};
use crate::judge::witness;
use crate::load::client::{Connection, Target};
use crate::load::drive::{self, History, Live};
use crate::load::outcome::Outcome;
use crate::load::plan::Plan;
use crate::load::progress::Progress;
use crate::load::stats::Figures;
use crate::load::tokens;

/// How long requests without a known outcome may go on before the orders are looked at.
const SETTLE: Duration = Duration::from_secs(3);

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

    async fn read(&self, plan: &Plan) -> std::result::Result<Audit, ApiError> {
        let mut connection = Connection::new(self.target.clone(), plan.timeout);
        api::audit(&mut connection, &self.admin, &plan.voucher).await
    }
}

/// Something that must be so for the load to say anything.
#[derive(Debug, Clone, Serialize)]
pub struct Condition {
    /// What must be so.
    pub what: &'static str,
    /// Whether it is.
    pub met: bool,
    /// The figures behind it.
    pub detail: String,
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
    /// The voucher's id.
    pub voucher: String,
    /// Its name.
    pub title: String,
    /// Units that were left when the load began.
    pub stock: Option<i64>,
    /// Units that were left after it.
    pub stock_left: Option<i64>,
    /// What must be so for the load to say anything.
    pub conditions: Vec<Condition>,
    /// Rules that must hold; see [`Verdict::demanded`].
    pub demanded: Vec<Rule>,
    /// Names of rules that could not be judged with what is known. They do not count as held.
    pub not_judged: Vec<&'static str>,
    /// Every rule with its figures.
    pub verdict: Verdict,
    /// All figures of the load.
    pub load: Figures,
    /// The service's own audit before and after, if it was read.
    pub audit: Option<[Audit; 2]>,
}

/// What is known before the first request.
struct Before {
    voucher: Voucher,
    audit: Option<Audit>,
    earlier: HashSet<u64>,
}

/// What is known after the last answer.
struct After {
    rows: Vec<OrderRow>,
    left: Option<i64>,
    audits: Option<(Audit, Audit)>,
}

/// Runs the load and judges it. Errors are those that stop it before its first request.
pub async fn run(plan: &Plan, source: Option<&AuditSource>) -> Result<RunReport> {
    plan.check()?;
    greet(plan).await?;
    let (connections, voucher) = drive::connect(plan).await?;
    let audit = match source {
        Some(source) => Some(source.read(plan).await.map_err(unreachable)?),
        None => None,
    };
    let earlier = match &audit {
        Some(audit) if audit.orders == 0 => HashSet::new(),
        _ => witness::earlier(plan).await.map_err(unreachable)?,
    };
    let before = Before { voucher, audit, earlier };
    let live = Arc::<Live>::default();
    let progress = Progress::follow("load", live.clone(), plan.requests());
    let history = drive::closed_loop(plan, connections, live).await;
    drop(progress);
    let figures = Figures::of(&history, plan.connections);
    if figures.count(Outcome::Unknown) > 0 {
        tokio::time::sleep(SETTLE).await;
    }
    let mut conditions = conditions(&before.voucher, &figures);
    let after = look(plan, (source, &before), &history, &mut conditions).await;
    let (verdict, left, audits) = match after {
        Some(after) => (judge_public(&history, &before, &after), after.left, after.audits),
        None => (Verdict::unjudged("orders could not be looked at"), None, None),
    };
    let demanded = verdict.demanded(false, source.is_some());
    let failed_because = failures(&conditions, &verdict, &demanded);
    let not_judged = verdict.findings.iter().filter(|finding| finding.held.is_none());
    Ok(RunReport {
        ok: failed_because.is_empty(),
        failed_because,
        target: plan.target.to_string(),
        voucher: plan.voucher.clone(),
        title: before.voucher.title,
        stock: before.voucher.stock,
        stock_left: left,
        conditions,
        demanded,
        not_judged: not_judged.map(|finding| finding.rule.words()).collect(),
        verdict,
        load: figures,
        audit: audits.map(|(before, after)| [before, after]),
    })
}

/// Looks at what became of the load; `None` if the orders cannot be seen. What cannot be seen is a
/// condition that was not met.
async fn look(
    plan: &Plan,
    (source, before): (Option<&AuditSource>, &Before),
    history: &History,
    conditions: &mut Vec<Condition>,
) -> Option<After> {
    let audit = match source {
        Some(source) => noted(conditions, "the audit can be read", source.read(plan).await),
        None => None,
    };
    let rows = witness::afterwards(plan, &history.records).await;
    let rows = noted(conditions, "orders can be looked at", rows);
    let voucher = witness::voucher(plan).await;
    let voucher = noted(conditions, "the voucher can be looked at", voucher);
    let left = voucher.and_then(|voucher| voucher.stock);
    rows.map(|rows| After { rows, left, audits: before.audit.clone().zip(audit) })
}

/// Why a load is no pass, in words: a condition, a rule that was broken, or one that is demanded
/// and could not be judged.
fn failures(conditions: &[Condition], verdict: &Verdict, demanded: &[Rule]) -> Vec<String> {
    let unmet = conditions.iter().filter(|condition| !condition.met);
    let unmet = unmet.map(|condition| format!("not so: {} ({})", condition.what, condition.detail));
    let failed = verdict.findings.iter().filter_map(|finding| {
        let Finding { rule, held, detail, .. } = finding;
        match held {
            Some(false) => Some(format!("not so: {} ({detail})", rule.words())),
            None if demanded.contains(rule) => {
                Some(format!("could not be judged: {} ({detail})", rule.words()))
            }
            Some(true) | None => None,
        }
    });
    unmet.chain(failed).collect()
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
    what: &'static str,
    result: std::result::Result<T, ApiError>,
) -> Option<T> {
    let (met, detail) = match &result {
        Ok(_) => (true, "yes".to_owned()),
        Err(error) => (false, error.to_string()),
    };
    conditions.push(Condition { what, met, detail });
    result.ok()
}

fn conditions(voucher: &Voucher, figures: &Figures) -> Vec<Condition> {
    let reached = [Outcome::Bought, Outcome::SoldOut, Outcome::AlreadyOrdered];
    let reached: u64 = reached.iter().map(|outcome| figures.count(*outcome)).sum();
    vec![
        Condition {
            what: "the voucher is on sale",
            met: voucher.status == "on_sale" && voucher.phase == "open",
            detail: format!("{}, {}", voucher.status, voucher.phase),
        },
        Condition {
            what: "it had units to sell",
            met: voucher.stock.is_some_and(|stock| stock > 0),
            detail: voucher.stock.map_or("not told".to_owned(), |stock| format!("{stock} units")),
        },
        Condition {
            what: "requests reached the sale",
            met: reached > 0,
            detail: format!("{reached} bought, sold out or already ordered"),
        },
        Condition {
            what: "few outcomes are unknown",
            met: figures.unknown_share() <= MAX_UNKNOWN_SHARE,
            detail: format!(
                "{} of {} requests ({:.1} %), at most {:.0} %",
                figures.count(Outcome::Unknown),
                figures.requests,
                figures.unknown_share() * 100.0,
                MAX_UNKNOWN_SHARE * 100.0
            ),
        },
    ]
}

fn judge_public(history: &History, before: &Before, after: &After) -> Verdict {
    judge(&Evidence {
        records: &history.records,
        names: &history.names,
        rows: &after.rows,
        rows_are_all: false,
        earlier: &before.earlier,
        elsewhere: &HashSet::new(),
        offered: before.voucher.stock,
        granted: None,
        left: after.left,
        effects: &[],
        audit: after
            .audits
            .as_ref()
            .map_or(AuditCheck::Absent, |(before, after)| AuditCheck::Moved { before, after }),
    })
}

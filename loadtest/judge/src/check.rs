//! Judges a recorded history; it can be repeated at any time.
//!
//! The final reads show the outcome of requests with unknown outcomes: those in the file, or a new
//! reading of the database. A history is bad if it is cut off, says nothing, has no final read, or
//! cannot be judged in time.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loadtest_load::history::{Condition, History, Mark, ReadError, Source, VoucherHistory};
use loadtest_load::outcome::Outcome;
use loadtest_measure::error::{Error, Result};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use crate::audit::DatabaseReader;
use crate::conditions;
use crate::database_reread::{own_account, replace_final_reads};
use crate::evidence::{AuditCheck, Evidence};
use crate::setting::Guards;
use crate::terms::Terms;
use crate::verdict::{Rule, RuleFinding, Verdict, judge};

/// The input of a judgement.
#[derive(Debug, Clone)]
pub struct Check {
    /// The recorded history.
    pub file: PathBuf,
    /// The database to be read instead of the final reads in the file; its URL may hold a password.
    pub database: Option<SecretString>,
    /// How long it may take.
    pub deadline: Duration,
}

/// What came of it; the report's JSON.
#[derive(Debug, Serialize)]
pub struct Judgement {
    /// Whether the history is whole, every condition is met, every demanded rule was judged and
    /// held, and no other is broken.
    pub ok: bool,
    /// Why not, in words.
    pub failed_because: Vec<String>,
    /// The file.
    pub file: String,
    /// The name of the recorded run.
    pub run: Option<String>,
    /// Where its requests went.
    pub target: Option<String>,
    /// When it began.
    pub began_at: Option<String>,
    /// Lines of the history.
    pub events: u64,
    /// Requests.
    pub requests: u64,
    /// Requests whose clients got no outcome.
    pub unknown: u64,
    /// What must be so for the load to say anything.
    pub conditions: Vec<Condition>,
    /// What happened meanwhile, as it was recorded; no rule depends on it.
    pub marks: Vec<Mark<'static>>,
    /// Each voucher by itself.
    pub vouchers: Vec<VoucherJudgement>,
    /// How long it took.
    pub took_s: f64,
}

/// The verdict on one voucher.
#[derive(Debug, Serialize)]
pub struct VoucherJudgement {
    /// Its id.
    pub voucher: String,
    /// Units that were there to be sold.
    pub offered: Option<i64>,
    /// Rules that must hold.
    pub demanded: Vec<Rule>,
    /// Every rule with its figures and proofs.
    pub verdict: Verdict,
}

impl VoucherJudgement {
    /// Why this is no pass, in words: rules that were broken, and those that are demanded and could
    /// not be judged.
    pub fn failures(&self) -> Vec<String> {
        let failure = |finding: &RuleFinding| {
            let RuleFinding { rule, held, detail, .. } = finding;
            let what = match held {
                Some(false) => "rule broken",
                None if self.demanded.contains(rule) => "could not be judged",
                Some(true) | None => return None,
            };
            Some(format!("voucher {}: {what}: {} ({detail})", self.voucher, rule.words()))
        };
        self.verdict.findings.iter().filter_map(failure).collect()
    }
}

impl Check {
    /// Judges the history. Errors are those that keep it from being looked at.
    pub async fn run(&self) -> Result<Judgement> {
        let began = Instant::now();
        let judgement = match tokio::time::timeout(self.deadline, self.judge()).await {
            Ok(judged) => judged?,
            Err(_) => self.failed(format!("the check did not end within {:?}", self.deadline)),
        };
        Ok(Judgement { took_s: began.elapsed().as_secs_f64(), ..judgement })
    }

    async fn judge(&self) -> Result<Judgement> {
        let file = self.file.clone();
        let read = blocking(move || History::read(&file)).await?;
        let mut history = match read {
            Ok(history) => history,
            Err(error @ ReadError::NotOpened { .. }) => {
                return Err(Error::Usage(error.to_string()));
            }
            Err(error) => return Ok(self.failed(error.to_string())),
        };
        let terms = match Terms::of_history(&history) {
            Ok(terms) => terms,
            Err(error) => return Ok(self.failed(error.to_string())),
        };
        let mut readings = Vec::new();
        if let Some(url) = &self.database {
            let mut reader = DatabaseReader::connect(url.expose_secret()).await?;
            for voucher_history in &history.vouchers {
                let reading = reader
                    .read(
                        &voucher_history.offer.id.to_string(),
                        guards_of(&history, voucher_history),
                    )
                    .await?;
                readings.push(reading);
            }
        }
        if self.database.is_some() {
            replace_final_reads(&mut history, readings)?;
        }
        let file = self.file.clone();
        blocking(move || Judgement::of(&file, &history, &terms)).await
    }

    /// A judgement that fails for this reason, without any rule having been judged.
    pub fn failed(&self, why: String) -> Judgement {
        Judgement {
            ok: false,
            failed_because: vec![why],
            file: self.file.display().to_string(),
            run: None,
            target: None,
            began_at: None,
            events: 0,
            requests: 0,
            unknown: 0,
            conditions: Vec::new(),
            marks: Vec::new(),
            vouchers: Vec::new(),
            took_s: 0.0,
        }
    }
}

/// Runs on a thread for blocking work, so that the deadline is noticed.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Error::Setup(format!("the judging broke off: {error}")))
}

/// In which tables a voucher was sold: those of the final read, else as the run was set up.
fn guards_of(history: &History, voucher_history: &VoucherHistory) -> Guards {
    let table = voucher_history.account.as_ref().and_then(|account| account.tables.get("orders"));
    let setting = history.begin.settings.get("guards");
    let unguarded = table
        .map_or(setting.is_some_and(|guards| guards == "off"), |table| table.starts_with("lab_"));
    if unguarded { Guards::Off } else { Guards::On }
}

impl Judgement {
    /// Judges a history that was read: its conditions and every voucher.
    pub fn of(file: &Path, history: &History, terms: &Terms) -> Self {
        let (conditions, vouchers) = (conditions::of(history), judge_all(history, terms));
        let requests = history.records.len() as u64;
        let nothing = (requests == 0).then(|| "the history has no requests".to_owned());
        let unmet = conditions.iter().filter(|condition| !condition.met);
        let unmet = unmet.map(|one| format!("condition not met: {} ({})", one.what, one.detail));
        let failures = vouchers.iter().flat_map(VoucherJudgement::failures);
        let failed_because: Vec<String> =
            nothing.into_iter().chain(unmet).chain(failures).collect();
        let unknown = history.records.iter().filter(|record| record.outcome == Outcome::Unknown);
        Self {
            ok: failed_because.is_empty(),
            failed_because,
            file: file.display().to_string(),
            run: Some(history.begin.run.to_string()),
            target: Some(history.begin.target.clone()),
            began_at: Some(history.begin.began_at.clone()),
            events: history.events,
            requests,
            unknown: unknown.count() as u64,
            conditions,
            marks: history.marks.clone(),
            vouchers,
            took_s: 0.0,
        }
    }
}

/// The verdict on each voucher of a history.
pub fn judge_all(history: &History, terms: &Terms) -> Vec<VoucherJudgement> {
    let elsewhere = shared_ids(history);
    history
        .vouchers
        .iter()
        .map(|voucher_history| judge_voucher(history, voucher_history, terms, &elsewhere))
        .collect()
}

fn judge_voucher(
    history: &History,
    voucher_history: &VoucherHistory,
    terms: &Terms,
    elsewhere: &HashSet<u64>,
) -> VoucherJudgement {
    let (voucher, offered) = (voucher_history.offer.id.to_string(), voucher_history.offered());
    let Some(account) = &voucher_history.account else {
        let verdict = Verdict::unjudged("the voucher was not read at the end");
        return VoucherJudgement { voucher, offered, demanded: Rule::ALL.into(), verdict };
    };
    let rows_are_all = account.source == Source::Database;
    let own = own_account(voucher_history);
    let audit = match (&voucher_history.audits, &own) {
        ([_, Some(said)], Some(own)) => AuditCheck::Equal { said, own },
        ([Some(before), Some(after)], None) => AuditCheck::Moved { before, after },
        _ => AuditCheck::Absent,
    };
    let audited = !matches!(audit, AuditCheck::Absent);
    let verdict = judge(&Evidence {
        records: history.records_of(voucher_history),
        names: &history.names,
        rows: &voucher_history.rows,
        rows_are_all,
        earlier: &voucher_history.earlier,
        elsewhere,
        offered,
        grants: &voucher_history.grants,
        granted: account.granted,
        left: account.left,
        effects: &voucher_history.effects,
        audit,
        terms,
        marks: &history.marks,
    });
    let demanded = verdict.demanded(rows_are_all, audited, terms);
    VoucherJudgement { voucher, offered, demanded, verdict }
}

/// Order ids that were acknowledged for more than one voucher.
fn shared_ids(history: &History) -> HashSet<u64> {
    if history.vouchers.len() < 2 {
        return HashSet::new();
    }
    let mut named: Vec<(u64, u16)> = history
        .records
        .iter()
        .filter(|record| record.outcome == Outcome::Bought)
        .filter_map(|record| Some((record.order_id()?, record.voucher)))
        .collect();
    named.sort_unstable();
    let shared = named.array_windows().filter(|[a, b]| a.0 == b.0 && a.1 != b.1);
    shared.map(|[(id, _), _]| *id).collect()
}

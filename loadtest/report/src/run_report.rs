//! The report on one load, on any deployment.

use std::collections::BTreeMap;

use loadtest_judge::check::VoucherJudgement;
use loadtest_load::history::Condition;
use loadtest_load::history::final_state::Audit;
use loadtest_load::stats::Figures;
use serde::Serialize;

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
    pub judged: VoucherJudgement,
    /// The voucher's name.
    pub title: String,
    /// Units that were left after the load.
    pub stock_left: Option<i64>,
    /// Names of rules that could not be judged with what is known. They do not count as held.
    pub not_judged: Vec<&'static str>,
    /// The service's own audit before and after, if it was read.
    pub audit: Option<[Audit; 2]>,
}

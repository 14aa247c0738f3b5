//! One load with a fault in the middle.
//!
//! In order:
//!
//! 1. The deployment is healthy, JVMs are warm, and the load runs at its rate.
//! 2. At the scheduled moment, with a request in flight, the fault happens, is witnessed and
//!    healed.
//! 3. The load continues until its throughput has recovered, or for five seconds.
//! 4. Every replica sells to a new buyer, and answers some buyers who had a request in flight at
//!    the fault. So no lock stays taken for ever.
//! 5. The remaining units are sold.
//! 6. Everything is read and judged.
//!
//! A round that lacks any of this shows nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadtest_judge::stalls::Stalls;
use loadtest_judge::validity;
use loadtest_judge::verdict::Rule;
use loadtest_load::arrival::Arrival;
use loadtest_load::client::Target;
use loadtest_load::live::LiveFigures;
use loadtest_load::mix::Mix;
use loadtest_load::plan::Plan;
use loadtest_load::stall_monitor::StallMonitor;
use loadtest_load::stats::Figures;
use loadtest_load::tokens::User;
use loadtest_measure::error::{Error, Result};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::cell::CellReport;
use crate::cell_axes::{Load, PurchaseMode};
use crate::cell_plan::CellPlan;
use crate::cell_spec::CellSpec;
use crate::deployment::Deployment;
use crate::faults::{
    AbortingClients, ContenderAction, FaultContext, FaultKind, Schedule, SeenRules,
    freeze_the_holder, replica_name,
};
use crate::load_rate::{LoadRate, MIN_LOAD_AFTER_FAULT, SAMPLE_INTERVAL, Samples};
use crate::predict::{Family, Scenario as C};
pub use crate::round_counts::PurchasesDuringFault;
use crate::round_history::{RoundHistory, mark_fault};
use crate::sale::{Sale, end_history};
use crate::sell_out::SOLD_OUT_WITHIN;
use crate::{metrics, sell_out, warm_up};

/// Fewest requests of a round, and of the time before its fault.
const MIN_REQUESTS: u64 = 200;
const MIN_REQUESTS_BEFORE: u64 = 30;
/// How long a new buyer may take to be served by each replica.
const SERVE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest time of a purchase: its waits, and the 30 s in which it finds out how a COMMIT ended.
const PURCHASE_END_TIMEOUT: Duration = Duration::from_secs(40);
/// Longer than any main load.
const MAX_LOAD_DURATION: Duration = Duration::from_mins(5);
/// Why a round is invalid after which no purchase was made.
const NO_PURCHASE_AFTER: &str = "nothing was bought after the fault";
/// How the reason ends that it had too few requests in all.
const TOO_FEW_REQUESTS: &str = "requests are fewer than 200";
/// Users who are there to hang up, and to be new after the fault.
const ABORTING_CLIENTS: usize = 25;
const NEW_BUYERS: usize = 200;
/// How many buyers with a request in flight at the fault ask again.
const REPEAT_BUYERS: usize = 3;

/// What happened when in a round; times in nanoseconds since its load began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// What the seed has settled.
    pub schedule: Schedule,
    /// The same in words.
    pub plan: String,
    /// The fault.
    pub faults: Vec<FaultRecord>,
    /// When the main load was over, of which rates and latencies tell, and the closing ones began:
    /// replicas are asked in turn, and what is left is sold out.
    pub closing_ns: u64,
    /// Requests in flight when it hit.
    pub in_flight: u64,
    /// Requests sent before it, during it, and after it.
    pub requests: [u64; 3],
    /// Purchases acknowledged after it.
    pub ok_after: u64,
    /// Answers that decided something, per second before the fault.
    pub before_per_s: f64,
    /// Milliseconds from the end of the fault until nine tenths of the former rate were reached.
    /// Only requests that were due after the fault count; `None` if it took more than 5 s, or
    /// if there was no rate before.
    pub back_after_ms: Option<u64>,
    /// Requests that failed: without a known outcome, or refused because something was down.
    pub failed_requests: u64,
    /// New buyers, and those who asked again, whom replicas served afterwards.
    pub served_after: u64,
    /// Purchases that were made while the fault lasted.
    #[serde(default)]
    pub during: PurchasesDuringFault,
}

/// One fault of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FaultRecord {
    /// Which one.
    pub name: FaultKind,
    /// When it began.
    pub begin_ns: u64,
    /// When it was healed.
    pub end_ns: u64,
    /// What was seen of it.
    pub witness: String,
}

impl Round {
    /// When throughput was back, in words.
    pub fn back(&self) -> String {
        match self.back_after_ms {
            Some(ms) => format!("after {ms} ms"),
            None if self.before_per_s > 0.0 => "not within 5 s".to_owned(),
            None => "not measured".to_owned(),
        }
    }

    /// Why the round shows nothing; empty if it does.
    pub fn why_invalid(&self) -> Vec<String> {
        let [before, during, after] = self.requests;
        let all = before + during + after;
        let mut reasons = Vec::new();
        let mut demand = |met: bool, reason: String| {
            if !met {
                reasons.push(reason);
            }
        };
        demand(all >= MIN_REQUESTS, format!("{all} {TOO_FEW_REQUESTS}"));
        demand(
            before >= MIN_REQUESTS_BEFORE,
            format!("{before} requests before the fault are fewer than {MIN_REQUESTS_BEFORE}"),
        );
        demand(self.in_flight > 0, "nothing was in flight when the fault hit".to_owned());
        demand(self.ok_after > 0, NO_PURCHASE_AFTER.to_owned());
        let has_witness =
            !self.faults.is_empty() && self.faults.iter().all(|fault| !fault.witness.is_empty());
        demand(has_witness, "the fault has no witness".to_owned());
        reasons
    }
}

/// Whether that reason only says that nothing came after the fault.
pub(super) fn is_cut_short(why_invalid: &str) -> bool {
    why_invalid == NO_PURCHASE_AFTER || why_invalid.ends_with(TOO_FEW_REQUESTS)
}

/// Runs a round to its verdict.
pub(super) async fn run(sale: &Sale<'_>, cell_plan: &CellPlan) -> Result<CellReport> {
    let CellPlan { trial, load, schedule, .. } = cell_plan;
    let trial = *trial;
    let Some(fault) = trial.fault else {
        return Err(Error::Setup("a round needs a fault".to_owned()));
    };
    let deployment = sale.deployment;
    warm_up::warm_up(sale).await?;
    let (leaving, rest) = sale.users.split_at(ABORTING_CLIENTS.min(sale.users.len()));
    let mut hit = FaultRound { trial, fault, sale, cell_plan };
    let plan = hit.plan(rest)?;
    let mut round_history = RoundHistory::new(sale.record(&plan)?, sale.voucher);
    let aborting_clients =
        AbortingClients::new(sale.voucher, leaving.to_vec(), round_history.clock());
    let stock_admin = sale.stock_admin(round_history.clock());
    let (lock, mode, seen) = (trial.axes.lock, load.mode, SeenRules::default());
    let context = FaultContext {
        deployment,
        schedule,
        lock,
        mode,
        aborting_clients: &aborting_clients,
        stock_admin: &stock_admin,
        buyers: rest,
        seen: &seen,
    };
    let monitor = StallMonitor::start();
    let (figures, mut round) = hit.with_load(&context, &plan, &mut round_history).await?;
    let (served, all_served) =
        hit.serve(&context, rest, (&mut round_history, &monitor, &round)).await?;
    round.served_after = served;
    // Where a buyer is not served, the rest could not be sold either, and the round is red anyway.
    let is_to_sell_out = all_served && wants_more_than_there_is(load);
    let strangers = &rest[(rest.len() / 2 + NEW_BUYERS).min(rest.len())..];
    // Where much is left there are fewer of those than units, and the others come once more.
    let buyers = [strangers, rest].concat();
    let sold_out = is_to_sell_out && sell_out::sell(sale, &buyers, &mut round_history).await?;
    round_history.add_unanswered(&aborting_clients.aborted()).await;
    round_history.add_grants(stock_admin.grants()).await;
    for (rule, kept, detail) in seen.take() {
        round_history.record_rule(rule, kept, detail).await;
    }
    if sold_out {
        round_history
            .record_rule(Rule::SoldOutStaysSoldOut, true, "all had been sold".to_owned())
            .await;
    }
    if trial.demands(load).contains(&Rule::PurchasesEnd) {
        count_purchases_left(deployment, &round_history).await;
    }
    round_history.add_stalls(&monitor.stalls()).await;
    let recorded = round_history.into_recorded();
    let (mut report, history) = sale.judge(&recorded, figures).await?;
    round.count(&history);
    let sold_twice = trial.scenario.is_frozen() && report.oversold > 0;
    if let (true, Some(detail)) = (sold_twice, &mut report.detail) {
        detail.double_sale = round.double_sale(&history);
    }
    let replicas = trial.axes.replicas;
    report.invalid_because.extend(validity::of_round(&history.records, &history.names, replicas));
    if is_to_sell_out && !sold_out {
        let within = SOLD_OUT_WITHIN;
        report.invalid_because.push(format!("what was left could not be sold within {within:?}"));
    }
    let lasted = history.records.iter().map(|record| record.start_ns).max().unwrap_or(0);
    report.invalid_because.extend(validity::of_stalls(Stalls::of(&history.marks).total(), lasted));
    let report = report.with_round(round);
    end_history(recorded, &report).await?;
    Ok(report)
}

/// Records whether every purchase that was begun has ended.
async fn count_purchases_left(deployment: &Deployment, round_history: &RoundHistory) {
    let addresses: Vec<_> = deployment.replicas().iter().map(|replica| replica.addr()).collect();
    if let Some(left) = metrics::purchases_left(&addresses, PURCHASE_END_TIMEOUT).await {
        let detail = format!("{left} had not ended {PURCHASE_END_TIMEOUT:?} after the load");
        round_history.record_rule(Rule::PurchasesEnd, left == 0, detail).await;
    }
}

/// Whether all units have to be sold at the end. Some injected bugs have a unit for every user,
/// because what they show is who buys twice.
fn wants_more_than_there_is(load: &Load) -> bool {
    u64::try_from(load.users).unwrap_or(u64::MAX) > load.stock
}

/// What is done to a sale.
struct FaultRound<'a> {
    trial: CellSpec,
    fault: FaultKind,
    sale: &'a Sale<'a>,
    cell_plan: &'a CellPlan,
}

impl FaultRound<'_> {
    /// The load that the fault hits: half of the users at most.
    fn plan(&self, users: &[User]) -> Result<Plan> {
        let target = Target::parse(self.sale.deployment.url())?;
        let per_user = self.cell_plan.load.requests_per_user;
        let plan = self.sale.plan(&users[..users.len() / 2], target, per_user);
        let load_rate = LoadRate::of(self.trial, &self.cell_plan.load);
        let mut plan = Plan { arrival: Arrival::Constant(load_rate.users_per_s), ..plan };
        if self.cell_plan.load.mode == PurchaseMode::Queued {
            // What a queue knows besides the stock is who has bought: they come again.
            (plan.mix, plan.duration) = (Mix::AfterSoldOut, Some(MAX_LOAD_DURATION));
        }
        plan.check()?;
        Ok(plan)
    }

    /// The load, and the fault in its middle.
    async fn with_load(
        &mut self,
        context: &FaultContext<'_>,
        plan: &Plan,
        round_history: &mut RoundHistory,
    ) -> Result<(Figures, Round)> {
        let schedule = context.schedule;
        let (live, stop) = (Arc::new(LiveFigures::new(plan)), CancellationToken::new());
        // It may continue for longer, until its throughput is back.
        let about = Duration::from_millis(schedule.strike_after_ms)
            + schedule.lasts()
            + MIN_LOAD_AFTER_FAULT;
        let shown = Plan { duration: Some(about), ..plan.clone() };
        let _progress = self.cell_plan.follow(&live, &shown);
        let clock = round_history.clock();
        let mut samples = Samples::of(&live);
        let load = round_history.run(plan, &live, &stop);
        let fault = async {
            let _stops = stop.clone().drop_guard();
            let load_rate = LoadRate::of(self.trial, &self.cell_plan.load);
            samples.wait_until_due(schedule.strike_after_ms, load_rate).await?;
            let before_per_s = samples.rate();
            let in_flight = live.in_flight();
            let begin_ns = mark_fault(&clock, self.fault, ("begin", "")).await;
            let witness = self.inject(context).await?;
            let end_ns = mark_fault(&clock, self.fault, ("witness", &witness)).await;
            mark_fault(&clock, self.fault, ("healed", "")).await;
            let back_after_ms = samples.wait_until_recovered(before_per_s).await;
            let fault_record = FaultRecord { name: self.fault, begin_ns, end_ns, witness };
            Ok::<_, Error>((fault_record, in_flight, before_per_s, back_after_ms))
        };
        let (figures, hit) = tokio::join!(load, fault);
        let closing_ns = clock.now();
        let (fault_record, in_flight, before_per_s, back_after_ms) = hit?;
        let round = Round {
            schedule: schedule.clone(),
            plan: if self.trial.scenario.is_frozen() {
                schedule.words_of_frozen_holder()
            } else {
                schedule.words(Some(self.fault))
            },
            faults: vec![fault_record],
            closing_ns,
            in_flight,
            requests: [0; 3],
            ok_after: 0,
            before_per_s,
            back_after_ms,
            failed_requests: 0,
            served_after: 0,
            during: PurchasesDuringFault::default(),
        };
        Ok((figures?, round))
    }

    async fn inject(&self, context: &FaultContext<'_>) -> Result<String> {
        let is_transaction = self.trial.axes.lock.family() == Family::Transaction;
        match self.trial.scenario {
            C::FrozenUnfenced | C::FrozenFenced if is_transaction => {
                freeze_the_holder(context, ContenderAction::Wait).await
            }
            C::FrozenUnfenced => freeze_the_holder(context, ContenderAction::Write).await,
            C::FrozenFenced => freeze_the_holder(context, ContenderAction::ComeToTheFence).await,
            _ => self.fault.inject(context).await,
        }
    }

    /// Each replica has to serve a new buyer, and some of those who were on their way: how many
    /// were served, and whether all were.
    async fn serve(
        &self,
        context: &FaultContext<'_>,
        users: &[User],
        (round_history, monitor, round): (&mut RoundHistory, &StallMonitor, &Round),
    ) -> Result<(u64, bool)> {
        let hit_ns = round.faults.first().map_or(0, |fault| fault.begin_ns);
        let again = round_history.on_their_way((hit_ns, REPEAT_BUYERS), users).await?;
        let mut fresh = users[users.len() / 2..].iter().take(NEW_BUYERS);
        let mut served = 0;
        for (index, replica) in context.deployment.replicas().iter().enumerate() {
            let target = Target::parse(replica.base_url())?;
            for buyer in fresh.next().into_iter().chain(&again) {
                if let Err(why) = self.serve_one(buyer, &target, round_history, monitor).await? {
                    let (name, user) = (replica_name(index), buyer.id);
                    let detail = format!("{name} did not serve user {user}: {why}");
                    round_history.record_rule(Rule::EachReplicaServes, false, detail).await;
                    // One is enough, and others would wait as long.
                    return Ok((served, false));
                }
                served += 1;
            }
        }
        round_history
            .record_rule(Rule::EachReplicaServes, true, format!("{served} buyers were served"))
            .await;
        Ok((served, true))
    }

    /// Has that replica serve the buyer in time, not counting the generator's own stalls; why it
    /// did not.
    async fn serve_one(
        &self,
        buyer: &User,
        target: &Arc<Target>,
        round_history: &mut RoundHistory,
        monitor: &StallMonitor,
    ) -> Result<std::result::Result<(), String>> {
        let began = Instant::now();
        let is_late = || began.elapsed() >= SERVE_TIMEOUT + monitor.stalled_since(began);
        loop {
            let plan = self.sale.plan(std::slice::from_ref(buyer), target.clone(), 1);
            let plan = Plan { connections: 1, ..plan };
            let live = Arc::new(LiveFigures::new(&plan));
            // The last request leaves after the deadline: its answer may come as late as it likes.
            let is_last = is_late();
            match round_history.run(&plan, &live, &CancellationToken::new()).await {
                Ok(_) if live.decided() > 0 => return Ok(Ok(())),
                Ok(_) if is_last => {
                    return Ok(Err(format!("no answer decided it within {SERVE_TIMEOUT:?}")));
                }
                Err(Error::Unanswered(why)) if is_last => return Ok(Err(why)),
                Err(error) if is_last => return Err(error),
                Ok(_) | Err(_) => sleep(SAMPLE_INTERVAL).await,
            }
        }
    }
}

#[cfg(test)]
#[path = "round_tests.rs"]
mod tests;

//! One load with a fault in the middle.
//!
//! In order: the deployment is healthy and the load runs at its pace; at the moment that the
//! schedule names, and with a request in flight, the fault happens, is witnessed and healed; the
//! load goes on until its throughput is back, or for five seconds; every replica sells to somebody
//! new and answers some of those who were on their way when the fault hit (so nobody waits for a
//! lock that will never be free); what is left is sold out; then everything is read and judged.
//! A round that lacks any of this shows nothing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, Result};
use crate::history::Past;
use crate::judge::evidence::has_failed;
use crate::judge::validity;
use crate::judge::verdict::Rule;
use crate::lab::cell::CellReport;
use crate::lab::deployment::Deployment;
use crate::lab::faults::{
    FaultKind, HangUps, Others, Scene, Schedule, freeze_the_holder, replica_name,
};
use crate::lab::metrics;
use crate::lab::pace::{AFTER, Pace, SAMPLE, Samples};
use crate::lab::place::{Load, Path};
use crate::lab::predict::{Circumstance as C, Family};
use crate::lab::rest::{self, SOLD_OUT_WITHIN};
use crate::lab::sale::Sale;
use crate::lab::staged::Staged;
use crate::lab::trial::Trial;
use crate::lab::whole::Whole;
use crate::load::arrival::Arrival;
use crate::load::client::Target;
use crate::load::live::Live;
use crate::load::mix::Mix;
use crate::load::outcome::Outcome;
use crate::load::plan::Plan;
use crate::load::progress::Progress;
use crate::load::stall_monitor::StallMonitor;
use crate::load::stats::Figures;
use crate::load::tokens::User;
use crate::report::crossing::Thaw;

/// Fewest requests of a round, and of the time before its fault.
const MIN_REQUESTS: u64 = 200;
const MIN_REQUESTS_BEFORE: u64 = 30;
/// How long a new buyer may take to be served by each replica.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
/// How long a purchase may take at most: longer than the 30 s in which it finds out how a COMMIT
/// ended, with the waits before.
const PURCHASES_END_WITHIN: Duration = Duration::from_secs(40);
/// Longer than any main load.
const LONGEST: Duration = Duration::from_mins(5);
/// Users who are there to hang up, and to be new after the fault.
const HANG_UPS: usize = 25;
const FRESH: usize = 200;
/// Of those on their way when the fault hit, so many ask again.
const ASKED_AGAIN: usize = 3;

/// What happened when in a round; times in nanoseconds since its load began.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Round {
    /// What the seed has settled.
    pub schedule: Schedule,
    /// The same in words.
    pub plan: String,
    /// The fault.
    pub faults: Vec<Strike>,
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
    /// Milliseconds from the end of the fault until nine in ten of as many came again, to requests
    /// that were to leave after it; none if they did not within 5 s, or if there were none before.
    pub back_after_ms: Option<u64>,
    /// Requests that failed: without a known outcome, or refused because something was down.
    pub failed_requests: u64,
    /// New buyers, and those who asked again, whom replicas served afterwards.
    pub served_after: u64,
}

/// One fault of a round.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Strike {
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
        demand(all >= MIN_REQUESTS, format!("{all} requests are fewer than {MIN_REQUESTS}"));
        demand(
            before >= MIN_REQUESTS_BEFORE,
            format!("{before} requests before the fault are fewer than {MIN_REQUESTS_BEFORE}"),
        );
        demand(self.in_flight > 0, "nothing was in flight when the fault hit".to_owned());
        demand(self.ok_after > 0, "nothing was bought after the fault".to_owned());
        let has_witness =
            !self.faults.is_empty() && self.faults.iter().all(|fault| !fault.witness.is_empty());
        demand(has_witness, "nobody saw the fault".to_owned());
        reasons
    }
}

/// Runs a round to its verdict.
pub async fn run(deployment: &Deployment, staged: &Staged) -> Result<CellReport> {
    let Staged { trial, load, schedule, .. } = staged;
    let trial = *trial;
    let Some(fault) = trial.fault else {
        return Err(Error::Setup("a round needs a fault".to_owned()));
    };
    let sale = Sale::open(deployment, staged).await?;
    let (leaving, rest) = sale.users.split_at(HANG_UPS.min(sale.users.len()));
    let mut hit = Hit { trial, fault, sale: &sale, load };
    let plan = hit.plan(rest)?;
    let mut whole = Whole::new(sale.record(&plan)?, sale.voucher);
    let hang_ups = HangUps::new(sale.voucher, leaving.to_vec(), whole.clock());
    let clerk = sale.clerk(whole.clock());
    let (lock, path) = (trial.place.lock, load.path);
    let scene = Scene { deployment, schedule, lock, path, hang_ups: &hang_ups, clerk: &clerk };
    let monitor = StallMonitor::start();
    let (figures, mut round) = hit.with_load(&scene, &plan, &mut whole).await?;
    let (served, all_served) = hit.serve(&scene, rest, (&mut whole, &monitor, &round)).await?;
    round.served_after = served;
    // Where a buyer is not served, the rest could not be sold either, and the round is red anyway.
    let is_to_sell_out = all_served && wants_more_than_there_is(load);
    let strangers = &rest[(rest.len() / 2 + FRESH).min(rest.len())..];
    // Where much is left there are fewer of those than units, and the others come once more.
    let buyers = [strangers, rest].concat();
    let sold_out = is_to_sell_out && rest::sell(&sale, &buyers, &mut whole).await?;
    whole.add_unanswered(&hang_ups.gone()).await;
    whole.add_grants(clerk.grants()).await;
    for strike in &round.faults {
        whole.mark(strike).await;
    }
    if sold_out {
        whole.saw(Rule::SoldOutStaysSoldOut, true, "all had been sold".to_owned()).await;
    }
    if trial.demands(load).contains(&Rule::PurchasesEnd)
        && let Some(left) = purchases_left(deployment).await
    {
        let detail = format!("{left} had not ended {PURCHASES_END_WITHIN:?} after the load");
        whole.saw(Rule::PurchasesEnd, left == 0, detail).await;
    }
    whole.add_stalls(&monitor.stalls()).await;
    let (mut report, past) = sale.judge(whole.into_recorded(), figures).await?;
    round.count(&past);
    let sold_twice = trial.circumstance.is_frozen() && report.oversold > 0;
    if let (true, Some(detail)) = (sold_twice, &mut report.detail) {
        detail.thaw = round.thaw(&past);
    }
    let replicas = trial.place.replicas;
    report.invalid_because.extend(validity::of_round(&past.records, &past.names, replicas));
    if is_to_sell_out && !sold_out {
        let within = SOLD_OUT_WITHIN;
        report.invalid_because.push(format!("what was left could not be sold within {within:?}"));
    }
    let lasted = past.records.iter().map(|record| record.start_ns).max().unwrap_or(0);
    report.invalid_because.extend(validity::of_stalls(past.terms.stalls.total(), lasted));
    Ok(report.with_round(round))
}

/// How many purchases that were begun have not ended in time; `None` if a replica does not tell.
/// The last look begins after the deadline, so a late look sees what has ended meanwhile.
async fn purchases_left(deployment: &Deployment) -> Option<u64> {
    let replicas: Vec<_> = deployment.replicas().iter().map(|replica| replica.addr()).collect();
    let deadline = Instant::now() + PURCHASES_END_WITHIN;
    loop {
        let is_last = Instant::now() >= deadline;
        let left = metrics::purchases_in_progress(&replicas).await;
        if is_last || left == Some(0) {
            return left;
        }
        sleep(SAMPLE).await;
    }
}

/// Whether all units are to be sold in the end. Some planted bugs have a unit for every user,
/// because what they show is who buys twice.
fn wants_more_than_there_is(load: &Load) -> bool {
    u64::try_from(load.users).unwrap_or(u64::MAX) > load.stock
}

/// What is done to a sale.
struct Hit<'a> {
    trial: Trial,
    fault: FaultKind,
    sale: &'a Sale<'a>,
    load: &'a Load,
}

impl Hit<'_> {
    /// The load that the fault hits: half of the users at most.
    fn plan(&self, users: &[User]) -> Result<Plan> {
        let target = Target::parse(self.sale.deployment.url())?;
        let per_user = self.load.requests_per_user;
        let plan = self.sale.plan(&users[..users.len() / 2], target, per_user);
        let pace = Pace::of(self.trial, self.load);
        let mut plan = Plan { arrival: Arrival::Constant(pace.users_per_s), ..plan };
        if self.load.path == Path::Queued {
            // What a queue knows besides the stock is who has bought: they come again.
            (plan.mix, plan.duration) = (Mix::AfterSoldOut, Some(LONGEST));
        }
        plan.check()?;
        Ok(plan)
    }

    /// The load, and the fault in its middle.
    async fn with_load(
        &mut self,
        scene: &Scene<'_>,
        plan: &Plan,
        whole: &mut Whole,
    ) -> Result<(Figures, Round)> {
        let schedule = scene.schedule;
        let (live, stop) = (Arc::new(Live::new(plan)), CancellationToken::new());
        // It may go on for longer, until its throughput is back.
        let about = Duration::from_millis(schedule.strike_after_ms) + schedule.lasts() + AFTER;
        let shown = Plan { duration: Some(about), ..plan.clone() };
        let _progress = Progress::follow(&self.trial.to_string(), &live, &shown);
        let clock = whole.clock();
        let mut samples = Samples::of(&live);
        let load = whole.run(plan, &live, &stop);
        let fault = async {
            let _stops = stop.clone().drop_guard();
            let pace = Pace::of(self.trial, self.load);
            samples.until_due(schedule.strike_after_ms, pace).await?;
            let before_per_s = samples.rate();
            let in_flight = live.in_flight();
            let begin_ns = clock.now();
            let witness = self.strike(scene).await?;
            let end_ns = clock.now();
            let back_after_ms = samples.until_back(before_per_s).await;
            let strike = Strike { name: self.fault, begin_ns, end_ns, witness };
            Ok::<_, Error>((strike, in_flight, before_per_s, back_after_ms))
        };
        let (figures, hit) = tokio::join!(load, fault);
        let closing_ns = clock.now();
        let (strike, in_flight, before_per_s, back_after_ms) = hit?;
        let round = Round {
            schedule: schedule.clone(),
            plan: if self.trial.circumstance.is_frozen() {
                schedule.words_of_frozen_holder()
            } else {
                schedule.words(Some(self.fault))
            },
            faults: vec![strike],
            closing_ns,
            in_flight,
            requests: [0; 3],
            ok_after: 0,
            before_per_s,
            back_after_ms,
            failed_requests: 0,
            served_after: 0,
        };
        Ok((figures?, round))
    }

    async fn strike(&self, scene: &Scene<'_>) -> Result<String> {
        let is_transaction = self.trial.place.lock.family() == Family::Transaction;
        match self.trial.circumstance {
            C::FrozenUnfenced | C::FrozenFenced if is_transaction => {
                freeze_the_holder(scene, Others::Wait).await
            }
            C::FrozenUnfenced => freeze_the_holder(scene, Others::Write).await,
            C::FrozenFenced => freeze_the_holder(scene, Others::ComeToTheFence).await,
            _ => self.fault.strike(scene).await,
        }
    }

    /// Each replica has to serve a new buyer, and some of those who were on their way: how many
    /// were served, and whether all were.
    async fn serve(
        &self,
        scene: &Scene<'_>,
        users: &[User],
        (whole, monitor, round): (&mut Whole, &StallMonitor, &Round),
    ) -> Result<(u64, bool)> {
        let hit_ns = round.faults.first().map_or(0, |fault| fault.begin_ns);
        let again = whole.on_their_way((hit_ns, ASKED_AGAIN), users).await?;
        let mut fresh = users[users.len() / 2..].iter().take(FRESH);
        let mut served = 0;
        for (index, replica) in scene.deployment.replicas().iter().enumerate() {
            let target = Target::parse(replica.base_url())?;
            for buyer in fresh.next().into_iter().chain(&again) {
                if !self.serve_one(buyer, &target, whole, monitor).await? {
                    let name = replica_name(index);
                    let detail =
                        format!("{name} did not serve user {} within {SERVED_WITHIN:?}", buyer.id);
                    whole.saw(Rule::EachReplicaServes, false, detail).await;
                    // One is enough, and others would wait as long.
                    return Ok((served, false));
                }
                served += 1;
            }
        }
        whole.saw(Rule::EachReplicaServes, true, format!("{served} buyers were served")).await;
        Ok((served, true))
    }

    /// Whether that replica serves the buyer in time, not counting the generator's own stalls.
    async fn serve_one(
        &self,
        buyer: &User,
        target: &Arc<Target>,
        whole: &mut Whole,
        monitor: &StallMonitor,
    ) -> Result<bool> {
        let began = Instant::now();
        let is_late = || began.elapsed() >= SERVED_WITHIN + monitor.stalled_since(began);
        loop {
            let plan = self.sale.plan(std::slice::from_ref(buyer), target.clone(), 1);
            let plan = Plan { connections: 1, ..plan };
            let live = Arc::new(Live::new(&plan));
            // The last request leaves after the deadline: its answer may come as late as it likes.
            let is_last = is_late();
            match whole.run(&plan, &live, &CancellationToken::new()).await {
                Ok(_) if live.decided() > 0 => return Ok(true),
                Ok(_) if is_last => return Ok(false),
                Err(error) if is_last => return Err(error),
                Ok(_) | Err(_) => sleep(SAMPLE).await,
            }
        }
    }
}

impl Round {
    /// The frozen holder's purchase and the next one's.
    fn thaw(&self, past: &Past) -> Option<Thaw> {
        let victim = self.schedule.victim_name();
        let went_on_ns = self.faults.first()?.end_ns;
        Thaw::of(&past.records, &past.names, (&victim, went_on_ns))
    }

    /// What is counted once all requests are known.
    fn count(&mut self, past: &Past) {
        let (begin_ns, end_ns) =
            self.faults.first().map_or((0, 0), |fault| (fault.begin_ns, fault.end_ns));
        for record in &past.records {
            let phase =
                usize::from(record.start_ns >= begin_ns) + usize::from(record.start_ns >= end_ns);
            self.requests[phase] += 1;
            let is_after = record.end_ns >= end_ns;
            self.ok_after += u64::from(is_after && record.outcome == Outcome::Bought);
            self.failed_requests += u64::from(has_failed(record, &past.names));
        }
    }
}

#[cfg(test)]
#[path = "round_tests.rs"]
mod tests;

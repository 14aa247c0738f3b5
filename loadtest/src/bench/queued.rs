//! The mode `queued`: how many purchases a second are admitted, and how many orders a second are
//! written of a backlog.
//!
//! `admitted`: purchases come as fast as connections are free, and the replica writes orders
//! meanwhile.
//!
//! `drained`: the voucher's stock is locked while they come, so that all orders wait in the stream.
//! Then the lock is released, and the database counts the units that go with their orders. That
//! number is divided by the time from the release to the last reading at which some were still to
//! be written. Nothing else runs then. A backlog that is written in less than a round's length was
//! too small.
//!
//! Tickets are not asked for: afterwards every admission must be an order in the database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadtest_judge::audit::DatabaseReader;
use loadtest_load::live::LiveFigures;
use loadtest_load::plan::Plan;
use loadtest_load::stats::{AdmissionFigures, Figures};
use loadtest_load::tokens::User;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::ProcessTimes;
use tokio::time::sleep;

use super::cells::Setup;
use super::figure::{GENERATOR, Sample};
use super::server_processes::servers_of;
use super::service::{Round, STOCK, Stage, load_seen};
use super::turns::{Turn, slices, together};

/// How often the database is asked.
const STOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long it may take until all that was admitted is written.
const WRITE_TIMEOUT: Duration = Duration::from_mins(3);
/// A backlog is admitted for this many round lengths, at most `MAX_BACKLOG_S`, or until the users
/// run out. The service gives up an order that could not be written for a minute.
const BACKLOG_ROUNDS: u64 = 4;
const MAX_BACKLOG_S: u64 = 40;

/// What one load brought.
struct QueueFill {
    figures: Figures,
    queued: AdmissionFigures,
}

/// What was left to be sold, and when.
type StockSample = (Instant, i64);

impl Stage {
    /// A round in which purchases are admitted.
    pub async fn admitted(&self, setup: &Setup, seed: u64) -> Result<Sample> {
        let mut turn = self.turns.take().await;
        let round = self.open(setup, STOCK).await?;
        let sample = round.admit(seed, &mut turn).await;
        self.end(round.deployment).await?;
        sample
    }

    /// A round in which what was admitted is written.
    pub async fn drained(&self, setup: &Setup, seed: u64) -> Result<Sample> {
        let _turn = self.turns.take().await;
        let round = self.open(setup, STOCK).await?;
        let sample = round.drain(seed).await;
        self.end(round.deployment).await?;
        sample
    }
}

impl Round<'_> {
    async fn admit(&self, seed: u64, turn: &mut Turn<'_>) -> Result<Sample> {
        let (mut all, others) = self.warm(seed).await?;
        let slices = slices(self.stage.seconds);
        let mut samples = Vec::new();
        for (seconds, users) in slices.iter().zip(others.chunks(others.len() / slices.len())) {
            turn.pass().await;
            let (sample, admitted) = self.admit_slice(*seconds, (users, seed), all).await?;
            samples.push(sample);
            all += admitted;
        }
        self.look_for(all..=all, "admitted").await?;
        Ok(together(samples))
    }

    /// Admits for `seconds` seconds; the sample, and how many were admitted. All of them, and those
    /// of before, are written at the end.
    async fn admit_slice(
        &self,
        seconds: u64,
        (users, seed): (&[User], u64),
        before_it: u64,
    ) -> Result<(Sample, u64)> {
        let servers = servers_of(&self.deployment);
        let before = ProcessTimes::of(&servers);
        let QueueFill { figures, queued } = self.fill(seconds, users, seed).await?;
        self.until_written(before_it + queued.admitted).await?;
        let orders = to_f64(queued.admitted);
        let mut sample = Sample {
            per_s: queued.admitted_per_s,
            seconds: queued.admitting_s,
            p50_ms: queued.admission.p50_ms,
            p99_ms: queued.admission.p99_ms,
            generator_share: figures.cost.machine_share,
            cpu_us: ProcessTimes::of(&servers).for_each(&before, orders),
            ..Sample::default()
        };
        sample.cpu_us.insert(GENERATOR, figures.cost.cpu_s * 1e6 / orders.max(1.0));
        if queued.admitting_s < 0.95 * to_f64(seconds) {
            let ended = queued.admitting_s;
            sample.invalid.push(format!("it ended after {ended:.1} s of {seconds} s"));
        }
        sample.invalid.extend(refusals(&figures, &queued));
        sample.remarks.extend(figures.bottlenecks());
        Ok((sample, queued.admitted))
    }

    async fn drain(&self, seed: u64) -> Result<Sample> {
        let (warmed, others) = self.warm(seed).await?;
        let reader = DatabaseReader::connect(&self.deployment.database_url()).await?;
        let lock = reader.lock_stock(self.vouchers[0]).await?;
        let seconds = (self.stage.seconds * BACKLOG_ROUNDS).min(MAX_BACKLOG_S);
        let QueueFill { figures, queued } = self.fill(seconds, others, seed).await?;
        let all = warmed + queued.admitted;
        let servers = servers_of(&self.deployment);
        let before = ProcessTimes::of(&servers);
        let released = (Instant::now(), left_of(warmed));
        lock.release().await?;
        let looks = self.until_written(all).await?;
        let (per_s, seconds) = drained(released, &looks);
        let backlog = queued.admitted;
        let cpu_us = ProcessTimes::of(&servers).for_each(&before, to_f64(backlog));
        let mut sample = Sample { per_s, seconds, cpu_us, ..Sample::default() };
        let least = self.stage.seconds;
        if seconds < to_f64(least) {
            let why = "the backlog was too small: it was written in";
            sample.invalid.push(format!("{why} {seconds:.1} s, not {least}"));
        }
        sample.invalid.extend(refusals(&figures, &queued));
        sample.remarks.push(format!("{backlog} orders waited to be written"));
        self.look_for(all..=all, "admitted").await?;
        Ok(sample)
    }

    /// Admits and writes some; how many, and the users of what is measured.
    async fn warm(&self, seed: u64) -> Result<(u64, &[User])> {
        let (first, others) = self.stage.users.split_at(self.stage.users.len() / 5);
        let warmed = self.fill(self.stage.warm_up, first, seed).await?.queued.admitted;
        self.until_written(warmed).await?;
        Ok((warmed, others))
    }

    /// Sends purchases for `seconds` seconds, or until the users run out.
    async fn fill(&self, seconds: u64, users: &[User], seed: u64) -> Result<QueueFill> {
        let plan = Plan {
            duration: Some(Duration::from_secs(seconds)),
            // They are not followed.
            ticket_timeout: Duration::ZERO,
            ..self.plan(users.into(), seed)
        };
        let figures = load_seen(&plan, &Arc::new(LiveFigures::new(&plan))).await?;
        let queued = figures.queued.clone().unwrap_or_default();
        Ok(QueueFill { figures, queued })
    }

    /// Waits until `orders` orders are written; every reading of the stock meanwhile.
    async fn until_written(&self, orders: u64) -> Result<Vec<StockSample>> {
        let mut reader = DatabaseReader::connect(&self.deployment.database_url()).await?;
        let (mut looks, all) = (Vec::new(), left_of(orders));
        let mut last = (Instant::now(), i64::MAX);
        loop {
            let look = (Instant::now(), reader.left(self.vouchers[0]).await?);
            looks.push(look);
            if look.1 <= all {
                return Ok(looks);
            }
            if look.1 != last.1 {
                last = look;
            }
            if last.0.elapsed() > WRITE_TIMEOUT {
                let missing = look.1 - all;
                return Err(Error::Setup(format!("{missing} admitted orders are not written")));
            }
            sleep(STOCK_POLL_INTERVAL).await;
        }
    }
}

/// Units that are left after `orders` orders.
fn left_of(orders: u64) -> i64 {
    i64::try_from(STOCK.saturating_sub(orders)).unwrap_or(i64::MAX)
}

/// Orders a second from that look to the last one that found some to be written, and for how long
/// that was. Those that found none did not find out since when.
fn drained(released: StockSample, looks: &[StockSample]) -> (f64, f64) {
    let in_the_end = looks.last().map_or(0, |(_, left)| *left);
    match looks.iter().rfind(|(_, left)| *left > in_the_end) {
        Some((until, least)) if *until > released.0 => {
            let seconds = until.duration_since(released.0).as_secs_f64();
            (to_f64(u64::try_from(released.1 - least).unwrap_or(0)) / seconds, seconds)
        }
        _ => (0.0, 0.0),
    }
}

/// Why it was not the load that was asked for, if purchases were not admitted.
fn refusals(figures: &Figures, queued: &AdmissionFigures) -> Option<String> {
    let others = figures.requests - queued.admitted;
    let codes = figures.codes.iter().map(|(code, count)| format!("{count} {code}"));
    let codes = codes.collect::<Vec<_>>().join(", ");
    (others > 0).then(|| format!("{others} requests were not admitted: {codes}"))
}

#[allow(clippy::cast_precision_loss)]
fn to_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drained_counts_from_the_release_to_the_last_look_before_the_end() {
        let zero = Instant::now();
        let of = |looks: &[(u64, i64)]| {
            let looks = looks.iter().map(|(ms, left)| (zero + Duration::from_millis(*ms), *left));
            drained((zero, 900), &looks.collect::<Vec<_>>())
        };
        let (per_s, seconds) = of(&[(0, 900), (500, 500), (1000, 100), (1500, 0)]);
        assert!((per_s - 800.0).abs() < 1e-6 && (seconds - 1.0).abs() < 1e-6, "{per_s} {seconds}");
        let (_, none) = of(&[(10, 0)]);
        assert!(none.abs() < 1e-9, "all was written at the first look: {none}");
    }
}

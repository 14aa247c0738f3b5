//! The path `queued`: how many purchases a second are admitted, and how many orders a second are
//! written while what is left of them is.
//!
//! A round admits as fast as connections are free, and the replica writes orders meanwhile as it
//! always does. Nobody asks for tickets: afterwards every admission must be an order in the
//! database. `drained` is counted by the database itself, from units that are gone with their
//! orders: from the moment at which the last ticket came to the last look at which some were still
//! to be written. Then nothing but the writing is going on. Where that is over too soon there was
//! nothing to measure.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::figure::{GENERATOR, Sample};
use super::processes::{Times, servers_of};
use super::rows::Setup;
use super::service::{Round, STOCK, Stage, load_seen};
use crate::error::{Error, Result};
use crate::judge::audit::Reader;
use crate::load::live::Live;
use crate::load::plan::Plan;
use crate::load::stats::{Figures, Queued};
use crate::load::tokens::User;

/// How often the database is asked.
const LOOK: Duration = Duration::from_millis(50);
/// How long it may take until all that was admitted is written.
const WRITTEN_WITHIN: Duration = Duration::from_mins(3);
/// Part of a round's length that the writing of what is left has to last.
const MIN_PART: f64 = 0.1;

/// What became of one load.
struct Filled {
    figures: Figures,
    queued: Queued,
    /// When the last ticket came.
    admitted_at: Instant,
    /// What was left to be sold, and when.
    looks: Vec<(Instant, i64)>,
}

impl Stage {
    /// A round in which purchases are admitted.
    pub async fn admitted(&self, setup: &Setup, seed: u64) -> Result<Sample> {
        self.queue(setup, seed, |filled, sample| sample.per_s = filled.queued.admitted_per_s).await
    }

    /// A round in which what was admitted is written.
    pub async fn drained(&self, setup: &Setup, seed: u64) -> Result<Sample> {
        let least_s = to_f64(self.seconds) * MIN_PART;
        self.queue(setup, seed, |filled, sample| {
            let (per_s, seconds) = filled.drained();
            (sample.per_s, sample.seconds) = (per_s, seconds);
            if seconds < least_s {
                let why = format!("what was left was written in {seconds:.2} s, not {least_s:.1}");
                sample.invalid.push(why);
            }
        })
        .await
    }

    async fn queue(
        &self,
        setup: &Setup,
        seed: u64,
        figure: impl FnOnce(&Filled, &mut Sample),
    ) -> Result<Sample> {
        let round = self.open(setup, STOCK).await?;
        let sample = round.fill_twice(seed, figure).await;
        self.end(round.deployment).await?;
        sample
    }
}

impl Round<'_> {
    /// A warm-up, and what is measured.
    async fn fill_twice(
        &self,
        seed: u64,
        figure: impl FnOnce(&Filled, &mut Sample),
    ) -> Result<Sample> {
        let (first, others) = self.stage.users.split_at(self.stage.users.len() / 5);
        let warmed = self.fill(self.stage.warm_up, first, seed).await?;
        let servers = servers_of(&self.deployment);
        let before = Times::of(&servers);
        let filled = self.fill(self.stage.seconds, others, seed).await?;
        let orders = to_f64(filled.queued.admitted);
        let mut sample = Sample {
            seconds: filled.queued.admitting_s,
            p50_ms: filled.queued.admission.p50_ms,
            p99_ms: filled.queued.admission.p99_ms,
            generator_share: filled.figures.cost.machine_share,
            cpu_us: Times::of(&servers).for_each(&before, orders),
            ..Sample::default()
        };
        let generator_us = filled.figures.cost.cpu_s * 1e6 / orders.max(1.0);
        sample.cpu_us.insert(GENERATOR, generator_us);
        figure(&filled, &mut sample);
        filled.judge(self.stage.seconds, &mut sample);
        let admitted = warmed.queued.admitted + filled.queued.admitted;
        self.look_for(admitted..=admitted, "admitted").await?;
        Ok(sample)
    }

    /// Until all that was admitted is written.
    async fn fill(&self, seconds: u64, users: &[User], seed: u64) -> Result<Filled> {
        let plan = Plan {
            duration: Some(Duration::from_secs(seconds)),
            // They are not followed.
            ticket_timeout: Duration::ZERO,
            ..self.plan(users.into(), seed)
        };
        let live = Arc::new(Live::new(&plan));
        let mut reader = Reader::connect(self.deployment.database_url()).await?;
        let voucher = self.vouchers[0];
        let before = reader.left(voucher).await?;
        // Until it is known, nothing is the last.
        let in_the_end = AtomicI64::new(i64::MIN);
        let sending = async {
            let figures = load_seen(&plan, &live).await?;
            let queued = figures.queued.clone().unwrap_or_default();
            let admitted = i64::try_from(queued.admitted).unwrap_or(i64::MAX);
            in_the_end.store(before - admitted, Ordering::Relaxed);
            Ok::<_, Error>((figures, queued))
        };
        let watching = async {
            let (mut looks, mut last) = (Vec::new(), (Instant::now(), before));
            loop {
                let left = reader.left(voucher).await?;
                looks.push((Instant::now(), left));
                let all = in_the_end.load(Ordering::Relaxed);
                if left <= all {
                    return Ok::<_, Error>(looks);
                }
                if left != last.1 {
                    last = (Instant::now(), left);
                }
                if all != i64::MIN && last.0.elapsed() > WRITTEN_WITHIN {
                    let missing = left - all;
                    return Err(Error::Setup(format!("{missing} admitted orders are not written")));
                }
                sleep(LOOK).await;
            }
        };
        let ((figures, queued), looks) = tokio::try_join!(sending, watching)?;
        let began = live.began().unwrap_or_else(Instant::now);
        let admitted_at = began + Duration::from_secs_f64(queued.admitting_s);
        Ok(Filled { figures, queued, admitted_at, looks })
    }
}

impl Filled {
    /// Orders a second while nothing is admitted any more and some are to be written, and for how
    /// long that was.
    fn drained(&self) -> (f64, f64) {
        let in_the_end = self.looks.last().map_or(0, |(_, left)| *left);
        // Those that found nothing to be written any more did not find out since when.
        let is_draining =
            |(at, left): &&(Instant, i64)| *at >= self.admitted_at && *left > in_the_end;
        let mut draining = self.looks.iter().filter(is_draining);
        match (draining.next(), draining.next_back()) {
            (Some((from, most)), Some((until, least))) if until > from => {
                let seconds = until.duration_since(*from).as_secs_f64();
                (to_f64(u64::try_from(most - least).unwrap_or(0)) / seconds, seconds)
            }
            _ => (0.0, 0.0),
        }
    }

    /// Whether it was the load that was asked for.
    fn judge(&self, seconds: u64, sample: &mut Sample) {
        let figures = &self.figures;
        let asked = to_f64(seconds);
        if self.queued.admitting_s < 0.95 * asked {
            let ended = self.queued.admitting_s;
            sample.invalid.push(format!("it ended after {ended:.1} s of {asked} s"));
        }
        let others = figures.requests - self.queued.admitted;
        if others > 0 {
            let codes = figures.codes.iter().map(|(code, count)| format!("{count} {code}"));
            let codes = codes.collect::<Vec<_>>().join(", ");
            sample.invalid.push(format!("{others} requests were not admitted: {codes}"));
        }
        sample.remarks.extend(figures.bottlenecks());
    }
}

#[allow(clippy::cast_precision_loss)]
fn to_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drained_counts_from_the_last_ticket_to_the_last_look_before_the_end() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let filled = |admitted_ms, looks: &[(u64, i64)]| Filled {
            figures: Figures::default(),
            queued: Queued::default(),
            admitted_at: at(admitted_ms),
            looks: looks.iter().map(|(ms, left)| (at(*ms), *left)).collect(),
        };
        let looks = [(0, 1000), (900, 950), (1100, 900), (1600, 500), (2100, 100), (2600, 0)];
        let (per_s, seconds) = filled(1000, &looks).drained();
        assert!((per_s - 800.0).abs() < 1e-6 && (seconds - 1.0).abs() < 1e-6, "{per_s} {seconds}");
        let written = [(0, 1000), (900, 0), (1100, 0), (1600, 0)];
        let (_, none) = filled(1000, &written).drained();
        assert!(none.abs() < 1e-9, "all was written when the last ticket had come: {none}");
    }
}

//! A progress bar with live figures on standard error; nothing at all where that is no terminal.
//!
//! Three lines, each short enough for 80 columns: what it is, how it goes, what came out so far.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::api;
use crate::client::Connection;
use crate::live::{LiveFigures, LiveSnapshot};
use crate::outcome::Outcome;
use crate::plan::Plan;

const REDRAW_EVERY: Duration = Duration::from_millis(200);
/// How often the public is asked what is left, on a connection of its own.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// A bar that follows one load; dropping it removes it.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    tasks: Vec<JoinHandle<()>>,
}

impl Progress {
    /// Shows `label` and the figures of `live` until dropped.
    pub fn follow(label: &str, live: &Arc<LiveFigures>, plan: &Plan) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), tasks: Vec::new() };
        }
        let bar = ProgressBar::new(1000);
        let template = "{prefix}\n{bar:10.cyan/black} {msg}";
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(label.to_owned());
        let drawing = draw(bar.clone(), live.clone(), Extent::of(plan));
        let asking = watch_stock(live.clone(), plan.clone());
        Self { bar, tasks: vec![tokio::spawn(drawing), tokio::spawn(asking)] }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.bar.finish_and_clear();
    }
}

async fn draw(bar: ProgressBar, live: Arc<LiveFigures>, extent: Extent) {
    loop {
        if let Some(began) = live.began() {
            let (snapshot, elapsed) = (live.snapshot(), began.elapsed());
            let done = extent.done(snapshot.total(), elapsed);
            bar.set_position(per_mille(done));
            bar.set_message(figures(&snapshot, elapsed, done));
        }
        tokio::time::sleep(REDRAW_EVERY).await;
    }
}

/// Adds up what is left of all vouchers; unknown while one of them is unknown.
async fn watch_stock(live: Arc<LiveFigures>, plan: Plan) {
    let mut connection = Connection::new(plan.target.clone(), ASK_EVERY);
    loop {
        let mut left = Some(0);
        for id in &plan.vouchers {
            let answer = api::voucher(&mut connection, &id.to_string()).await;
            left = left.zip(answer.ok().and_then(|one| one.stock)).map(|(sum, one)| sum + one);
        }
        live.set_stock(left);
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// How long a load is, as far as that is known before.
#[derive(Debug, Clone, Copy)]
struct Extent {
    requests: Option<usize>,
    duration: Option<Duration>,
}

impl Extent {
    fn of(plan: &Plan) -> Self {
        Self { requests: plan.known_requests(), duration: plan.duration }
    }

    /// The part that is done, 0 to 1: by requests or by time, whichever ends it sooner.
    #[allow(clippy::cast_precision_loss)]
    fn done(self, requests: u64, elapsed: Duration) -> f64 {
        let by_requests = self.requests.map(|all| requests as f64 / all.max(1) as f64);
        let by_time = self.duration.map(|all| elapsed.as_secs_f64() / all.as_secs_f64());
        by_requests.into_iter().chain(by_time).fold(0.0, f64::max).min(1.0)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn per_mille(part: f64) -> u64 {
    (part * 1000.0) as u64
}

/// What comes after the bar, and the outcomes on a line of their own.
fn figures(snapshot: &LiveSnapshot, elapsed: Duration, done: f64) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if done > 0.0 {
        let _ = write!(text, "{:.0} s to go  ", elapsed.as_secs_f64() * (1.0 - done) / done);
    }
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let rate = snapshot.total().saturating_mul(1000) / millis;
    // Latencies of seconds need no tenths of milliseconds.
    let decimals = |ms: f64| usize::from(ms < 100.0);
    let (p50, p99) = (snapshot.p50_ms, snapshot.p99_ms);
    let (fine, coarse) = (decimals(p50), decimals(p99));
    let _ = write!(text, "{rate}/s  p50 {p50:.fine$} ms  p99 {p99:.coarse$} ms");
    if let Some(left) = snapshot.stock {
        let _ = write!(text, "  {left} left");
    }
    if snapshot.waiting > 0 {
        let _ = write!(text, "  {} waiting", snapshot.waiting);
    }
    let counts = Outcome::ALL.iter().zip(snapshot.counts).filter(|(_, count)| *count > 0);
    let outcomes: Vec<String> = counts
        .map(|(outcome, count)| format!("{} {count}", outcome.name().replace('_', " ")))
        .collect();
    format!("{text}\n{}", outcomes.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_rate_outcomes_latency_stock_and_remaining_time() {
        let counts = [100, 0, 900, 0, 0];
        let snapshot =
            LiveSnapshot { counts, p50_ms: 1.5, p99_ms: 20.0, waiting: 3, stock: Some(7) };
        let extent = Extent { requests: Some(4000), duration: None };
        let elapsed = Duration::from_secs(2);
        let line = figures(&snapshot, elapsed, extent.done(snapshot.total(), elapsed));
        assert_eq!(
            line,
            "6 s to go  500/s  p50 1.5 ms  p99 20.0 ms  7 left  3 waiting\n\
             bought 100  already ordered 900"
        );
        let most = LiveSnapshot {
            counts: [99_999, 99_999, 99_999, 999, 999],
            p50_ms: 9999.9,
            p99_ms: 9999.9,
            waiting: 999,
            stock: Some(999),
        };
        let line = figures(&most, Duration::from_secs(999), 0.5);
        let (beside_bar, outcomes) = line.split_once('\n').expect("two lines");
        let widths = (11 + beside_bar.len(), outcomes.len());
        assert!(widths.0 <= 80 && widths.1 <= 80, "{widths:?}: {line}");
    }

    #[test]
    fn a_load_is_over_when_its_requests_or_its_time_are() {
        let extent = Extent { requests: Some(100), duration: Some(Duration::from_secs(10)) };
        let near = |done: f64, expected: f64| assert!((done - expected).abs() < 1e-9, "{done}");
        near(extent.done(50, Duration::from_secs(1)), 0.5);
        near(extent.done(1, Duration::from_secs(9)), 0.9);
        near(extent.done(1, Duration::from_secs(90)), 1.0);
        near(Extent { requests: None, duration: None }.done(1, Duration::from_secs(9)), 0.0);
    }
}

//! A progress bar with live figures on standard error; nothing at all where that is no terminal.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::JoinHandle;

use crate::load::drive::Live;
use crate::load::outcome::Outcome;

const REDRAW_EVERY: Duration = Duration::from_millis(100);

/// A bar that follows one load; dropping it removes it.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    ticker: JoinHandle<()>,
}

impl Progress {
    /// Shows `label` and the figures of `live` until dropped.
    pub fn follow(label: &str, live: Arc<Live>, requests: usize) -> Self {
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(requests as u64)
        } else {
            ProgressBar::hidden()
        };
        let template = "{prefix} {wide_bar:.cyan/black} {pos}/{len} {msg}";
        bar.set_style(
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        bar.set_prefix(label.to_owned());
        let drawn = bar.clone();
        let ticker = tokio::spawn(async move {
            let began = Instant::now();
            while !drawn.is_hidden() && !drawn.is_finished() {
                drawn.set_position(live.total());
                drawn.set_message(figures(&live, began.elapsed()));
                tokio::time::sleep(REDRAW_EVERY).await;
            }
        });
        Self { bar, ticker }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.ticker.abort();
        self.bar.finish_and_clear();
    }
}

fn figures(live: &Live, elapsed: Duration) -> String {
    let mut text = String::new();
    for outcome in Outcome::ALL {
        let count = live.count(outcome);
        if count > 0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "{} {count}  ", outcome.name().replace('_', " "));
        }
    }
    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let _ = write!(text, "{}/s", live.total().saturating_mul(1000) / millis);
    text
}

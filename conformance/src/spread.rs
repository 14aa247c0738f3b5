//! How a measured time spreads.

use std::fmt;
use std::time::Duration;

/// Sorted times.
#[derive(Debug, Clone)]
pub struct Spread(Vec<Duration>);

impl Spread {
    /// Of these times; there has to be one.
    pub fn of(times: impl IntoIterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.into_iter().collect();
        assert!(!times.is_empty(), "nothing was measured");
        times.sort_unstable();
        Self(times)
    }

    /// How many times there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The time that `percent` % of the times did not exceed.
    pub fn percentile(&self, percent: usize) -> Duration {
        let rank = (self.0.len() * percent).div_ceil(100).clamp(1, self.0.len());
        self.0[rank - 1]
    }

    /// The median and the 99th percentile in milliseconds, for a table.
    pub fn in_short(&self, decimals: usize) -> String {
        let ms = |percent| self.percentile(percent).as_secs_f64() * 1000.0;
        format!("{:.decimals$}, {:.decimals$} ms", ms(50), ms(99))
    }

    /// The longest.
    pub fn max(&self) -> Duration {
        self.percentile(100)
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |percent| self.percentile(percent).as_secs_f64() * 1000.0;
        let (p50, p99, max) = (ms(50), ms(99), ms(100));
        write!(f, "n={:<4} p50={p50:.2} p99={p99:.2} max={max:.2} ms", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let spread = Spread::of((1..=200).rev().map(Duration::from_millis));
        assert_eq!(spread.percentile(50), Duration::from_millis(100));
        assert_eq!(spread.percentile(99), Duration::from_millis(198));
        assert_eq!(spread.max(), Duration::from_millis(200));
        assert_eq!(spread.to_string(), "n=200  p50=100.00 p99=198.00 max=200.00 ms");
        assert_eq!(spread.in_short(1), "100.0, 198.0 ms");
        assert_eq!(Spread::of([Duration::from_millis(7)]).percentile(1).as_millis(), 7);
    }
}

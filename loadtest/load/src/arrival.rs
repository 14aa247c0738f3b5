//! The moments at which requests are due, counted from the load's begin and drawn from the
//! seed in turn.
//!
//! A closed loop has no schedule: a request leaves when a connection is free. An open loop has one,
//! and keeps to it however slow the answers are, as customers do.

use std::path::PathBuf;
use std::time::Duration;

use fastrand::Rng;

use crate::mix::{Stream, stream};

/// What the rate of a flash is multiplied by, within a second.
pub const FLASH_FACTOR: f64 = 100.0;
/// How long that takes, in seconds.
const FLASH_RISE_S: f64 = 1.0;

/// How requests arrive.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrival {
    /// As fast as connections come free.
    Closed,
    /// At equal distances, at this rate per second.
    Constant(f64),
    /// At random, independent of each other, with this mean rate per second.
    Poisson(f64),
    /// At random; in the middle of the load the rate rises a hundredfold within one second, and
    /// stays there.
    Flash {
        /// Arrivals a second before that.
        rate: f64,
        /// The middle of the load.
        middle: Duration,
    },
    /// As a file says.
    Trace(PathBuf),
}

impl Arrival {
    /// Whether requests leave on a schedule.
    pub fn is_open(&self) -> bool {
        !matches!(self, Self::Closed)
    }

    /// Arrivals to be expected within that time; `None` if only the load will show.
    pub fn expected(&self, within: Duration) -> Option<f64> {
        let seconds = within.as_secs_f64();
        match self {
            Self::Closed | Self::Trace(_) => None,
            Self::Constant(rate) | Self::Poisson(rate) => Some(rate * seconds),
            Self::Flash { rate, middle } => {
                let after = (seconds - middle.as_secs_f64()).max(0.0);
                let risen = (after - FLASH_RISE_S / 2.0).max(0.0) * FLASH_FACTOR;
                Some(rate * (seconds - after + risen))
            }
        }
    }
}

impl std::fmt::Display for Arrival {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Closed => f.write_str("closed loop"),
            Self::Constant(rate) => write!(f, "constant, {rate}/s"),
            Self::Poisson(rate) => write!(f, "Poisson, {rate}/s"),
            Self::Flash { rate, middle } => {
                write!(f, "flash, {rate}/s, {FLASH_FACTOR} times that from {middle:?} on")
            }
            Self::Trace(path) => write!(f, "trace {}", path.display()),
        }
    }
}

/// The moments of an open loop. A closed loop has none that count, a trace its own.
#[derive(Debug)]
pub(super) enum Schedule {
    /// At once.
    AtOnce,
    /// At equal distances.
    Constant { rate: f64, count: f64 },
    /// `load` is the number of arrivals expected so far, of which one more comes after an
    /// exponentially distributed amount: an exact draw for any rate that changes with time.
    Random { rate: f64, middle: Option<f64>, load: f64, rng: Rng },
}

impl Schedule {
    pub(super) fn new(arrival: &Arrival, seed: u64) -> Self {
        let rng = stream(seed, Stream::Arrivals, 0);
        let random = |rate, middle| Self::Random { rate, middle, load: 0.0, rng };
        match arrival {
            Arrival::Closed | Arrival::Trace(_) => Self::AtOnce,
            Arrival::Constant(rate) => Self::Constant { rate: *rate, count: 0.0 },
            Arrival::Poisson(rate) => random(*rate, None),
            Arrival::Flash { rate, middle } => random(*rate, Some(middle.as_secs_f64())),
        }
    }

    /// The next moment; there is always one.
    pub(super) fn next_at(&mut self) -> Duration {
        let seconds = match self {
            Self::AtOnce => 0.0,
            Self::Constant { rate, count } => {
                *count += 1.0;
                (*count - 1.0) / *rate
            }
            Self::Random { rate, middle, load, rng } => {
                *load -= (1.0 - rng.f64()).ln();
                match middle {
                    None => *load / *rate,
                    Some(middle) => flash(*load / *rate, *middle),
                }
            }
        };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

/// The second at which a flash has as many arrivals as a constant rate has after `load` seconds. It
/// inverts the integral of 1, then a ramp to the factor, then the factor.
fn flash(load: f64, middle: f64) -> f64 {
    let slope = (FLASH_FACTOR - 1.0) / FLASH_RISE_S;
    let beyond = load - middle;
    let in_rise = FLASH_RISE_S + slope * FLASH_RISE_S * FLASH_RISE_S / 2.0;
    if beyond <= 0.0 {
        load
    } else if beyond <= in_rise {
        middle + ((1.0 + 2.0 * slope * beyond).sqrt() - 1.0) / slope
    } else {
        middle + FLASH_RISE_S + (beyond - in_rise) / FLASH_FACTOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(arrival: &Arrival, seed: u64, until: f64) -> Vec<f64> {
        let mut schedule = Schedule::new(arrival, seed);
        let mut all = Vec::new();
        loop {
            let at = schedule.next_at().as_secs_f64();
            if at >= until {
                return all;
            }
            all.push(at);
        }
    }

    fn between(all: &[f64], from: f64, to: f64) -> usize {
        all.iter().filter(|at| (from..to).contains(*at)).count()
    }

    #[test]
    fn constant_arrivals_keep_their_distance() {
        let all = seconds(&Arrival::Constant(50.0), 1, 10.0);
        assert_eq!(all.len(), 500);
        assert!(all.windows(2).all(|two| (two[1] - two[0] - 0.02).abs() < 1e-6));
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_vary_as_much_as_their_mean() {
        let all = seconds(&Arrival::Poisson(100.0), 1, 1000.0);
        assert!(all.len().abs_diff(100_000) < 1000, "{}", all.len());
        let mut square = 0.0;
        for second in 0..1000_u32 {
            let count = between(&all, f64::from(second), f64::from(second + 1));
            square += (f64::from(u32::try_from(count).expect("few")) - 100.0).powi(2);
        }
        let variance = square / 1000.0;
        assert!((85.0..115.0).contains(&variance), "{variance}");
        assert_eq!(all, seconds(&Arrival::Poisson(100.0), 1, 1000.0), "the same seed");
        assert_ne!(all, seconds(&Arrival::Poisson(100.0), 2, 1000.0), "another seed");
    }

    #[test]
    fn a_flash_is_a_hundred_times_the_rate_one_second_after_its_middle() {
        let middle = Duration::from_secs(20);
        let all = seconds(&Arrival::Flash { rate: 100.0, middle }, 1, 23.0);
        assert!(between(&all, 0.0, 20.0).abs_diff(2000) < 200, "before: the rate");
        let rise = between(&all, 20.0, 21.0);
        assert!(rise.abs_diff(5050) < 350, "in between: half of it, {rise}");
        assert!(between(&all, 21.0, 22.0).abs_diff(10_000) < 500, "then: a hundred times");
        assert!(between(&all, 20.9, 21.0).abs_diff(950) < 150, "nearly there");
        assert!(all.is_sorted());
        let until = Duration::from_secs(23);
        let expected = Arrival::Flash { rate: 100.0, middle }.expected(until).expect("known");
        #[allow(clippy::cast_precision_loss)]
        let count = all.len() as f64;
        assert!((count - expected).abs() < 0.03 * expected, "{count} of {expected}");
    }
}

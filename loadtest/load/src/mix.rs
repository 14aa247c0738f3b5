//! The user and the voucher of each request. They are drawn from the seed, one arrival after the
//! other, so that the same seed gives the same requests and nothing grows with their number.
//!
//! Users, vouchers and arrivals have random streams of their own. The properties of one request
//! (its idempotency key, whether and when its client hangs up) are drawn from the seed and the
//! request's number. They do not depend on the order in which requests are drawn.

use std::time::Duration;

use fastrand::Rng;
use uuid::Uuid;

use crate::client::HangUp;

/// Longest pause before a client hangs up that has sent its request.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// How users take part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mix {
    /// Each user once, in a random order, with this many simultaneous requests.
    EachUser {
        /// From 1 to [`crate::plan::MAX_PER_USER`].
        requests: usize,
    },
    /// A random user each time, again and again: with little stock, most come after the last unit.
    AfterSoldOut,
}

impl Mix {
    /// Requests of one arrival.
    pub fn together(self) -> usize {
        match self {
            Self::EachUser { requests } => requests,
            Self::AfterSoldOut => 1,
        }
    }
}

/// What the random streams are for.
#[derive(Debug, Clone, Copy)]
#[repr(u64)]
pub(super) enum Stream {
    Users = 1,
    Vouchers = 2,
    Arrivals = 3,
    Requests = 4,
}

/// The random numbers of one purpose; `number` distinguishes those of one request from another's.
pub(super) fn stream(seed: u64, purpose: Stream, number: u64) -> Rng {
    let mut scattered = Rng::with_seed(seed ^ (purpose as u64).rotate_left(56));
    let mixed = scattered.u64(..).wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    Rng::with_seed(Rng::with_seed(mixed).u64(..))
}

/// The users of the arrivals, as indexes.
#[derive(Debug)]
pub(super) enum Users {
    /// Each once, from the back.
    Each(Vec<u32>),
    /// Any user below this index.
    Any(Rng, u32),
}

impl Users {
    pub(super) fn new(mix: Mix, users: u32, seed: u64) -> Self {
        let mut rng = stream(seed, Stream::Users, 0);
        match mix {
            Mix::EachUser { .. } => {
                let mut order: Vec<u32> = (0..users).collect();
                rng.shuffle(&mut order);
                Self::Each(order)
            }
            Mix::AfterSoldOut => Self::Any(rng, users),
        }
    }

    pub(super) fn draw(&mut self) -> Option<u32> {
        match self {
            Self::Each(order) => order.pop(),
            Self::Any(rng, users) => Some(rng.u32(..*users)),
        }
    }
}

/// The vouchers of the arrivals, as indexes: the i-th has the share `1 / i^s`, of all added.
#[derive(Debug)]
pub(super) struct Vouchers {
    rng: Rng,
    /// Shares up to each voucher, added.
    upto: Vec<f64>,
}

impl Vouchers {
    pub(super) fn new(vouchers: usize, zipf: f64, seed: u64) -> Self {
        let mut sum = 0.0;
        let upto = (1..=u32::try_from(vouchers).unwrap_or(u32::MAX)).map(|rank| {
            sum += f64::from(rank).powf(-zipf);
            sum
        });
        Self { upto: upto.collect(), rng: stream(seed, Stream::Vouchers, 0) }
    }

    pub(super) fn draw(&mut self) -> usize {
        let whole = self.upto.last().copied().unwrap_or_default();
        let at = self.rng.f64() * whole;
        self.upto.partition_point(|upto| *upto <= at).min(self.upto.len().saturating_sub(1))
    }
}

/// What belongs to one request and is drawn for it alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fate {
    /// Its idempotency key.
    pub key: Uuid,
    /// When its client hangs up, if it does.
    pub hang_up: Option<HangUp>,
}

impl Fate {
    /// The fate of the request with this number, where `share` of the clients hang up.
    pub fn of(seed: u64, number: u32, share: f64) -> Self {
        let mut rng = stream(seed, Stream::Requests, u64::from(number));
        let key = uuid::Builder::from_random_bytes(rng.u128(..).to_be_bytes()).into_uuid();
        let chosen = share > 0.0 && rng.f64() < share;
        let hang_up = chosen.then(|| match rng.u8(..3) {
            0 => HangUp::BeforeSent(rng.f64()),
            1 => HangUp::AfterSent(MAX_PAUSE.mul_f64(rng.f64())),
            _ => HangUp::DuringAnswer,
        });
        Self { key, hang_up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_is_drawn_once_and_in_an_order_that_the_seed_decides() {
        let all = |seed| {
            let mut users = Users::new(Mix::EachUser { requests: 3 }, 1000, seed);
            std::iter::from_fn(move || users.draw()).collect::<Vec<_>>()
        };
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(8));
        let mut sorted = all(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<_>>());
    }

    #[test]
    fn vouchers_are_drawn_in_the_shares_of_zipf() {
        let mut vouchers = Vouchers::new(4, 1.0, 3);
        let mut counts = [0_u32; 4];
        for _ in 0..100_000 {
            counts[vouchers.draw()] += 1;
        }
        // 1 + 1/2 + 1/3 + 1/4 = 25/12: shares of 0.48, 0.24, 0.16, 0.12.
        for (count, expected) in counts.into_iter().zip([48_000, 24_000, 16_000, 12_000]) {
            assert!(count.abs_diff(expected) < 1000, "{counts:?}");
        }
        let mut even = Vouchers::new(2, 0.0, 3);
        let second = (0..10_000).filter(|_| even.draw() == 1).count();
        assert!(second.abs_diff(5000) < 300, "without a slope all are alike: {second}");
    }

    #[test]
    fn a_share_of_the_clients_hangs_up_in_each_of_three_ways() {
        let mut ways = [0_u32; 3];
        for number in 0..100_000 {
            match Fate::of(5, number, 0.3).hang_up {
                Some(HangUp::BeforeSent(part)) => {
                    assert!((0.0..1.0).contains(&part));
                    ways[0] += 1;
                }
                Some(HangUp::AfterSent(pause)) => {
                    assert!(pause <= MAX_PAUSE);
                    ways[1] += 1;
                }
                Some(HangUp::DuringAnswer) => ways[2] += 1,
                None => {}
            }
        }
        assert!(ways.iter().all(|way| way.abs_diff(10_000) < 700), "{ways:?}");
        assert!((0..1000).all(|number| Fate::of(5, number, 0.0).hang_up.is_none()));
    }

    #[test]
    fn keys_are_those_of_the_seed_and_never_the_same_twice() {
        let keys = |seed| (0..10_000).map(move |number| Fate::of(seed, number, 0.1).key);
        assert!(keys(1).eq(keys(1)));
        let all: std::collections::HashSet<_> = keys(1).chain(keys(2)).collect();
        assert_eq!(all.len(), 20_000);
    }
}

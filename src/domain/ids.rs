//! Identifiers: 63 bits in the database, decimal strings in JSON (a JavaScript number has 53 bits).

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::macros::datetime;

/// The greatest id.
pub const LAST_ID: u64 = i64::MAX.unsigned_abs();
/// The most digits of an id.
pub const ID_DIGITS: usize = 19;

/// Text that is no id.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a whole number from 1 to {LAST_ID}")]
pub struct BadId;

fn parse(text: &str) -> Result<u64, BadId> {
    let plain =
        !text.is_empty() && text.len() <= ID_DIGITS && text.bytes().all(|b| b.is_ascii_digit());
    let number = if plain { text.parse().map_err(|_| BadId)? } else { 0 };
    if (1..=LAST_ID).contains(&number) { Ok(number) } else { Err(BadId) }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;

            fn from_str(text: &str) -> Result<Self, BadId> {
                parse(text).map(Self)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

id!(
    /// A user.
    UserId
);
id!(
    /// A voucher.
    VoucherId
);
id!(
    /// An order: seconds since 2022-01-01 UTC in the upper 31 bits, a counter in the lower 32.
    OrderId
);

impl OrderId {
    const EPOCH: OffsetDateTime = datetime!(2022-01-01 0:00 UTC);

    /// The id made of a moment and a number drawn from the day's counter.
    pub fn compose(now: OffsetDateTime, counter: u64) -> Self {
        let seconds = u64::try_from((now - Self::EPOCH).whole_seconds()).unwrap_or(0);
        Self((seconds & 0x7fff_ffff) << 32 | (counter & 0xffff_ffff))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_decimal_of_63_bits_without_signs_or_spaces() {
        for bad in ["", "0", "-1", "+1", " 1", "1.0", "1e3", "9223372036854775808", "٣", "1;--"] {
            assert_eq!(bad.parse::<OrderId>(), Err(BadId), "{bad:?}");
        }
        assert_eq!("9223372036854775807".parse(), Ok(OrderId(i64::MAX.unsigned_abs())));
        assert_eq!(serde_json::to_string(&VoucherId(7)).unwrap(), "\"7\"");
    }

    #[test]
    fn order_ids_have_seconds_above_a_counter_and_stay_positive() {
        let id = OrderId::compose(datetime!(2022-01-01 0:00:02 UTC), 5);
        assert_eq!(id.0, (2 << 32) | 5);
        let last = OrderId::compose(datetime!(2090-01-01 0:00 UTC), u64::from(u32::MAX));
        assert!(last.0 <= i64::MAX.unsigned_abs());
        assert!(OrderId::compose(datetime!(2026-01-01 0:00:01 UTC), 0) > id);
    }
}

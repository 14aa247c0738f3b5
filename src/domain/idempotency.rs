//! What makes a request the same as an earlier one.

use std::fmt;
use std::str::FromStr;

use ring::digest::{SHA256, digest};

use super::{OrderId, VoucherId};

/// What an `Idempotency-Key` comes to: half of its SHA-256, so that any key takes 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IdempotencyKeyHash(pub [u8; 16]);

impl IdempotencyKeyHash {
    /// Of the header's value.
    pub fn of(value: &[u8]) -> Self {
        let hash = digest(&SHA256, value);
        let mut half = [0; 16];
        half.copy_from_slice(&hash.as_ref()[..16]);
        Self(half)
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for IdempotencyKeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Text that is no key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 32 hexadecimal digits")]
pub struct BadIdempotencyKeyHash;

impl FromStr for IdempotencyKeyHash {
    type Err = BadIdempotencyKeyHash;

    /// As it is written, and in no other way.
    fn from_str(text: &str) -> Result<Self, BadIdempotencyKeyHash> {
        let number = u128::from_str_radix(text, 16).map_err(|_| BadIdempotencyKeyHash)?;
        let key = Self(number.to_be_bytes());
        if key.to_string() == text { Ok(key) } else { Err(BadIdempotencyKeyHash) }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    /// A unit of a voucher.
    Purchase {
        /// The voucher.
        voucher: VoucherId,
        /// The price in cents, if the request states it.
        price_cents: Option<u64>,
    },
    /// To pay that order.
    Pay(OrderId),
    /// To cancel that order.
    Cancel(OrderId),
}

impl Operation {
    /// Whether both ask for the same. A purchase without a price matches one at any price.
    pub fn matches(self, other: Self) -> bool {
        match (self, other) {
            (
                Self::Purchase { voucher, price_cents },
                Self::Purchase { voucher: other_voucher, price_cents: other_price_cents },
            ) => {
                let prices = price_cents.zip(other_price_cents);
                voucher == other_voucher && prices.is_none_or(|(one, other)| one == other)
            }
            (Self::Pay(order), Self::Pay(other)) | (Self::Cancel(order), Self::Cancel(other)) => {
                order == other
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_as_it_was_written() {
        let key = IdempotencyKeyHash([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 254, 255]);
        let text = "000102030405060708090a0b0c0dfeff";
        assert_eq!(key.to_string(), text);
        assert_eq!(text.parse(), Ok(key));
        for bad in ["", "1", &text.to_uppercase(), &format!("+{}", &text[1..])] {
            assert_eq!(bad.parse::<IdempotencyKeyHash>(), Err(BadIdempotencyKeyHash), "{bad}");
        }
    }

    #[test]
    fn purchases_match_unless_they_state_different_prices_or_vouchers() {
        let purchase =
            |voucher, price_cents| Operation::Purchase { voucher: VoucherId(voucher), price_cents };
        let stated = purchase(1, Some(8000));
        for (other, is_same) in [
            (stated, true),
            (purchase(1, None), true),
            (purchase(1, Some(9000)), false),
            (purchase(2, Some(8000)), false),
            (purchase(2, None), false),
            (Operation::Pay(OrderId(1)), false),
        ] {
            assert_eq!(stated.matches(other), is_same, "{other:?}");
            assert_eq!(other.matches(stated), is_same, "{other:?}");
        }
        assert!(Operation::Pay(OrderId(1)).matches(Operation::Pay(OrderId(1))));
        assert!(!Operation::Pay(OrderId(1)).matches(Operation::Cancel(OrderId(1))));
        assert!(!Operation::Pay(OrderId(1)).matches(Operation::Pay(OrderId(2))));
    }
}

//! What makes a request the same as an earlier one.

use aws_lc_rs::digest::{SHA256, digest};

use super::{OrderId, VoucherId};

/// What an `Idempotency-Key` comes to: half of its SHA-256, so that any key takes 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestKey(pub [u8; 16]);

impl RequestKey {
    /// Of the header's value.
    pub fn of(value: &[u8]) -> Self {
        let hash = digest(&SHA256, value);
        let mut half = [0; 16];
        half.copy_from_slice(&hash.as_ref()[..16]);
        Self(half)
    }
}

/// What a request asks for. Bodies are empty, so this is all there is to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wish {
    /// A unit of that voucher.
    Purchase(VoucherId),
    /// To pay that order.
    Pay(OrderId),
    /// To cancel that order.
    Cancel(OrderId),
}

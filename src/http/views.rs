//! How things look in JSON.

use serde::Serialize;
use time::OffsetDateTime;

use crate::domain::{Order, OrderId, Phase, Status, UserId, Voucher, VoucherId};

#[derive(Serialize)]
pub(super) struct VoucherView {
    id: VoucherId,
    title: String,
    description: String,
    price_cents: u64,
    face_value_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    ends_at: OffsetDateTime,
    status: Status,
    stock: i64,
    phase: Phase,
}

impl VoucherView {
    pub(super) fn new(voucher: Voucher, now: OffsetDateTime) -> Self {
        Self {
            id: voucher.id,
            phase: voucher.window.phase(now),
            title: voucher.title,
            description: voucher.description,
            price_cents: voucher.price_cents,
            face_value_cents: voucher.face_value_cents,
            starts_at: voucher.window.starts_at,
            ends_at: voucher.window.ends_at,
            status: voucher.status,
            stock: voucher.stock,
        }
    }
}

#[derive(Serialize)]
pub(super) struct OrderView {
    id: OrderId,
    voucher_id: VoucherId,
    user_id: UserId,
    voucher_title: String,
    price_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    created_at: OffsetDateTime,
}

impl From<Order> for OrderView {
    fn from(order: Order) -> Self {
        Self {
            id: order.id,
            voucher_id: order.voucher_id,
            user_id: order.user_id,
            voucher_title: order.voucher_title,
            price_cents: order.price_cents,
            created_at: order.created_at,
        }
    }
}

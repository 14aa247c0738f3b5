//! How things look in JSON.

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::domain::{Order, OrderId, Phase, Role, Status, UserId, Voucher, VoucherId};

/// A voucher and what is left of it.
#[derive(Serialize, ToSchema)]
pub(super) struct VoucherView {
    #[schema(value_type = String, example = "7")]
    id: VoucherId,
    title: String,
    description: String,
    price_cents: u64,
    face_value_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    ends_at: OffsetDateTime,
    #[schema(value_type = String, example = "on_sale")]
    status: Status,
    stock: i64,
    #[schema(value_type = String, example = "open")]
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

/// A voucher, for admins.
#[derive(Serialize, ToSchema)]
pub(super) struct VoucherAnswer {
    pub(super) voucher: VoucherView,
}

/// A voucher and the time by which its countdown runs.
#[derive(Serialize, ToSchema)]
pub(super) struct TimedVoucher {
    #[serde(with = "time::serde::rfc3339")]
    pub(super) server_time: OffsetDateTime,
    pub(super) voucher: VoucherView,
}

/// Vouchers and the time by which their countdowns run.
#[derive(Serialize, ToSchema)]
pub(super) struct TimedVouchers {
    #[serde(with = "time::serde::rfc3339")]
    pub(super) server_time: OffsetDateTime,
    pub(super) vouchers: Vec<VoucherView>,
}

/// One unit, sold to one user.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderView {
    #[schema(value_type = String, example = "662520661280817152")]
    id: OrderId,
    #[schema(value_type = String, example = "7")]
    voucher_id: VoucherId,
    #[schema(value_type = String, example = "17")]
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

/// An order.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderAnswer {
    pub(super) order: OrderView,
}

/// A page of orders, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderPage {
    pub(super) orders: Vec<OrderView>,
    /// Where the next page begins, if there is one.
    #[schema(value_type = Option<String>)]
    pub(super) next_cursor: Option<OrderId>,
}

/// A user, as shown to the same.
#[derive(Serialize, ToSchema)]
pub(super) struct UserView {
    #[schema(value_type = String, example = "17")]
    id: UserId,
    /// With its middle hidden.
    phone: String,
    role: &'static str,
}

impl UserView {
    pub(super) fn new(id: UserId, phone: &crate::domain::Phone, role: Role) -> Self {
        Self { id, phone: phone.masked(), role: role.as_str() }
    }
}

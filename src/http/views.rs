//! How things look in JSON.

use std::time::Duration;

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::domain::{Order, OrderId, OrderStatus, Phase, Role, Status, UserId, Voucher, VoucherId};

/// A voucher and what is left of it.
#[derive(Serialize, ToSchema)]
pub(super) struct VoucherView {
    id: VoucherId,
    #[schema(example = "Dinner for two")]
    title: String,
    #[schema(example = "Any weekday until six.")]
    description: String,
    #[schema(example = 8000)]
    price_cents: u64,
    #[schema(example = 10000)]
    face_value_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-11T12:00:00Z")]
    starts_at: OffsetDateTime,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-12T12:00:00Z")]
    ends_at: OffsetDateTime,
    #[schema(value_type = String, example = "on_sale")]
    status: Status,
    #[schema(example = 200)]
    stock: i64,
    /// `not_on_sale` (a draft), `not_started`, `open` or `ended`.
    #[schema(example = "open")]
    phase: &'static str,
}

impl VoucherView {
    pub(super) fn new(voucher: Voucher, now: OffsetDateTime) -> Self {
        Self {
            id: voucher.id,
            phase: phase(&voucher, now),
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

fn phase(voucher: &Voucher, now: OffsetDateTime) -> &'static str {
    match (voucher.status, voucher.window.phase(now)) {
        (Status::Draft, _) => "not_on_sale",
        (Status::OnSale, Phase::NotStarted) => "not_started",
        (Status::OnSale, Phase::Open) => "open",
        (Status::OnSale, Phase::Ended) => "ended",
    }
}

/// Whether a unit can be bought.
#[derive(Serialize, ToSchema)]
pub(super) struct AvailabilityView {
    pub(super) voucher_id: VoucherId,
    /// Whether the voucher is on sale now and a unit is left. Another buyer may be faster.
    #[schema(example = true)]
    pub(super) available: bool,
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
    #[schema(example = "2026-11-11T12:00:00Z")]
    pub(super) server_time: OffsetDateTime,
    pub(super) voucher: VoucherView,
}

/// Vouchers and the time by which their countdowns run.
#[derive(Serialize, ToSchema)]
pub(super) struct TimedVouchers {
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-11T12:00:00Z")]
    pub(super) server_time: OffsetDateTime,
    pub(super) vouchers: Vec<VoucherView>,
}

/// One unit, sold to one user.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderView {
    id: OrderId,
    voucher_id: VoucherId,
    user_id: UserId,
    #[schema(example = "Dinner for two")]
    voucher_title: String,
    #[schema(example = 8000)]
    price_cents: u64,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-11T12:00:00Z")]
    created_at: OffsetDateTime,
    /// `unpaid`, `paid` or `cancelled`.
    #[schema(example = "unpaid")]
    status: &'static str,
    /// When an unpaid order is cancelled, if it is.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(example = "2026-11-11T12:15:00Z")]
    pay_by: Option<OffsetDateTime>,
    /// When it was paid or cancelled.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(example = "2026-11-11T12:05:00Z")]
    settled_at: Option<OffsetDateTime>,
    /// `buyer` or `time_out`.
    #[schema(example = "time_out")]
    cancelled_by: Option<&'static str>,
}

impl OrderView {
    /// As it looks where unpaid orders are cancelled after that time.
    pub(super) fn new(order: Order, unpaid_timeout: Option<Duration>) -> Self {
        let is_unpaid = order.status == OrderStatus::Unpaid;
        Self {
            status: order.status.as_str(),
            pay_by: unpaid_timeout.filter(|_| is_unpaid).map(|time| order.created_at + time),
            settled_at: order.settled_at,
            cancelled_by: order.status.cancelled_by(),
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

/// An order and the time by which its countdown runs.
#[derive(Serialize, ToSchema)]
pub(super) struct TimedOrder {
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-11T12:00:00Z")]
    pub(super) server_time: OffsetDateTime,
    pub(super) order: OrderView,
}

/// A page of orders, newest first.
#[derive(Serialize, ToSchema)]
pub(super) struct OrderPage {
    /// The time by which their countdowns run, if there are any.
    #[serde(with = "time::serde::rfc3339::option")]
    #[schema(example = "2026-11-11T12:00:00Z")]
    pub(super) server_time: Option<OffsetDateTime>,
    pub(super) orders: Vec<OrderView>,
    /// Where the next page begins, if there is one.
    pub(super) next_cursor: Option<OrderId>,
}

/// A user, as shown to the same.
#[derive(Serialize, ToSchema)]
pub(super) struct UserView {
    id: UserId,
    /// With its middle hidden.
    #[schema(example = "+86****0001")]
    phone: String,
    #[schema(example = "buyer")]
    role: &'static str,
}

impl UserView {
    pub(super) fn new(id: UserId, phone: &crate::domain::Phone, role: Role) -> Self {
        Self { id, phone: phone.masked(), role: role.as_str() }
    }
}

//! Vouchers and the window in which they are sold.

use serde::Serialize;
use time::OffsetDateTime;

use super::VoucherId;

/// The most units that a voucher may have left.
pub const MAX_STOCK: i64 = 1_000_000_000;
/// The most buckets that a voucher's stock is split into.
pub const MAX_STOCK_BUCKETS: u32 = 64;

/// Whether customers see a voucher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Being prepared; only admins see it.
    Draft,
    /// Visible, and sold within its window.
    OnSale,
}

impl Status {
    /// The name in the database and in answers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::OnSale => "on_sale",
        }
    }
}

/// Where a moment lies in relation to a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Before it.
    NotStarted,
    /// In it.
    Open,
    /// At its end or after it.
    Ended,
}

/// When a voucher is sold: from `starts_at` on, until before `ends_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// The first moment.
    pub starts_at: OffsetDateTime,
    /// The first moment that is too late.
    pub ends_at: OffsetDateTime,
}

impl Window {
    /// Where that moment lies.
    pub fn phase(&self, now: OffsetDateTime) -> Phase {
        if now < self.starts_at {
            Phase::NotStarted
        } else if now < self.ends_at {
            Phase::Open
        } else {
            Phase::Ended
        }
    }
}

/// A voucher with what is left of it.
#[derive(Debug, Clone)]
pub struct Voucher {
    /// Its id.
    pub id: VoucherId,
    /// What it is called.
    pub title: String,
    /// What it is good for.
    pub description: String,
    /// What it costs, in cents.
    pub price_cents: u64,
    /// What it is worth, in cents.
    pub face_value_cents: u64,
    /// When it is sold.
    pub window: Window,
    /// Whether customers see it.
    pub status: Status,
    /// Units left.
    pub stock: i64,
    /// Buckets that the stock is split into; 0 if it is in one row, or all buckets are empty.
    pub buckets: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::macros::datetime;

    #[test]
    fn a_window_includes_its_start_and_excludes_its_end() {
        let window = Window {
            starts_at: datetime!(2026-11-11 0:00 UTC),
            ends_at: datetime!(2026-11-12 0:00 UTC),
        };
        assert_eq!(window.phase(datetime!(2026-11-10 23:59:59.999 UTC)), Phase::NotStarted);
        assert_eq!(window.phase(window.starts_at), Phase::Open);
        assert_eq!(window.phase(datetime!(2026-11-11 23:59:59.999 UTC)), Phase::Open);
        assert_eq!(window.phase(window.ends_at), Phase::Ended);
    }
}

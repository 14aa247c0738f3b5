//! The audit of a voucher: what the tables say, without interpretation.

use sqlx::{MySqlPool, Row};

use super::{SaleTables, Session, StoreError};
use crate::domain::VoucherId;

/// The figures of one voucher, read by one statement and so of one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Audit {
    /// Sum of the grants.
    pub initial_stock: i64,
    /// Units left.
    pub stock_left: i64,
    /// Orders that have a unit: those that are not cancelled.
    pub orders: i64,
    /// Orders that have returned theirs.
    pub cancelled: i64,
    /// Users with an order, cancelled or not.
    pub distinct_users: i64,
    /// Users with more than one, cancelled or not.
    pub duplicate_users: i64,
}

impl Audit {
    /// Reads the figures; `None` if there is no such voucher.
    pub async fn read(
        pool: &MySqlPool,
        tables: &SaleTables,
        voucher: VoucherId,
    ) -> Result<Option<Self>, StoreError> {
        let mut session = Session::open(pool).await?;
        let query = sqlx::query(tables.audit).bind(voucher.0).bind(voucher.0);
        let Some(row) = session.fetch_optional(query).await? else { return Ok(None) };
        Ok(Some(Self {
            initial_stock: row.try_get(0)?,
            stock_left: row.try_get(1)?,
            orders: row.try_get(2)?,
            cancelled: row.try_get(3)?,
            distinct_users: row.try_get(4)?,
            duplicate_users: row.try_get(5)?,
        }))
    }

    /// Units sold that never existed.
    pub fn oversold(&self) -> i64 {
        (self.orders - self.initial_stock).max(0)
    }

    /// Whether every unit is either left or sold, once, to one person.
    pub fn is_consistent(&self) -> bool {
        self.stock_left >= 0
            && self.stock_left + self.orders == self.initial_stock
            && self.duplicate_users == 0
    }
}

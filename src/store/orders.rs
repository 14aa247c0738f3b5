//! Orders: the statements of the purchase, and reading.

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlPool, Row};
use time::{OffsetDateTime, PrimitiveDateTime};

use super::vouchers::naive;
use super::{SaleTables, Session, StoreError, Transaction};
use crate::domain::{IdempotencyKeyHash, Order, OrderId, OrderStatus, UserId, VoucherId};

/// An order about to be written.
#[derive(Debug, Clone, Copy)]
pub struct NewOrder {
    /// Its id.
    pub id: OrderId,
    /// The buyer.
    pub user: UserId,
    /// What is bought.
    pub voucher: VoucherId,
    /// What it costs, in cents.
    pub price_cents: u64,
    /// When it was asked for, by the database's clock.
    pub created_at: OffsetDateTime,
    /// The key of the request, if it has one: written with the order.
    pub key: Option<IdempotencyKeyHash>,
}

/// The orders of one pair of tables.
#[derive(Clone)]
pub struct Orders {
    pub(super) pool: MySqlPool,
    /// The tables.
    pub tables: &'static SaleTables,
}

impl Orders {
    /// Orders in those tables.
    pub fn new(pool: MySqlPool, tables: &'static SaleTables) -> Self {
        Self { pool, tables }
    }

    /// Writes the order, with the key of its request in the same packet. [`StoreError::Duplicate`]
    /// tells which key was hit.
    pub async fn insert(
        &self,
        tx: &mut Transaction,
        new_order: &NewOrder,
    ) -> Result<(), StoreError> {
        if new_order.key.is_some() {
            return self.insert_all(tx, std::slice::from_ref(new_order)).await;
        }
        let query = sqlx::query(self.tables.insert_order)
            .bind(new_order.id.0)
            .bind(new_order.user.0)
            .bind(new_order.voucher.0)
            .bind(new_order.price_cents)
            .bind(naive(new_order.created_at));
        tx.execute(query).await.map(drop)
    }

    /// Takes a unit if one is left; whether one was.
    pub async fn take_unit(
        &self,
        tx: &mut Transaction,
        voucher: VoucherId,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(self.tables.take_unit).bind(voucher.0);
        Ok(tx.execute(query).await?.rows_affected() == 1)
    }

    /// Takes a unit whether or not one is left (an injected bug of the laboratory).
    pub async fn take_unit_unchecked(
        &self,
        tx: &mut Transaction,
        voucher: VoucherId,
    ) -> Result<bool, StoreError> {
        let query = sqlx::query(self.tables.take_unit_unchecked).bind(voucher.0);
        Ok(tx.execute(query).await?.rows_affected() == 1)
    }

    /// How many orders of that voucher the user has, by a plain read.
    pub async fn count_pair(
        &self,
        tx: &mut Transaction,
        user: UserId,
        voucher: VoucherId,
    ) -> Result<i64, StoreError> {
        let query = sqlx::query(self.tables.count_pair).bind(user.0).bind(voucher.0);
        let row = tx.fetch_optional(query).await?;
        row.map_or(Ok(0), |row| Ok(row.try_get(0)?))
    }

    /// Units left, by a plain read; `None` if the voucher was deleted.
    pub async fn read_stock(
        &self,
        tx: &mut Transaction,
        voucher: VoucherId,
    ) -> Result<Option<i32>, StoreError> {
        let query = sqlx::query(self.tables.read_stock).bind(voucher.0);
        let row = tx.fetch_optional(query).await?;
        row.map(|row| Ok(row.try_get(0)?)).transpose()
    }

    /// Overwrites the stock, as the naive code does.
    pub async fn write_stock(
        &self,
        tx: &mut Transaction,
        voucher: VoucherId,
        stock: i32,
    ) -> Result<(), StoreError> {
        let query = sqlx::query(self.tables.write_stock).bind(stock).bind(voucher.0);
        tx.execute(query).await.map(drop)
    }

    /// The order that a user already has of a voucher.
    pub async fn of_pair(
        &self,
        user: UserId,
        voucher: VoucherId,
    ) -> Result<Option<OrderId>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.find_pair).bind(user.0).bind(voucher.0);
        let row = session.fetch_optional(query).await?;
        row.map(|row| Ok(OrderId(row.try_get(0)?))).transpose()
    }

    /// How many orders of that voucher there are; at most `limit` are counted.
    pub async fn count(&self, voucher: VoucherId, limit: u32) -> Result<u64, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.count_orders).bind(voucher.0).bind(limit);
        let count: i64 = session.fetch_one(query).await?.try_get(0)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    /// At most `limit` of those who have an order of that voucher, and their orders.
    pub async fn buyers(
        &self,
        voucher: VoucherId,
        limit: u32,
    ) -> Result<Vec<(UserId, OrderId)>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.buyers).bind(voucher.0).bind(limit);
        let rows = session.fetch_all(query).await?;
        let buyer = |row: &MySqlRow| Ok((UserId(row.try_get(0)?), OrderId(row.try_get(1)?)));
        rows.iter().map(buyer).collect()
    }

    /// An order of that user, and the database's time; orders of other users are not found.
    pub async fn find(
        &self,
        user: UserId,
        order: OrderId,
    ) -> Result<Option<OrderReading>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.find_order).bind(order.0).bind(user.0);
        session.fetch_optional(query).await?.map(|row| read_of(&row)).transpose()
    }

    /// An order of any user, and the database's time.
    pub async fn find_any(&self, order: OrderId) -> Result<Option<OrderReading>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.find_any_order).bind(order.0);
        session.fetch_optional(query).await?.map(|row| read_of(&row)).transpose()
    }

    /// At most `limit` orders of that user with ids below `before`, newest first.
    pub async fn list(
        &self,
        user: UserId,
        before: OrderId,
        limit: u32,
    ) -> Result<Vec<OrderReading>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let query = sqlx::query(self.tables.list_orders).bind(user.0).bind(before.0).bind(limit);
        session.fetch_all(query).await?.iter().map(read_of).collect()
    }
}

/// An order, and the database's time when it was read.
pub type OrderReading = (Order, OffsetDateTime);

fn read_of(row: &MySqlRow) -> Result<OrderReading, StoreError> {
    Ok((order_of(row)?, row.try_get::<PrimitiveDateTime, _>(9)?.assume_utc()))
}

pub(super) fn order_of(row: &MySqlRow) -> Result<Order, StoreError> {
    let settled_at: Option<PrimitiveDateTime> = row.try_get(8)?;
    let status = OrderStatus::from_names(row.try_get(6)?, row.try_get(7)?);
    let unknown = || StoreError::Unexpected("unknown status of an order".into());
    Ok(Order {
        id: OrderId(row.try_get(0)?),
        user_id: UserId(row.try_get(1)?),
        voucher_id: VoucherId(row.try_get(2)?),
        voucher_title: row.try_get(3)?,
        price_cents: row.try_get(4)?,
        created_at: row.try_get::<PrimitiveDateTime, _>(5)?.assume_utc(),
        status: status.ok_or_else(unknown)?,
        settled_at: settled_at.map(PrimitiveDateTime::assume_utc),
    })
}

//! Vouchers: what customers read and what admins write.

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlPool, Row};
use time::{OffsetDateTime, PrimitiveDateTime};

use super::stock_buckets::{add_to_buckets, insert_buckets, lock_buckets};
use super::{CommitError, SaleTables, Session, StoreError, Transaction};
use crate::domain::{MAX_STOCK, Status, Voucher, VoucherId, Window};

/// A voucher about to be created.
#[derive(Debug)]
pub struct Draft {
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
    /// Its first units.
    pub stock: u32,
    /// How many buckets its stock is split into; 1 is the row that every voucher has.
    pub stock_buckets: u32,
}

/// New values for some fields of a voucher.
#[derive(Debug)]
pub struct Edit {
    /// What it is called.
    pub title: Option<String>,
    /// What it is good for.
    pub description: Option<String>,
    /// What it costs, in cents.
    pub price_cents: Option<u64>,
    /// What it is worth, in cents.
    pub face_value_cents: Option<u64>,
    /// When the sale begins.
    pub starts_at: Option<OffsetDateTime>,
    /// When it is over.
    pub ends_at: Option<OffsetDateTime>,
}

/// A voucher, and the database's time at which it was read.
pub type VoucherReading = (Voucher, OffsetDateTime);

/// A change of a voucher, as its own transaction read it.
#[derive(Debug)]
pub struct ChangedVoucher {
    /// Which voucher.
    pub id: VoucherId,
    /// The voucher before the change; `None` if the change created it.
    pub before: Option<VoucherReading>,
    /// The voucher after the change; `None` if the change deleted it.
    pub after: Option<VoucherReading>,
    /// Whether COMMIT was answered; if not, the change may have been rolled back.
    pub is_certain: bool,
}

/// How a change of a voucher ended.
#[derive(Debug)]
pub enum Change {
    /// COMMIT was sent.
    Made(Box<ChangedVoucher>),
    /// There is no such voucher.
    NotFound,
    /// It was sold already.
    HasOrders,
    /// Its sale would end before it begins.
    NoWindow,
    /// It would have more than [`MAX_STOCK`] units left.
    StockLimit,
}

/// The vouchers and their stock.
#[derive(Clone)]
pub struct Vouchers {
    pool: MySqlPool,
    tables: &'static SaleTables,
}

impl Vouchers {
    /// Vouchers with the stock of those tables.
    pub fn new(pool: MySqlPool, tables: &'static SaleTables) -> Self {
        Self { pool, tables }
    }

    /// A voucher and the database's time, drafts included.
    pub async fn find(&self, id: VoucherId) -> Result<Option<VoucherReading>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let row = session.fetch_optional(sqlx::query(self.tables.find_voucher).bind(id.0)).await?;
        row.as_ref().map(reading).transpose()
    }

    /// At most 100 vouchers on sale, latest start first, and the database's time.
    pub async fn list(&self) -> Result<(Vec<Voucher>, OffsetDateTime), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let rows = session.fetch_all(sqlx::query(self.tables.list_vouchers)).await?;
        let now = if let Some(row) = rows.first() {
            utc(row, "server_time")?
        } else {
            let query = sqlx::query("SELECT UTC_TIMESTAMP(3) AS server_time");
            utc(&session.fetch_one(query).await?, "server_time")?
        };
        Ok((rows.iter().map(voucher_of).collect::<Result<_, _>>()?, now))
    }

    /// Writes a new draft with its stock and first grant.
    pub async fn create(&self, draft: &Draft) -> Result<ChangedVoucher, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let query = sqlx::query(
            "INSERT INTO vouchers \
             (title, description, price_cents, face_value_cents, starts_at, ends_at) \
             VALUES (?, ?, ?, ?, ?, ?)",
        )
        .bind(&draft.title)
        .bind(&draft.description)
        .bind(draft.price_cents)
        .bind(draft.face_value_cents)
        .bind(naive(draft.window.starts_at))
        .bind(naive(draft.window.ends_at));
        let id = VoucherId(tx.execute(query).await?.last_insert_id());
        tx.execute(sqlx::query(self.tables.insert_stock).bind(id.0)).await?;
        if draft.stock_buckets > 1 {
            insert_buckets(&mut tx, id, draft.stock_buckets).await?;
        }
        self.grant(&mut tx, id, draft.stock).await?;
        let after = self.read(&mut tx, id).await?;
        commit(tx, id, None, after).await
    }

    /// Writes the given fields and no others, so that two admins who change different ones at
    /// once do not undo each other's work.
    pub async fn update(&self, id: VoucherId, edit: &Edit) -> Result<Change, StoreError> {
        let (starts_at, ends_at) = (edit.starts_at.map(naive), edit.ends_at.map(naive));
        let mut tx = Transaction::open(&self.pool).await?;
        let Some(before) = self.lock(&mut tx, id).await? else {
            tx.rollback().await;
            return Ok(Change::NotFound);
        };
        let query = sqlx::query(
            "UPDATE vouchers SET title = COALESCE(?, title), \
             description = COALESCE(?, description), price_cents = COALESCE(?, price_cents), \
             face_value_cents = COALESCE(?, face_value_cents), \
             starts_at = COALESCE(?, starts_at), ends_at = COALESCE(?, ends_at) \
             WHERE id = ? AND COALESCE(?, starts_at) < COALESCE(?, ends_at)",
        )
        .bind(&edit.title)
        .bind(&edit.description)
        .bind(edit.price_cents)
        .bind(edit.face_value_cents)
        .bind(starts_at)
        .bind(ends_at)
        .bind(id.0)
        .bind(starts_at)
        .bind(ends_at);
        // The driver counts matched rows, so that writing the same values again counts as well.
        if tx.execute(query).await?.rows_affected() == 0 {
            tx.rollback().await;
            return Ok(Change::NoWindow);
        }
        let after = self.read(&mut tx, id).await?;
        made(commit(tx, id, Some(before), after).await)
    }

    /// Shows a voucher to customers.
    pub async fn put_on_sale(&self, id: VoucherId) -> Result<Change, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let Some(before) = self.lock(&mut tx, id).await? else {
            tx.rollback().await;
            return Ok(Change::NotFound);
        };
        let query = sqlx::query("UPDATE vouchers SET status = 'on_sale' WHERE id = ?").bind(id.0);
        tx.execute(query).await?;
        let after = self.read(&mut tx, id).await?;
        made(commit(tx, id, Some(before), after).await)
    }

    /// Adds units, and a grant of them. The limit is a condition of the update: grants that were
    /// checked before it could pass the limit together.
    pub async fn add_stock(&self, id: VoucherId, units: u32) -> Result<Change, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        if !self.grant(&mut tx, id, units).await? {
            let stock = sqlx::query(self.tables.read_stock).bind(id.0);
            let exists = tx.fetch_optional(stock).await?.is_some();
            tx.rollback().await;
            return Ok(if exists { Change::StockLimit } else { Change::NotFound });
        }
        // The rows of the stock are locked since the update, so the difference is this change.
        let after = self.read(&mut tx, id).await?;
        let before = after.clone().map(|(mut voucher, now)| {
            voucher.stock -= i64::from(units);
            (voucher, now)
        });
        made(commit(tx, id, before, after).await)
    }

    /// Deletes a voucher that was never sold. The rows of its stock are locked first: orders and
    /// this transaction wait for each other there, so no order is written for a deleted voucher.
    pub async fn delete(&self, id: VoucherId) -> Result<Change, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        lock_buckets(&mut tx, id).await?;
        let stock = sqlx::query(self.tables.lock_stock).bind(id.0);
        if tx.fetch_optional(stock).await?.is_none() {
            tx.rollback().await;
            return Ok(Change::NotFound);
        }
        let before = self.lock(&mut tx, id).await?;
        tx.execute(sqlx::query(self.tables.delete_stock).bind(id.0)).await?;
        let sold = tx.fetch_optional(sqlx::query(self.tables.any_order).bind(id.0)).await?;
        if sold.is_some() {
            tx.rollback().await;
            return Ok(Change::HasOrders);
        }
        let buckets = sqlx::query("DELETE FROM voucher_stock_buckets WHERE voucher_id = ?");
        tx.execute(buckets.bind(id.0)).await?;
        let grants = sqlx::query("DELETE FROM stock_grants WHERE voucher_id = ?").bind(id.0);
        tx.execute(grants).await?;
        tx.execute(sqlx::query("DELETE FROM vouchers WHERE id = ?").bind(id.0)).await?;
        made(commit(tx, id, before, None).await)
    }

    /// Adds units to the stock and records their grant; `false` if too many units were left, or
    /// there is no such voucher. Each bucket gets an equal part, the stock row the remainder.
    async fn grant(
        &self,
        tx: &mut Transaction,
        id: VoucherId,
        units: u32,
    ) -> Result<bool, StoreError> {
        let buckets = lock_buckets(tx, id).await?;
        let part = units.checked_div(buckets.count).unwrap_or(0);
        if part > 0 {
            add_to_buckets(tx, id, part).await?;
        }
        let room = MAX_STOCK - buckets.units - i64::from(units);
        let rest = units - part * buckets.count;
        let add = sqlx::query(self.tables.add_stock).bind(rest).bind(id.0).bind(room);
        if tx.execute(add).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let grant = sqlx::query("INSERT INTO stock_grants (voucher_id, units) VALUES (?, ?)");
        tx.execute(grant.bind(id.0).bind(units)).await?;
        Ok(true)
    }

    /// Locks the voucher's row, then reads the voucher: the first read makes the snapshot.
    async fn lock(
        &self,
        tx: &mut Transaction,
        id: VoucherId,
    ) -> Result<Option<VoucherReading>, StoreError> {
        let lock = sqlx::query("SELECT id FROM vouchers WHERE id = ? FOR UPDATE").bind(id.0);
        tx.fetch_optional(lock).await?;
        self.read(tx, id).await
    }

    async fn read(
        &self,
        tx: &mut Transaction,
        id: VoucherId,
    ) -> Result<Option<VoucherReading>, StoreError> {
        let row = tx.fetch_optional(sqlx::query(self.tables.find_voucher).bind(id.0)).await?;
        row.as_ref().map(reading).transpose()
    }
}

/// Commits. Without an answer the change is uncertain, and the admin has to check.
async fn commit(
    tx: Transaction,
    id: VoucherId,
    before: Option<VoucherReading>,
    after: Option<VoucherReading>,
) -> Result<ChangedVoucher, StoreError> {
    let is_certain = match tx.commit().await {
        Ok(()) => true,
        Err(CommitError::Refused(error)) => return Err(error),
        Err(CommitError::Unknown(_)) => false,
    };
    Ok(ChangedVoucher { id, before, after, is_certain })
}

fn made(changed: Result<ChangedVoucher, StoreError>) -> Result<Change, StoreError> {
    changed.map(|changed| Change::Made(Box::new(changed)))
}

/// As a `DATETIME` column takes it: UTC.
pub(super) fn naive(moment: OffsetDateTime) -> PrimitiveDateTime {
    let utc = moment.to_offset(time::UtcOffset::UTC);
    PrimitiveDateTime::new(utc.date(), utc.time())
}

fn utc(row: &MySqlRow, column: &str) -> Result<OffsetDateTime, StoreError> {
    Ok(row.try_get::<PrimitiveDateTime, _>(column)?.assume_utc())
}

fn reading(row: &MySqlRow) -> Result<VoucherReading, StoreError> {
    Ok((voucher_of(row)?, utc(row, "server_time")?))
}

fn voucher_of(row: &MySqlRow) -> Result<Voucher, StoreError> {
    let on_sale: i32 = row.try_get("on_sale")?;
    Ok(Voucher {
        id: VoucherId(row.try_get("id")?),
        title: row.try_get("title")?,
        description: row.try_get("description")?,
        price_cents: row.try_get("price_cents")?,
        face_value_cents: row.try_get("face_value_cents")?,
        window: Window { starts_at: utc(row, "starts_at")?, ends_at: utc(row, "ends_at")? },
        status: if on_sale == 1 { Status::OnSale } else { Status::Draft },
        stock: row.try_get("stock")?,
        buckets: u32::try_from(row.try_get::<i64, _>("buckets")?).unwrap_or(0),
    })
}

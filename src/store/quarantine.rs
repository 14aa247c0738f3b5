//! Entries of queues that could not be read, stored for operators.

use sqlx::Row;
use sqlx::mysql::MySqlRow;
use time::PrimitiveDateTime;

use super::tickets::{MAX_LISTED, ticket_of};
use super::{Session, StoreError, Tickets, Unreadable};
use crate::domain::{TicketId, VoucherId};

/// An entry in the quarantine.
#[derive(Debug)]
pub struct QuarantinedEntry {
    /// Of whose queue.
    pub voucher: VoucherId,
    /// Its id in the stream.
    pub entry: String,
    /// The ticket that it names, if it does.
    pub ticket: Option<TicketId>,
    /// Its fields, or the beginning of them.
    pub fields: String,
    /// When it was put aside (UTC).
    pub died_at: PrimitiveDateTime,
}

impl Tickets {
    /// Keeps what an entry says. One that is kept already stays as it is.
    pub async fn quarantine(
        &self,
        voucher: VoucherId,
        id: &str,
        entry: &Unreadable,
    ) -> Result<(), StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let insert = sqlx::query(
            "INSERT INTO unreadable_entries (voucher_id, entry, ticket, fields, died_at) \
             VALUES (?, ?, ?, ?, UTC_TIMESTAMP(3))",
        );
        let ticket = entry.names.map(|(ticket, _)| ticket.as_bytes().to_vec());
        let insert = insert.bind(voucher.0).bind(id).bind(ticket).bind(&entry.text);
        match session.execute(insert).await {
            Ok(_) | Err(StoreError::Duplicate(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Forgets an entry that was put aside; whether it was there.
    pub async fn discard_quarantined(
        &self,
        voucher: VoucherId,
        entry: &str,
    ) -> Result<bool, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let delete =
            sqlx::query("DELETE FROM unreadable_entries WHERE voucher_id = ? AND entry = ?");
        let deleted = session.execute(delete.bind(voucher.0).bind(entry)).await?;
        Ok(deleted.rows_affected() > 0)
    }

    /// Entries that were put aside, oldest first; of one voucher or of all. At most a thousand.
    pub async fn quarantined(
        &self,
        voucher: Option<VoucherId>,
    ) -> Result<Vec<QuarantinedEntry>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let read = sqlx::query(
            "SELECT voucher_id, entry, fields, died_at, ticket FROM unreadable_entries \
             WHERE voucher_id = ? OR ? = 0 ORDER BY died_at, entry LIMIT ?",
        );
        let voucher = voucher.map_or(0, |voucher| voucher.0);
        let rows = session.fetch_all(read.bind(voucher).bind(voucher).bind(MAX_LISTED)).await?;
        rows.iter().map(quarantined_of).collect()
    }
}

fn quarantined_of(row: &MySqlRow) -> Result<QuarantinedEntry, StoreError> {
    let names_a_ticket = row.try_get::<Option<Vec<u8>>, _>(4)?.is_some();
    Ok(QuarantinedEntry {
        voucher: VoucherId(row.try_get(0)?),
        entry: row.try_get(1)?,
        ticket: names_a_ticket.then(|| ticket_of(row, 4)).transpose()?,
        fields: row.try_get(2)?,
        died_at: row.try_get(3)?,
    })
}

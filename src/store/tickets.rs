//! The ends of tickets, in the database. A ticket has one row in `tickets`: it is written in the
//! order's transaction, or alone if there will be no order. The unique key admits one of them. So
//! no answer has an end that another try of the same entry could undo.

use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlPool, Row};
use time::PrimitiveDateTime;

use super::tables::units_left;
use super::{
    CommitError, NewOrder, Orders, QueueOpening, Session, StoreError, Transaction, Units,
    idempotency,
};
use crate::domain::{OrderId, TicketId, TicketState, UserId, VoucherId};

/// The most queues that a replica works on.
const MAX_QUEUES: u32 = 10_000;
/// The most dead letters that are listed at once.
pub(super) const MAX_LISTED: u32 = 1000;

/// Units left, and units that ever came. An order that is cancelled stays so.
const UNITS: &str = concat!(
    units_left!(),
    ", CAST((SELECT COALESCE(SUM(g.units), 0) \
     FROM stock_grants g WHERE g.voucher_id = s.voucher_id) + (SELECT COUNT(*) FROM orders o \
     WHERE o.voucher_id = s.voucher_id AND o.status = 'cancelled') AS SIGNED)"
);

/// A ticket whose order is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmittedTicket {
    /// The ticket.
    pub ticket: TicketId,
    /// The epoch in which it was admitted.
    pub epoch: u64,
    /// How long its INSERT may wait for a locked row.
    pub lock_wait_budget: Duration,
}

/// An admitted purchase that could not be written.
#[derive(Debug)]
pub struct DeadLetter {
    /// Its ticket.
    pub ticket: TicketId,
    /// The admitted user.
    pub user: UserId,
    /// What a unit cost, in cents.
    pub price_cents: u64,
    /// How the last try ended.
    pub reason: String,
    /// When it was given up (UTC).
    pub died_at: PrimitiveDateTime,
}

/// The ends of tickets.
#[derive(Clone)]
pub struct Tickets {
    pub(super) pool: MySqlPool,
}

impl Orders {
    /// Writes the orders, the ends of their tickets and the keys of their requests, all or none;
    /// the epoch that counts, whose row stays locked shared. It is the caller's to compare, and to
    /// roll back if it is another. The pairs are in the order in which rows are locked.
    pub async fn insert_admitted(
        &self,
        tx: &mut Transaction,
        voucher: VoucherId,
        rows: &[(NewOrder, AdmittedTicket)],
    ) -> Result<Option<u64>, StoreError> {
        let epoch = format!(
            "SELECT epoch FROM sale_epochs WHERE voucher_id = {voucher} LOCK IN SHARE MODE"
        );
        let mut ends = String::from(
            "INSERT INTO tickets (ticket, user_id, voucher_id, state, order_id) VALUES ",
        );
        for (number, (entry, admitted)) in rows.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let NewOrder { id, user, .. } = entry;
            let ticket = hex(admitted.ticket);
            // Writing to a string cannot fail.
            let _always = write!(ends, "{comma}({ticket},{user},{voucher},'bought',{id})");
        }
        let entries: Vec<_> = rows.iter().map(|(entry, _)| *entry).collect();
        let mut orders = self.tables.insert_orders.to_owned();
        for (number, entry) in entries.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let NewOrder { id, user, price_cents, .. } = entry;
            // It may have waited in the queue for long: the time to pay for it begins now.
            let _always =
                write!(orders, "{comma}({id},{user},{voucher},{price_cents},UTC_TIMESTAMP(3))");
        }
        let keys = idempotency::insert_of(&entries);
        let statements: Vec<_> = [epoch, ends].into_iter().chain(keys).chain([orders]).collect();
        let rows = tx.run_all(&statements).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
    }
}

impl Tickets {
    /// Tickets of that database.
    pub fn new(pool: MySqlPool) -> Self {
        Self { pool }
    }

    /// How those of these tickets ended that have.
    pub async fn ended(
        &self,
        tickets: impl Iterator<Item = TicketId>,
    ) -> Result<HashMap<TicketId, TicketState>, StoreError> {
        let mut sql =
            String::from("SELECT state, order_id, ticket FROM tickets WHERE ticket IN (X''");
        for ticket in tickets {
            let _always = write!(sql, ",{}", hex(ticket));
        }
        sql.push(')');
        let mut session = Session::open(&self.pool).await?;
        let mut ended = HashMap::new();
        for row in session.raw(AssertSqlSafe(sql)).await? {
            ended.insert(ticket_of(&row, 2)?, state_of(&row)?);
        }
        Ok(ended)
    }

    /// How the ticket ended, if it has.
    pub async fn find(&self, ticket: TicketId) -> Result<Option<TicketState>, StoreError> {
        Ok(self.ended([ticket].into_iter()).await?.remove(&ticket))
    }

    /// Ends the ticket without an order, unless it has ended; how it has.
    pub async fn end(
        &self,
        ticket: TicketId,
        user: UserId,
        state: TicketState,
    ) -> Result<TicketState, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let written = session.execute(insert(ticket, user, state)).await;
        drop(session);
        self.end_of(ticket, state, written.map(drop)).await
    }

    /// Ends the ticket as a dead letter, which an operator may replay.
    pub async fn dead_letter(
        &self,
        ticket: TicketId,
        user: UserId,
        price_cents: u64,
        reason: &str,
    ) -> Result<TicketState, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let mut written = tx.execute(insert(ticket, user, TicketState::Dead)).await.map(drop);
        if written.is_ok() {
            let letter = sqlx::query(
                "INSERT INTO dead_letters \
                 (ticket, user_id, voucher_id, price_cents, reason, died_at) \
                 VALUES (?, ?, ?, ?, ?, UTC_TIMESTAMP(3))",
            );
            let letter = letter.bind(&ticket.as_bytes()[..]).bind(user.0).bind(ticket.voucher().0);
            written = tx.execute(letter.bind(price_cents).bind(reason)).await.map(drop);
        }
        let written = match written {
            Ok(()) => committed(tx).await,
            Err(error) => {
                tx.rollback().await;
                Err(error)
            }
        };
        self.end_of(ticket, TicketState::Dead, written).await
    }

    /// The state to write, or the one that was there before.
    async fn end_of(
        &self,
        ticket: TicketId,
        state: TicketState,
        written: Result<(), StoreError>,
    ) -> Result<TicketState, StoreError> {
        match written {
            Ok(()) => Ok(state),
            Err(StoreError::Duplicate(_)) => {
                let gone = || StoreError::Unexpected("a ticket ended and has no end".into());
                self.find(ticket).await?.ok_or_else(gone)
            }
            Err(error) => Err(error),
        }
    }

    /// Raises the voucher's epoch, and reads the stock that is left now that nothing of an earlier
    /// one can be written any more. `None` if there is no such voucher.
    pub async fn open(&self, voucher: VoucherId) -> Result<Option<QueueOpening>, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let raise = sqlx::query(
            "INSERT INTO sale_epochs (voucher_id, epoch) \
             SELECT voucher_id, 1 FROM voucher_stock WHERE voucher_id = ? \
             ON DUPLICATE KEY UPDATE epoch = epoch + 1",
        );
        tx.execute(raise.bind(voucher.0)).await?;
        let read = sqlx::query(AssertSqlSafe(format!(
            "SELECT {UNITS}, e.epoch, UTC_TIMESTAMP(3) FROM sale_epochs e \
             JOIN voucher_stock s ON s.voucher_id = e.voucher_id WHERE e.voucher_id = ?"
        )));
        let Some(row) = tx.fetch_optional(read.bind(voucher.0)).await? else {
            tx.rollback().await;
            return Ok(None);
        };
        let opening = QueueOpening {
            units: units_of(&row)?,
            epoch: row.try_get(2)?,
            read_at: row.try_get::<PrimitiveDateTime, _>(3)?.assume_utc(),
        };
        committed(tx).await?;
        Ok(Some(opening))
    }

    /// The voucher's units, if that epoch still counts.
    pub async fn units(&self, voucher: VoucherId, epoch: u64) -> Result<Option<Units>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let read = sqlx::query(AssertSqlSafe(format!(
            "SELECT {UNITS} FROM voucher_stock s JOIN sale_epochs e ON e.voucher_id = s.voucher_id \
             WHERE s.voucher_id = ? AND e.epoch = ?"
        )));
        let row = session.fetch_optional(read.bind(voucher.0).bind(epoch)).await?;
        row.as_ref().map(units_of).transpose()
    }

    /// The vouchers whose queue was opened and may still have entries.
    pub async fn queues(&self) -> Result<Vec<VoucherId>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let read = sqlx::query(
            "SELECT e.voucher_id FROM sale_epochs e JOIN vouchers v ON v.id = e.voucher_id \
             WHERE v.ends_at > UTC_TIMESTAMP(3) - INTERVAL 1 DAY ORDER BY v.ends_at LIMIT ?",
        );
        let rows = session.fetch_all(read.bind(MAX_QUEUES)).await?;
        rows.iter().map(|row| Ok(VoucherId(row.try_get(0)?))).collect()
    }

    /// Dead letters, oldest first; of one voucher or of all. At most a thousand.
    pub async fn dead_letters(
        &self,
        voucher: Option<VoucherId>,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let mut session = Session::open(&self.pool).await?;
        let read = sqlx::query(
            "SELECT user_id, price_cents, reason, died_at, ticket FROM dead_letters \
             WHERE voucher_id = ? OR ? = 0 ORDER BY died_at, ticket LIMIT ?",
        );
        let voucher = voucher.map_or(0, |voucher| voucher.0);
        let rows = session.fetch_all(read.bind(voucher).bind(voucher).bind(MAX_LISTED)).await?;
        rows.iter().map(letter_of).collect()
    }

    /// Takes a dead letter out, and with it the end of its ticket; whether it was there.
    pub async fn remove_dead_letter(&self, ticket: TicketId) -> Result<bool, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let bytes = &ticket.as_bytes()[..];
        let letter = sqlx::query("DELETE FROM dead_letters WHERE ticket = ?").bind(bytes);
        let found = tx.execute(letter).await?.rows_affected() == 1;
        let end = sqlx::query("DELETE FROM tickets WHERE ticket = ? AND state = 'dead'");
        tx.execute(end.bind(bytes)).await?;
        committed(tx).await?;
        Ok(found)
    }
}

fn insert<'q>(
    ticket: TicketId,
    user: UserId,
    state: TicketState,
) -> sqlx::query::Query<'q, sqlx::MySql, sqlx::mysql::MySqlArguments> {
    let insert = sqlx::query(
        "INSERT INTO tickets (ticket, user_id, voucher_id, state, order_id) \
         VALUES (?, ?, ?, ?, ?)",
    );
    let insert = insert.bind(ticket.as_bytes().to_vec()).bind(user.0).bind(ticket.voucher().0);
    insert.bind(state.name()).bind(state.order().map(|order| order.0))
}

/// Commits. Without an answer it fails, and the caller repeats the call.
async fn committed(tx: Transaction) -> Result<(), StoreError> {
    tx.commit().await.map_err(|error| match error {
        CommitError::Refused(error) => error,
        CommitError::Unknown(_) => StoreError::TimedOut { server: "database" },
    })
}

fn hex(ticket: TicketId) -> String {
    ticket.as_bytes().iter().fold(String::from("X'"), |mut text, byte| {
        let _always = write!(text, "{byte:02x}");
        text
    }) + "'"
}

pub(super) fn ticket_of(row: &MySqlRow, column: usize) -> Result<TicketId, StoreError> {
    let bytes: Vec<u8> = row.try_get(column)?;
    let ticket = bytes.try_into().ok().and_then(|bytes| TicketId::from_bytes(bytes).ok());
    ticket.ok_or_else(|| StoreError::Unexpected("a row with a ticket that is none".into()))
}

fn units_of(row: &MySqlRow) -> Result<Units, StoreError> {
    Ok(Units { left: row.try_get(0)?, came: row.try_get(1)? })
}

fn state_of(row: &MySqlRow) -> Result<TicketState, StoreError> {
    let (name, order): (String, Option<u64>) = (row.try_get(0)?, row.try_get(1)?);
    let state = TicketState::from_name(&name, order.map(OrderId));
    state.ok_or_else(|| StoreError::Unexpected(format!("a ticket that ended as {name}")))
}

fn letter_of(row: &MySqlRow) -> Result<DeadLetter, StoreError> {
    Ok(DeadLetter {
        ticket: ticket_of(row, 4)?,
        user: UserId(row.try_get(0)?),
        price_cents: row.try_get(1)?,
        reason: row.try_get(2)?,
        died_at: row.try_get(3)?,
    })
}

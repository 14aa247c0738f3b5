//! Another reading of the database, in the place of the final read that a history holds.

use crate::error::{Error, Result};
use crate::history::{Lot, Past, Source, finals};
use crate::judge::audit::Reading;
use crate::judge::evidence::{Audit, OrderRow};

impl Past {
    /// Puts these readings, one for each voucher in the header's order, in the place of the final
    /// reads. Fails with a sentence where they cannot show which orders are new.
    pub(super) fn read_anew(&mut self, readings: Vec<Reading>) -> Result<()> {
        for (lot, reading) in self.lots.iter().zip(&readings) {
            self.check_earlier(lot, reading)?;
        }
        for (lot, reading) in self.lots.iter_mut().zip(readings) {
            lot.account = Some(finals::of_database(lot.offer.id, &reading));
            lot.rows = reading.rows;
            lot.effects = reading.effects;
        }
        Ok(())
    }

    /// Of orders from before the load the history names those of its users only. Those of others
    /// cannot be told from orders that nobody asked for.
    fn check_earlier(&self, lot: &Lot, reading: &Reading) -> Result<()> {
        let granted = reading.account.initial_stock;
        let [before, _] = &lot.audits;
        let sold_before = match (before, lot.offered()) {
            (Some(before), _) => before.orders,
            (None, Some(offered)) => granted.saturating_sub(offered),
            (None, None) => 0,
        };
        let is_named = |row: &&OrderRow| lot.earlier.contains(&row.id) && !row.cancelled;
        let named = reading.rows.iter().filter(is_named).count();
        let named = i64::try_from(named).unwrap_or(i64::MAX);
        let records = self.records_of(lot);
        let asked = |user: u64| records.binary_search_by_key(&user, |one| one.user).is_ok();
        let has_strangers =
            reading.rows.iter().any(|row| !lot.earlier.contains(&row.id) && !asked(row.user_id));
        if sold_before <= named || !has_strangers {
            return Ok(());
        }
        Err(Error::Usage(format!(
            "of voucher {} {sold_before} units had been sold before the load, and the history \
             names {named} of those orders: which ones in the database are new cannot be told \
             (without --database the file's own final read is judged)",
            lot.offer.id
        )))
    }
}

impl Lot {
    /// The judge's own account, if it read the database.
    pub(super) fn own_account(&self) -> Option<Audit> {
        let account = self.account.as_ref().filter(|one| one.source == Source::Database)?;
        let table = |what: &str| account.tables.get(what).map_or("", String::as_str);
        let tables = ["orders", "stock", "grants"].map(table);
        Some(Audit::of(&self.rows, account.granted?, account.left?, tables))
    }
}

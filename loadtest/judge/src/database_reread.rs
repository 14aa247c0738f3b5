//! A new reading of the database, in the place of the final read that a history holds.

use loadtest_load::history::final_state::{Audit, DatabaseReading, OrderRow};
use loadtest_load::history::{History, Source, VoucherHistory, final_reads};
use loadtest_measure::error::{Error, Result};

/// Replaces the final reads by these readings, one for each voucher in the header's order. Fails
/// if they cannot show which orders are new.
pub(super) fn replace_final_reads(
    history: &mut History,
    readings: Vec<DatabaseReading>,
) -> Result<()> {
    for (voucher_history, reading) in history.vouchers.iter().zip(&readings) {
        check_earlier(history, voucher_history, reading)?;
    }
    for (voucher_history, reading) in history.vouchers.iter_mut().zip(readings) {
        voucher_history.account =
            Some(final_reads::database_account(voucher_history.offer.id, &reading));
        voucher_history.rows = reading.rows;
        voucher_history.effects = reading.effects;
    }
    Ok(())
}

/// Checks that earlier orders can be distinguished from new ones. The history names earlier orders
/// of its own users only; those of other users look like orders without a request.
fn check_earlier(
    history: &History,
    voucher_history: &VoucherHistory,
    reading: &DatabaseReading,
) -> Result<()> {
    let granted = reading.account.initial_stock;
    let [before, _] = &voucher_history.audits;
    let sold_before = match (before, voucher_history.offered()) {
        (Some(before), _) => before.orders,
        (None, Some(offered)) => granted.saturating_sub(offered),
        (None, None) => 0,
    };
    let is_named = |row: &&OrderRow| voucher_history.earlier.contains(&row.id) && !row.cancelled;
    let named = reading.rows.iter().filter(is_named).count();
    let named = i64::try_from(named).unwrap_or(i64::MAX);
    let records = history.records_of(voucher_history);
    let asked = |user: u64| records.binary_search_by_key(&user, |one| one.user).is_ok();
    let has_strangers = reading
        .rows
        .iter()
        .any(|row| !voucher_history.earlier.contains(&row.id) && !asked(row.user_id));
    if sold_before <= named || !has_strangers {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "of voucher {} {sold_before} units had been sold before the load, and the history \
             names {named} of those orders: which ones in the database are new cannot be told \
             (without --database the file's own final read is judged)",
        voucher_history.offer.id
    )))
}

/// The judge's own account, if it read the database.
pub(super) fn own_account(voucher_history: &VoucherHistory) -> Option<Audit> {
    let account = voucher_history.account.as_ref().filter(|one| one.source == Source::Database)?;
    let table = |what: &str| account.tables.get(what).map_or("", String::as_str);
    let tables = ["orders", "stock", "grants"].map(table);
    Some(Audit::of(&voucher_history.rows, account.granted?, account.left?, tables))
}

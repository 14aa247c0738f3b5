//! The writer `single`: one order, one transaction. The INSERT comes first and the UPDATE of the
//! hot row last, so that row is locked for the shortest time.

use distlock::Loss;

use super::outcome::Refusal;
use super::plant::Plant;
use super::section::{Section, Stop, still_held, work};
use crate::failpoint::{self, reach};
use crate::store::{Entry, Transaction};

pub(super) async fn write(
    section: &Section,
    tx: &mut Transaction,
    entry: &Entry,
    loss: Option<&Loss>,
) -> Result<(), Stop> {
    let orders = &section.orders;
    still_held(loss)?;
    orders.insert(tx, entry).await?;
    reach(failpoint::ORDER_INSERTED);
    work(&section.rules).await;
    still_held(loss)?;
    let taken = if section.has(Plant::NoStockCondition) {
        orders.take_unit_unchecked(tx, entry.voucher).await?
    } else {
        orders.take_unit(tx, entry.voucher).await?
    };
    if taken {
        return Ok(());
    }
    // No row matched: nothing is left, or an admin has deleted the voucher.
    Err(match orders.read_stock(tx, entry.voucher).await? {
        Some(_) => Refusal::SoldOut.into(),
        None => Refusal::VoucherNotFound.into(),
    })
}

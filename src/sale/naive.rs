//! The textbook's naive code, the same for every lock kind: two reads, an insert, and a stock of
//! one less than was read. Without a lock on the voucher it sells too much.

use distlock::LostSignal;

use super::attempt::AttemptError;
use super::critical_section::{CriticalSection, ensure_held};
use super::outcome::Refusal;
use crate::failpoint::{self, reach};
use crate::store::{NewOrder, Transaction};

pub(super) async fn write(
    section: &CriticalSection,
    tx: &mut Transaction,
    new_order: &NewOrder,
    lost_signal: Option<&LostSignal>,
) -> Result<(), AttemptError> {
    let orders = &section.orders;
    ensure_held(lost_signal)?;
    if orders.count_pair(tx, new_order.user, new_order.voucher).await? > 0 {
        return Err(Refusal::AlreadyOrdered(None).into());
    }
    ensure_held(lost_signal)?;
    let Some(stock) = orders.read_stock(tx, new_order.voucher).await? else {
        return Err(Refusal::VoucherNotFound.into());
    };
    if stock <= 0 {
        return Err(Refusal::SoldOut.into());
    }
    section.hooks.simulate_section_work().await;
    ensure_held(lost_signal)?;
    orders.insert(tx, new_order).await?;
    reach(failpoint::ORDER_INSERTED);
    ensure_held(lost_signal)?;
    orders.write_stock(tx, new_order.voucher, stock - 1).await?;
    Ok(())
}

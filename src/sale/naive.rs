//! The textbook's naive code, the same for every lock kind: look, look, insert, write back what
//! was read less one. Without a lock that excludes everybody it sells too much.

use distlock::Loss;

use super::outcome::Refusal;
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
    if orders.count_pair(tx, entry.user, entry.voucher).await? > 0 {
        return Err(Refusal::AlreadyOrdered(None).into());
    }
    still_held(loss)?;
    let Some(stock) = orders.read_stock(tx, entry.voucher).await? else {
        return Err(Refusal::VoucherNotFound.into());
    };
    if stock <= 0 {
        return Err(Refusal::SoldOut.into());
    }
    work(&section.rules).await;
    still_held(loss)?;
    orders.insert(tx, entry).await?;
    reach(failpoint::ORDER_INSERTED);
    still_held(loss)?;
    orders.write_stock(tx, entry.voucher, stock - 1).await?;
    Ok(())
}

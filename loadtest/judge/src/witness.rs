//! What clients can see of a deployment: each user's own list of orders, each acknowledged order by
//! its id, and how much of the voucher is left.

use std::collections::{HashMap, HashSet};

use futures_util::future::try_join_all;
use loadtest_load::api::{self, ApiError, Voucher};
use loadtest_load::client::Connection;
use loadtest_load::history::final_state::OrderRow;
use loadtest_load::plan::Plan;
use loadtest_load::retry;

/// Connections that look; enough to keep a deployment busy, few enough not to be shed.
const MAX_READERS: usize = 16;
/// Ids of the orders that the load's users hold already.
pub async fn earlier(plan: &Plan, voucher: &str) -> Result<HashSet<u64>, ApiError> {
    let rows = afterwards(plan, voucher, &HashMap::new()).await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// Reads the public view of the voucher after the load.
pub async fn voucher(plan: &Plan, id: &str) -> Result<Voucher, ApiError> {
    let mut connection = Connection::new(plan.target.clone(), plan.timeout);
    retry!(api::voucher(&mut connection, id))
}

/// The orders that exist after the load.
///
/// These are the orders that users list, less acknowledged ones that cannot be read by id, plus
/// acknowledged ones that can be read and are not listed. `acknowledged` are ids by user.
#[allow(clippy::implicit_hasher)]
pub async fn afterwards(
    plan: &Plan,
    voucher: &str,
    acknowledged: &HashMap<u64, Vec<u64>>,
) -> Result<Vec<OrderRow>, ApiError> {
    let lookers = MAX_READERS.min(plan.connections);
    let looks = (0..lookers).map(|first| async move {
        let mut connection = Connection::new(plan.target.clone(), plan.timeout);
        let mut rows = Vec::new();
        for user in plan.users.iter().skip(first).step_by(lookers) {
            let token = &user.authorization;
            let mut listed = retry!(api::orders_of(&mut connection, token, voucher))?;
            for &id in acknowledged.get(&user.id).map_or(&[][..], Vec::as_slice) {
                let wanted = (id, voucher);
                if !retry!(api::order_exists(&mut connection, token, wanted))? {
                    listed.retain(|listed| listed.id != id);
                } else if listed.iter().all(|listed| listed.id != id) {
                    listed.push(OrderRow::new(id, user.id));
                }
            }
            rows.append(&mut listed);
        }
        Ok(rows)
    });
    Ok(try_join_all(looks).await?.concat())
}

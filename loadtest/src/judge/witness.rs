//! What clients can see of a deployment: each user's own list of orders, each acknowledged order by
//! its id, and how much of the voucher is left.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::try_join_all;

use crate::api::{self, ApiError, Voucher};
use crate::judge::evidence::OrderRow;
use crate::load::client::Connection;
use crate::load::plan::Plan;

/// Connections that look; enough to keep a deployment busy, few enough not to be shed.
const LOOKERS: usize = 16;
/// Times one look is tried: a deployment that has just been under full load may still refuse one.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Tries a call again while the service asks for patience or cannot be reached.
macro_rules! retry {
    ($call:expr) => {{
        let mut tries = 1;
        loop {
            match $call.await {
                Err(error) if tries < TRIES && error.may_pass() => {
                    tries += 1;
                    tokio::time::sleep(PAUSE * tries).await;
                }
                result => break result,
            }
        }
    }};
}

/// Ids of the orders that the load's users hold already.
pub async fn earlier(plan: &Plan, voucher: &str) -> Result<HashSet<u64>, ApiError> {
    let rows = afterwards(plan, voucher, &HashMap::new()).await?;
    Ok(rows.into_iter().map(|row| row.id).collect())
}

/// The voucher as everybody sees it afterwards.
pub async fn voucher(plan: &Plan, id: &str) -> Result<Voucher, ApiError> {
    let mut connection = Connection::new(plan.target.clone(), plan.timeout);
    retry!(api::voucher(&mut connection, id))
}

/// The orders that exist afterwards: those that their users list, less acknowledged ones that
/// cannot be read by id, and acknowledged ones that can be read although the list does not hold
/// them. `acknowledged` are ids by user.
#[allow(clippy::implicit_hasher)]
pub async fn afterwards(
    plan: &Plan,
    voucher: &str,
    acknowledged: &HashMap<u64, Vec<u64>>,
) -> Result<Vec<OrderRow>, ApiError> {
    let lookers = LOOKERS.min(plan.connections);
    let looks = (0..lookers).map(|first| async move {
        let mut connection = Connection::new(plan.target.clone(), plan.timeout);
        let mut rows = Vec::new();
        for user in plan.users.iter().skip(first).step_by(lookers) {
            let mut listed = retry!(api::orders_of(&mut connection, &user.authorization, voucher))?;
            for &id in acknowledged.get(&user.id).map_or(&[][..], Vec::as_slice) {
                let wanted = (id, voucher);
                let exists =
                    retry!(api::order_exists(&mut connection, &user.authorization, wanted))?;
                if !exists {
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

//! Entries in the stream of a queued sale that no replica can read.

use std::time::Duration;

use loadtest_measure::error::Result;
use tokio::time::sleep;

use super::{FaultContext, wait_until, witness};
use crate::cluster::blocking;

/// How many there are, and what lies between: every replica reads some.
const POISON_ENTRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// Puts one into the stream; its id. ARGV: logical database, key of the stream.
const ADD_SCRIPT: &str = "redis.call('select', ARGV[1]) \
    return redis.call('XADD', ARGV[2], '*', 'voucherId', '?')";
/// Whether the group has read that entry. ARGV: logical database, key of the stream, entry.
const IS_READ_SCRIPT: &str = "redis.call('select', ARGV[1]) \
    local entry = redis.call('XRANGE', ARGV[2], ARGV[3], ARGV[3])[1] \
    local held = redis.call('XPENDING', ARGV[2], 'sale', ARGV[3], ARGV[3], 1)[1] \
    return (entry == nil or held ~= nil) and 'read' or ''";

/// Witness: how many were added, and that the first one was read.
pub(super) async fn add_entries(context: &FaultContext<'_>) -> Result<String> {
    let (redis, number) = (context.deployment.redis().clone(), context.deployment.redis_database());
    let stream = format!("{{v:{}}}:stream", context.stock_admin.voucher());
    let mut first = None;
    for _ in 0..POISON_ENTRIES {
        let (redis, stream, number) = (redis.clone(), stream.clone(), number.to_string());
        let add = move || redis.command(&["EVAL", ADD_SCRIPT, "0", &number, &stream]);
        let id = blocking(add).await?;
        first.get_or_insert_with(|| id.trim().to_owned());
        sleep(PAUSE).await;
    }
    let (first, number) = (first.unwrap_or_default(), number.to_string());
    wait_until("the first entry is read", || {
        let said = redis.command(&["EVAL", IS_READ_SCRIPT, "0", &number, &stream, &first]);
        said.is_ok_and(|said| said.trim() == "read")
    })
    .await?;
    witness(!first.is_empty(), format!("{POISON_ENTRIES} entries without a ticket were added"))
}

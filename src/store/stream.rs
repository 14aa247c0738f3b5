//! The queue of a voucher in Redis: what is left to admit, the admitted users, and the stream of
//! the admitted whose orders are not yet written.
//!
//! All keys of a voucher share the tag `{v:<id>}`, so on a cluster one server has them, and each
//! script sees and changes all of them at once. They end a day after the sale. Nothing here is the
//! truth: `tickets` in the database says how a ticket ended, and `sale_epochs` which opening
//! counts.

mod keys;
mod types;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::Script;
use time::OffsetDateTime;

use super::{RedisConnection, StoreError};
use crate::domain::{TicketId, TicketState, UserId, VoucherId};
pub use types::{
    Admission, AdmissionRequest, EntryEnd, Progress, QueueOpening, QueuePlace, QueuedOrder,
    ReadMode, StreamEntry, Units, Unreadable,
};
use wire::{entry_of, state_of, state_text};

/// How long the keys outlive the sale.
const KEY_RETENTION: Duration = Duration::from_hours(24);
/// The most vouchers whose keys are cached.
const MAX_CACHED_KEYS: usize = 1024;
/// The consumer group.
const GROUP: &str = "sale";
/// How long an opener has before another one may begin.
const OPENING_TURN_MS: u64 = 2000;

/// The queues of all vouchers.
#[derive(Clone)]
pub struct SaleStream {
    connection: RedisConnection,
    admit: Script,
    opening_turn: Script,
    open: Script,
    read: Script,
    count_try: Script,
    acknowledge: Script,
    refill: Script,
    replay: Script,
    leave: Script,
    /// Cached names: each call needs them.
    keys: Arc<RwLock<HashMap<VoucherId, Arc<VoucherKeys>>>>,
    /// The most entries in a stream.
    max_entries: usize,
}

/// The keys of a voucher.
struct VoucherKeys {
    sale: String,
    users: String,
    tickets: String,
    stream: String,
    tries: String,
    turn: String,
}

impl VoucherKeys {
    fn of(voucher: VoucherId) -> Self {
        let key = |name| format!("{{v:{voucher}}}:{name}");
        Self {
            sale: key("sale"),
            users: key("users"),
            tickets: key("tickets"),
            stream: key("stream"),
            tries: key("tries"),
            turn: key("opening"),
        }
    }

    fn call<'a>(&self, script: &'a Script) -> redis::ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(&self.sale).key(&self.users).key(&self.tickets).key(&self.stream);
        call
    }
}

impl SaleStream {
    /// Queues in that Redis, of at most `max_entries` entries each.
    pub fn new(connection: RedisConnection, max_entries: usize) -> Self {
        Self {
            connection,
            admit: Script::new(include_str!("../../lua/sale/admit.lua")),
            opening_turn: Script::new(include_str!("../../lua/sale/opening_turn.lua")),
            open: Script::new(include_str!("../../lua/sale/open.lua")),
            read: Script::new(include_str!("../../lua/sale/read.lua")),
            count_try: Script::new(include_str!("../../lua/sale/count_try.lua")),
            acknowledge: Script::new(include_str!("../../lua/sale/acknowledge.lua")),
            refill: Script::new(include_str!("../../lua/sale/refill.lua")),
            replay: Script::new(include_str!("../../lua/sale/replay.lua")),
            leave: Script::new(include_str!("../../lua/sale/leave.lua")),
            keys: Arc::default(),
            max_entries,
        }
    }

    fn keys(&self, voucher: VoucherId) -> Arc<VoucherKeys> {
        let known = self.keys.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(keys) = known.get(&voucher) {
            return Arc::clone(keys);
        }
        drop(known);
        let mut known = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_CACHED_KEYS {
            known.clear();
        }
        Arc::clone(known.entry(voucher).or_insert_with(|| Arc::new(VoucherKeys::of(voucher))))
    }

    /// Admits a purchase, if it may be.
    pub async fn admit(&self, request: &AdmissionRequest) -> Result<Admission, StoreError> {
        let (word, text): (String, String) = self
            .keys(request.ticket.voucher())
            .call(&self.admit)
            .arg(request.user.0)
            .arg(request.ticket.to_string())
            .arg(request.price_cents)
            .arg(unix_ms(request.window.starts_at))
            .arg(unix_ms(request.window.ends_at))
            .arg(retention_ms())
            .arg(self.max_entries)
            .arg(request.key.map(|key| key.to_string()).unwrap_or_default())
            .invoke_async(&mut self.connection.clone())
            .await?;
        let unexpected = || StoreError::Unexpected(format!("an admission: {word} {text}"));
        Ok(match word.as_str() {
            "admitted" => Admission::Admitted,
            "ticket" => Admission::Ticket(text.parse().map_err(|_| unexpected())?),
            "ended" => Admission::Ended(state_of(&text).ok_or_else(unexpected)?),
            "sold_out" => Admission::SoldOut,
            "full" => Admission::Full,
            "not_started" => Admission::NotStarted,
            "over" => Admission::Over,
            "unopened" => Admission::Unopened,
            _ => return Err(unexpected()),
        })
    }

    /// Claims the opening of a queue that is not open, or open in a useless epoch; `false` if
    /// another caller has it. The claim lasts two seconds, or until the queue is open.
    pub async fn begin_to_open(
        &self,
        voucher: VoucherId,
        useless_epoch: Option<u64>,
    ) -> Result<bool, StoreError> {
        let keys = self.keys(voucher);
        let mut call = self.opening_turn.key(&keys.sale);
        call.key(&keys.turn)
            .arg(OPENING_TURN_MS)
            .arg(useless_epoch.map_or(String::new(), |e| e.to_string()));
        let got: u8 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(got == 1)
    }

    /// Opens the queue; whether it was not open in this or a later epoch.
    pub async fn open(
        &self,
        voucher: VoucherId,
        opening: &QueueOpening,
        ends_at: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let keys = self.keys(voucher);
        let opened: u8 = keys
            .call(&self.open)
            .key(&keys.tries)
            .key(&keys.turn)
            .arg(opening.epoch)
            .arg(opening.units.left)
            .arg(unix_ms(opening.read_at))
            .arg(unix_ms(ends_at))
            .arg(retention_ms())
            .arg(opening.units.came)
            .invoke_async(&mut self.connection.clone())
            .await?;
        Ok(opened == 1)
    }

    /// Reads entries; `None` if there is no such queue.
    pub async fn read(
        &self,
        voucher: VoucherId,
        consumer: &str,
        mode: ReadMode<'_>,
        max_entries: usize,
    ) -> Result<Option<Vec<StreamEntry>>, StoreError> {
        let (name, argument) = match mode {
            ReadMode::New => ("new", String::new()),
            ReadMode::Own(after) => ("own", after.to_owned()),
            ReadMode::Idle(time) => ("idle", time.as_millis().to_string()),
        };
        let mut call = self.read.key(&self.keys(voucher).stream);
        call.arg(consumer).arg(max_entries).arg(name).arg(argument);
        let taken = call.invoke_async::<Vec<Vec<Vec<u8>>>>(&mut self.connection.clone()).await;
        match taken {
            Ok(entries) => {
                Ok(Some(entries.iter().filter_map(|entry| entry_of(voucher, entry)).collect()))
            }
            Err(error) if error.to_string().contains("NOGROUP") => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Adds to the counted tries of an entry; their number. An entry that has ended has none.
    pub async fn count_try(&self, voucher: VoucherId, id: &str, by: i8) -> Result<u32, StoreError> {
        let keys = self.keys(voucher);
        let mut call = self.count_try.key(&keys.tries);
        call.key(&keys.sale).arg(id).arg(by);
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    /// Renews the consumer's claim on these entries.
    pub async fn heartbeat(
        &self,
        voucher: VoucherId,
        consumer: &str,
        ids: &[String],
    ) -> Result<(), StoreError> {
        let mut claim = redis::cmd("XCLAIM");
        claim
            .arg(&self.keys(voucher).stream)
            .arg(GROUP)
            .arg(consumer)
            .arg(0)
            .arg(ids)
            .arg("JUSTID");
        Ok(claim.exec_async(&mut self.connection.clone()).await?)
    }

    /// Acknowledges entries that have ended, and gives back what their ends leave. How many were
    /// not acknowledged before.
    pub async fn acknowledge(
        &self,
        voucher: VoucherId,
        ended: &[EntryEnd],
    ) -> Result<usize, StoreError> {
        let keys = self.keys(voucher);
        let mut call = keys.call(&self.acknowledge);
        call.key(&keys.tries);
        for EntryEnd { id, order, state } in ended {
            call.arg(id).arg(order.ticket.to_string()).arg(order.user.0).arg(order.epoch);
            call.arg(state_text(*state)).arg(given_back(*state));
        }
        Ok(call.invoke_async(&mut self.connection.clone()).await?)
    }

    /// Acknowledges entries and does nothing else: for those that name no ticket.
    pub async fn drop_entries(&self, voucher: VoucherId, ids: &[String]) -> Result<(), StoreError> {
        let keys = self.keys(voucher);
        let mut pipe = redis::pipe();
        pipe.cmd("XACK").arg(&keys.stream).arg(GROUP).arg(ids).ignore();
        pipe.cmd("XDEL").arg(&keys.stream).arg(ids).ignore();
        Ok(pipe.exec_async(&mut self.connection.clone()).await?)
    }

    /// Where a ticket stands; `None` if Redis does not know it.
    pub async fn state(&self, ticket: TicketId) -> Result<Option<TicketState>, StoreError> {
        let mut get = redis::cmd("HGET");
        get.arg(&self.keys(ticket.voucher()).tickets).arg(ticket.to_string());
        let text: Option<String> = get.query_async(&mut self.connection.clone()).await?;
        Ok(text.as_deref().and_then(state_of))
    }

    /// Where a ticket stands, and its place in the queue while it is pending; `None` if Redis does
    /// not know it.
    pub async fn place(
        &self,
        ticket: TicketId,
    ) -> Result<Option<(TicketState, Option<QueuePlace>)>, StoreError> {
        let keys = self.keys(ticket.voucher());
        let mut pipe = redis::pipe();
        pipe.cmd("HMGET").arg(&keys.tickets).arg(ticket.to_string()).arg(format!("n:{ticket}"));
        append_progress(&mut pipe, &keys);
        let (of_ticket, sale, under_way): ((Option<String>, Option<u64>), _, u64) =
            pipe.atomic().query_async(&mut self.connection.clone()).await?;
        let (text, number) = of_ticket;
        let Some(state) = text.as_deref().and_then(state_of) else { return Ok(None) };
        let place = number
            .filter(|_| state == TicketState::Pending)
            .zip(progress_of(sale, under_way))
            .map(|(number, progress)| QueuePlace { number, progress });
        Ok(Some((state, place)))
    }

    /// Whether there is a stream to take entries from.
    pub async fn has_group(&self, voucher: VoucherId) -> Result<bool, StoreError> {
        let mut exists = redis::cmd("EXISTS");
        exists.arg(&self.keys(voucher).stream);
        Ok(exists.query_async(&mut self.connection.clone()).await?)
    }

    /// Units left to admit; `None` if the queue is not open.
    pub async fn units_left(&self, voucher: VoucherId) -> Result<Option<i64>, StoreError> {
        let mut get = redis::cmd("HGET");
        get.arg(&self.keys(voucher).sale).arg("stock");
        Ok(get.query_async(&mut self.connection.clone()).await?)
    }

    /// How far the sale has come; `None` if it is not open.
    pub async fn progress(&self, voucher: VoucherId) -> Result<Option<Progress>, StoreError> {
        let keys = self.keys(voucher);
        let mut pipe = redis::pipe();
        append_progress(&mut pipe, &keys);
        let (sale, under_way) = pipe.atomic().query_async(&mut self.connection.clone()).await?;
        Ok(progress_of(sale, under_way))
    }

    /// Adds the units that came back to the database, read after that progress; whether there are
    /// units to admit.
    pub async fn refill(
        &self,
        voucher: VoucherId,
        seen: Progress,
        units: Units,
    ) -> Result<bool, StoreError> {
        let keys = self.keys(voucher);
        let mut call = self.refill.key(&keys.sale);
        call.arg(seen.epoch).arg(seen.seq).arg(seen.under_way).arg(units.left).arg(units.came);
        let taken: u8 = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(taken == 1)
    }

    /// Admits a dead letter again; otherwise why not.
    pub async fn replay(
        &self,
        ticket: TicketId,
        user: UserId,
        price_cents: u64,
    ) -> Result<Result<(), &'static str>, StoreError> {
        let mut call = self.keys(ticket.voucher()).call(&self.replay);
        call.arg(user.0).arg(ticket.to_string()).arg(price_cents).arg(self.max_entries);
        let word: String = call.invoke_async(&mut self.connection.clone()).await?;
        Ok(match word.as_str() {
            "admitted" => Ok(()),
            "sold_out" => Err("no unit is left"),
            "full" => Err("too many are under way; try again later"),
            "ticket" => Err("the user has another ticket"),
            _ => Err("the sale is not open"),
        })
    }

    /// Removes a consumer with all that it has read and not acknowledged (an injected bug).
    pub async fn delete_consumer(
        &self,
        voucher: VoucherId,
        consumer: &str,
    ) -> Result<(), StoreError> {
        let mut delete = redis::cmd("XGROUP");
        delete.arg("DELCONSUMER").arg(&self.keys(voucher).stream).arg(GROUP).arg(consumer);
        Ok(delete.exec_async(&mut self.connection.clone()).await?)
    }

    /// Removes a consumer that has no entries.
    pub async fn leave(&self, voucher: VoucherId, consumer: &str) -> Result<(), StoreError> {
        let mut call = self.leave.key(&self.keys(voucher).stream);
        let _removed: u8 = call.arg(consumer).invoke_async(&mut self.connection.clone()).await?;
        Ok(())
    }
}

/// Adds the commands that read how far a sale has come.
fn append_progress(pipe: &mut redis::Pipeline, keys: &VoucherKeys) {
    pipe.cmd("HMGET").arg(&keys.sale).arg(&["epoch", "seq"]).cmd("XLEN").arg(&keys.stream);
}

/// What they answer.
fn progress_of(sale: (Option<u64>, Option<u64>), under_way: u64) -> Option<Progress> {
    let (epoch, seq) = sale.0.zip(sale.1)?;
    Some(Progress { epoch, seq, under_way })
}

/// What an end leaves. Sold out means that the database has no unit: there is none to give back.
fn given_back(state: TicketState) -> &'static str {
    match state {
        TicketState::Pending | TicketState::Bought(_) => "",
        TicketState::AlreadyOrdered(_) => "u",
        TicketState::SoldOut => "m",
        TicketState::Refused | TicketState::Lost | TicketState::Dead => "um",
    }
}

fn unix_ms(moment: OffsetDateTime) -> i64 {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
}

fn retention_ms() -> u64 {
    KEY_RETENTION.as_millis().try_into().unwrap_or(u64::MAX)
}

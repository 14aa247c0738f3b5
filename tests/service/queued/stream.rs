//! The scripts themselves: the window by the database's clock, openings that overtake each other,
//! ends that are acknowledged twice, and keys that do not stay.

use std::time::Duration;

use seckill::domain::{TicketId, TicketState, UserId, VoucherId, Window};
use seckill::store::{
    self, Admission, AdmissionRequest, EntryEnd, Progress, QueueOpening, ReadMode, RedisAddress,
    SaleStream, Units,
};
use time::OffsetDateTime;

use crate::queued::buyer::{QueueState, left, redis};
use crate::support::Place;

const VOUCHER: VoucherId = VoucherId(9);
const HOUR: Duration = Duration::from_hours(1);

struct Table {
    place: Place,
    stream: SaleStream,
    /// The database's time, which is an hour ahead of Redis's.
    now: OffsetDateTime,
}

impl Table {
    async fn lay() -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let address = RedisAddress { url: &place.redis_url, ca: None };
        let stream = SaleStream::new(
            store::redis(address, Duration::from_secs(10)).await.expect("Redis"),
            100,
        );
        Self { place, stream, now: OffsetDateTime::now_utc() + HOUR }
    }

    async fn open(&self, epoch: u64, stock: i64) -> bool {
        let units = Units { left: stock, came: stock };
        let opening = QueueOpening { epoch, units, read_at: self.now };
        self.stream.open(VOUCHER, &opening, self.now + HOUR).await.expect("an answer")
    }

    async fn admit(&self, user: u64, window: Window) -> Admission {
        let ticket = ticket(user);
        let request =
            AdmissionRequest { user: UserId(user), ticket, price_cents: 5, window, key: None };
        self.stream.admit(&request).await.expect("an answer")
    }

    fn window(&self) -> Window {
        let minute = Duration::from_mins(1);
        Window { starts_at: self.now - minute, ends_at: self.now + HOUR }
    }

    async fn left(&self) -> QueueState {
        left(&self.place, &VOUCHER.to_string()).await
    }

    async fn read(&self, which: ReadMode<'_>) -> Vec<store::StreamEntry> {
        let taken = self.stream.read(VOUCHER, "me", which, 10).await;
        taken.expect("an answer").expect("a queue")
    }
}

fn ticket(user: u64) -> TicketId {
    TicketId::compose(1000 + user, VOUCHER, [7; 6]).expect("a ticket")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_window_is_that_of_the_databases_clock() {
    let table = Table::lay().await;
    assert_eq!(table.admit(1, table.window()).await, Admission::Unopened);
    assert!(table.open(1, 5).await);
    let minute = Duration::from_mins(1);
    let (starts_at, ends_at) = (table.now + minute, table.now + HOUR);
    assert_eq!(table.admit(1, Window { starts_at, ends_at }).await, Admission::NotStarted);
    let (starts_at, ends_at) = (table.now - HOUR, table.now - minute);
    assert_eq!(table.admit(1, Window { starts_at, ends_at }).await, Admission::Over);
    assert_eq!(table.left().await, QueueState { stock: 5, entries: 0, users: 0 });
    assert_eq!(table.admit(1, table.window()).await, Admission::Admitted);
    assert_eq!(table.admit(1, table.window()).await, Admission::Ticket(ticket(1)));
    let entry = table.read(ReadMode::New).await.remove(0).order.expect("it can be read");
    assert!((entry.at - table.now).whole_seconds().abs() < 60, "{} {}", entry.at, table.now);
    assert_eq!((entry.user, entry.ticket, entry.epoch), (UserId(1), ticket(1), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_opening_drops_what_an_earlier_one_left_and_is_not_undone_by_it() {
    let table = Table::lay().await;
    assert!(table.open(4, 5).await);
    assert_eq!(table.admit(1, table.window()).await, Admission::Admitted);
    assert!(!table.open(4, 9).await && !table.open(3, 9).await);
    assert_eq!(table.left().await, QueueState { stock: 4, entries: 1, users: 1 });
    assert!(table.open(5, 3).await);
    assert_eq!(table.left().await, QueueState { stock: 3, entries: 0, users: 0 });
    assert_eq!(table.stream.state(ticket(1)).await.expect("an answer"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_replica_opens_the_sale_and_none_once_it_is_open() {
    let table = Table::lay().await;
    let turn =
        async |of_no_use| table.stream.begin_to_open(VOUCHER, of_no_use).await.expect("an answer");
    assert!(turn(None).await);
    assert!(!turn(None).await, "another consumer has it");
    assert!(table.open(1, 5).await);
    // A request that read no sale before it was opened is too late.
    assert!(!turn(None).await && !turn(Some(7)).await);
    assert!(turn(Some(1)).await, "its epoch is of no use");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_counts_with_its_first_acknowledgement_and_in_its_own_epoch_only() {
    let table = Table::lay().await;
    table.open(1, 5).await;
    for user in [1, 2] {
        assert_eq!(table.admit(user, table.window()).await, Admission::Admitted);
    }
    let taken = table.read(ReadMode::New).await;
    let ends: Vec<_> = taken
        .iter()
        .map(|entry| EntryEnd {
            id: entry.id.clone(),
            order: *entry.order.as_ref().expect("it can be read"),
            state: TicketState::Refused,
        })
        .collect();
    let mut of_another_epoch = ends.clone();
    for end in &mut of_another_epoch {
        end.order.epoch = 2;
    }
    let settle =
        async |ends: &[EntryEnd]| table.stream.acknowledge(VOUCHER, ends).await.expect("an answer");
    assert_eq!(settle(&of_another_epoch).await, 0);
    assert_eq!(table.left().await, QueueState { stock: 3, entries: 2, users: 2 });
    assert_eq!(settle(&ends[..1]).await, 1);
    assert_eq!(settle(&ends).await, 1);
    assert_eq!(settle(&ends).await, 0);
    assert_eq!(table.left().await, QueueState { stock: 5, entries: 0, users: 0 });
    let state = table.stream.state(ticket(1)).await.expect("an answer");
    assert_eq!(state, Some(TicketState::Refused));
}

/// Redis looks at ten entries for each that it may hand out.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_entry_is_taken_over_however_many_before_it_are_being_worked_on() {
    let table = Table::lay().await;
    table.open(1, 50).await;
    for user in 1..=40 {
        assert_eq!(table.admit(user, table.window()).await, Admission::Admitted);
    }
    let taken = table.stream.read(VOUCHER, "another", ReadMode::New, 50).await;
    let taken = taken.expect("an answer").expect("a queue");
    let last = &taken.last().expect("entries").id;
    let mut idle = redis::cmd("XCLAIM");
    idle.arg("{v:9}:stream").arg("sale").arg("another").arg(0).arg(last).arg(&["IDLE", "3600000"]);
    idle.exec_async(&mut redis(&table.place).await).await.expect("an answer");
    let over = table.stream.read(VOUCHER, "me", ReadMode::Idle(HOUR / 2), 1).await;
    let over = over.expect("an answer").expect("a queue");
    assert_eq!(over.iter().map(|entry| &entry.id).collect::<Vec<_>>(), [last]);
}

/// A worker that takes more than it has places for waits for them, and shows no sign of life
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn at_most_the_requested_number_of_idle_entries_is_taken_over_in_any_number_of_scans() {
    let table = Table::lay().await;
    table.open(1, 50).await;
    for user in 1..=40 {
        assert_eq!(table.admit(user, table.window()).await, Admission::Admitted);
    }
    let taken = table.stream.read(VOUCHER, "another", ReadMode::New, 50).await;
    let taken: Vec<_> = taken.expect("an answer").expect("a queue");
    let ids: Vec<_> = taken.into_iter().map(|entry| entry.id).collect();
    // One is found at the first look, which is at twenty, and more than enough at the second.
    let idle = [&ids[..1], &ids[36..]].concat();
    let mut claim = redis::cmd("XCLAIM");
    claim.arg("{v:9}:stream").arg("sale").arg("another").arg(0).arg(&idle);
    claim.arg(&["IDLE", "3600000"]);
    claim.exec_async(&mut redis(&table.place).await).await.expect("an answer");
    let over = table.stream.read(VOUCHER, "me", ReadMode::Idle(HOUR / 2), 2).await;
    let over = over.expect("an answer").expect("a queue");
    assert_eq!(over.iter().map(|entry| &entry.id).collect::<Vec<_>>(), [&ids[0], &ids[36]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_entry_is_not_pending_and_no_tries_outlive_the_sale() {
    let table = Table::lay().await;
    table.open(1, 5).await;
    for user in [1, 2] {
        assert_eq!(table.admit(user, table.window()).await, Admission::Admitted);
    }
    let taken = table.read(ReadMode::New).await;
    let mut connection = redis(&table.place).await;
    let mut delete = redis::cmd("XDEL");
    delete.arg("{v:9}:stream").arg(&taken[0].id);
    delete.exec_async(&mut connection).await.expect("an answer");
    let own = table.read(ReadMode::Own("0")).await;
    assert_eq!(own.iter().map(|entry| &entry.id).collect::<Vec<_>>(), [&taken[1].id]);
    let mut pending = redis::cmd("XPENDING");
    pending.arg("{v:9}:stream").arg(&["sale", "-", "+", "9"]);
    let pending: Vec<redis::Value> = pending.query_async(&mut connection).await.expect("an answer");
    assert_eq!(pending.len(), 1, "{pending:?}");

    redis::cmd("DEL").arg("{v:9}:sale").exec_async(&mut connection).await.expect("an answer");
    let counted = table.stream.count_try(VOUCHER, &taken[1].id, 1).await.expect("an answer");
    let exists: bool =
        redis::cmd("EXISTS").arg("{v:9}:tries").query_async(&mut connection).await.expect("one");
    assert_eq!((counted, exists), (0, false));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_counts_until_it_is_taken_back_or_its_entry_has_ended() {
    let table = Table::lay().await;
    table.open(1, 5).await;
    assert_eq!(table.admit(1, table.window()).await, Admission::Admitted);
    let entry = table.read(ReadMode::New).await.remove(0);
    let count = async |by| {
        let counted = table.stream.count_try(VOUCHER, &entry.id, by).await;
        counted.expect("an answer")
    };
    for _ in 0..3 {
        let again = table.read(ReadMode::Idle(Duration::ZERO)).await.remove(0);
        assert_eq!(again.id, entry.id, "handing it out again is no try");
    }
    assert_eq!([count(1).await, count(1).await, count(-1).await, count(1).await], [1, 2, 1, 2]);
    let tries = "{v:9}:tries";
    let mut connection = redis(&table.place).await;
    let left_ms: i64 =
        redis::cmd("PTTL").arg(tries).query_async(&mut connection).await.expect("an answer");
    assert!(left_ms > 24 * 3_600_000, "they end with the sale: {left_ms} ms");
    let order = entry.order.clone().expect("it can be read");
    let end = EntryEnd { id: entry.id.clone(), order, state: TicketState::Refused };
    table.stream.acknowledge(VOUCHER, &[end]).await.expect("an answer");
    let exists = async |mut connection: redis::aio::MultiplexedConnection| -> bool {
        redis::cmd("EXISTS").arg(tries).query_async(&mut connection).await.expect("an answer")
    };
    assert!(!exists(connection.clone()).await, "its end forgets them");
    assert_eq!(count(-1).await, 0, "a late request leaves nothing");
    assert!(!exists(connection).await);
}

impl Table {
    async fn seen(&self) -> Progress {
        self.stream.progress(VOUCHER).await.expect("an answer").expect("a sale")
    }

    /// What may be admitted after the database was asked, which said so.
    async fn refilled(&self, seen: Progress, left: i64, came: i64) -> i64 {
        let units = Units { left, came };
        let are_any = self.stream.refill(VOUCHER, seen, units).await.expect("an answer");
        let stock = self.left().await.stock;
        assert_eq!(are_any, stock > 0);
        stock
    }

    async fn miscount(&self, stock: i64) {
        let mut set = redis::cmd("HSET");
        set.arg("{v:9}:sale").arg("stock").arg(stock);
        set.exec_async(&mut redis(&self.place).await).await.expect("an answer");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn units_added_in_the_database_are_admitted_once_whatever_happens_meanwhile() {
    let table = Table::lay().await;
    table.open(1, 2).await;
    let seen = table.seen().await;
    assert_eq!(seen, Progress { epoch: 1, seq: 0, under_way: 0 });
    for user in [1, 2] {
        assert_eq!(table.admit(user, table.window()).await, Admission::Admitted);
    }
    assert_eq!(table.admit(3, table.window()).await, Admission::SoldOut);
    // Both are written, and not acknowledged.
    assert_eq!(table.refilled(table.seen().await, 0, 2).await, 0, "nothing came");
    assert_eq!(table.refilled(table.seen().await, 3, 5).await, 3, "three units came");
    assert_eq!(table.refilled(table.seen().await, 3, 5).await, 3, "the same three");
    assert_eq!(table.admit(3, table.window()).await, Admission::Admitted);
    assert_eq!(table.refilled(seen, 4, 6).await, 3, "one came; another was admitted meanwhile");
    assert_eq!(table.refilled(table.seen().await, 2, 5).await, 3, "it was asked before that");
    let of_another = Progress { epoch: 2, ..table.seen().await };
    assert!(!table.stream.refill(VOUCHER, of_another, Units { left: 9, came: 9 }).await.unwrap());
    assert_eq!(table.left().await, QueueState { stock: 3, entries: 3, users: 3 });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_count_is_corrected_by_that_of_the_database() {
    let table = Table::lay().await;
    table.open(1, 50).await;
    let before = table.seen().await;
    assert_eq!(table.admit(1, table.window()).await, Admission::Admitted);
    table.miscount(0).await;
    assert_eq!(table.refilled(before, 50, 50).await, 0, "a buyer was admitted meanwhile");
    // The entry that is under way may still take one of them.
    assert_eq!(table.refilled(table.seen().await, 50, 50).await, 49);
    table.miscount(70).await;
    assert_eq!(table.refilled(table.seen().await, 50, 50).await, 70, "some may have come back");
    let entry = table.read(ReadMode::New).await.remove(0);
    let order = entry.order.expect("it can be read");
    let end = EntryEnd { id: entry.id, order, state: TicketState::SoldOut };
    table.stream.acknowledge(VOUCHER, &[end]).await.expect("an answer");
    assert_eq!(table.refilled(before, 50, 50).await, 70, "a buyer was admitted and has ended");
    assert_eq!(table.refilled(table.seen().await, 50, 50).await, 50, "nothing is on its way");
}

impl Table {
    /// All keys that there are, and for how many hours.
    async fn keys(&self) -> Vec<(String, i64)> {
        let mut connection = redis(&self.place).await;
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("*").query_async(&mut connection).await.expect("the keys");
        let mut all = Vec::new();
        for key in keys {
            let mut left = redis::cmd("PTTL");
            left.arg(&key);
            let left_ms: i64 = left.query_async(&mut connection).await.expect("an answer");
            all.push((key, left_ms / 3_600_000));
        }
        all
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_keys_of_a_voucher_share_a_tag_and_end_a_day_after_the_sale() {
    let table = Table::lay().await;
    table.open(1, 5).await;
    // The sale ends in an hour.
    assert_eq!(table.admit(1, table.window()).await, Admission::Admitted);
    let keys = table.keys().await;
    assert_eq!(keys.len(), 4, "{keys:?}");
    for (key, hours) in keys {
        assert!(key.starts_with("{v:9}:"), "{key}");
        assert!((24..=25).contains(&hours), "{key}: {hours} h");
    }
    // Its end is moved by a day.
    let mut longer = table.window();
    longer.ends_at += HOUR * 24;
    assert_eq!(table.admit(2, longer).await, Admission::Admitted);
    let ends = table.keys().await;
    assert!(ends.iter().all(|(_, hours)| (48..=49).contains(hours)), "{ends:?}");
    // Keys that come anew end with the others.
    let mut forget = redis::cmd("DEL");
    forget.arg("{v:9}:users").arg("{v:9}:tickets");
    forget.exec_async(&mut redis(&table.place).await).await.expect("an answer");
    for user in [3, 4] {
        assert_eq!(table.admit(user, longer).await, Admission::Admitted);
    }
    let ends = table.keys().await;
    assert!(ends.iter().all(|(_, hours)| (48..=49).contains(hours)), "{ends:?}");
}

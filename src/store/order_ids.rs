//! Numbers for orders, drawn from Redis in blocks so that an order costs no extra round trip.

use std::sync::Arc;
use std::time::Duration;

use time::{Date, OffsetDateTime, UtcOffset};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::{OrderCounter, RedisConnection, StoreError};
use crate::domain::OrderId;

/// Numbers fetched at once. What a replica does not use up is lost: the counter has 32 bits a day.
const BLOCK: u64 = 256;
/// The day's counter outlives its day, so that a late replica cannot start it again.
const COUNTER_LIFE_S: i64 = 172_800;
const DRAW_TIMEOUT: Duration = Duration::from_secs(1);

/// Draws order ids: unique while Redis keeps its data; if it does not, the primary key has the
/// last word and another one is drawn.
#[derive(Clone)]
pub struct OrderIds {
    connection: RedisConnection,
    zone: UtcOffset,
    /// The first number of a day.
    first: u64,
    counter: OrderCounter,
    block: Arc<Mutex<Block>>,
}

struct Block {
    day: Date,
    next: u64,
    end: u64,
}

impl OrderIds {
    /// Ids from that Redis.
    pub fn new(connection: RedisConnection) -> Self {
        Self::by(connection, UtcOffset::UTC, 0, OrderCounter::NATIVE)
    }

    /// Ids from the counter that hm-dianping's own replicas in that zone draw from. They use what
    /// INCR answers, so their first number is 1.
    pub fn dianping(connection: RedisConnection, zone: UtcOffset, counter: OrderCounter) -> Self {
        Self::by(connection, zone, 1, counter)
    }

    fn by(connection: RedisConnection, zone: UtcOffset, first: u64, counter: OrderCounter) -> Self {
        let block = Block { day: Date::MIN, next: 0, end: 0 };
        Self { connection, zone, first, counter, block: Arc::new(Mutex::new(block)) }
    }

    /// Another id.
    pub async fn draw(&self) -> Result<OrderId, StoreError> {
        let ids = self.draw_many(1).await?;
        ids.first().copied().ok_or_else(|| StoreError::Unexpected("no id was drawn".into()))
    }

    /// Draws `count` ids within a second. The time includes the wait for other callers, so that
    /// their time-outs at a dead Redis do not add up.
    pub async fn draw_many(&self, count: usize) -> Result<Vec<OrderId>, StoreError> {
        let late = |_| StoreError::TimedOut { server: "redis" };
        timeout(DRAW_TIMEOUT, self.draw_in_turn(count)).await.map_err(late)?
    }

    async fn draw_in_turn(&self, count: usize) -> Result<Vec<OrderId>, StoreError> {
        let mut block = self.block.lock().await;
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            // The clock on the wall counts, as if it were UTC.
            let now = OffsetDateTime::now_utc().to_offset(self.zone).replace_offset(UtcOffset::UTC);
            if block.next == block.end || block.day != now.date() {
                *block = self.fetch(now.date()).await?;
            }
            ids.push(OrderId::compose(now, block.next));
            block.next += 1;
        }
        Ok(ids)
    }

    async fn fetch(&self, day: Date) -> Result<Block, StoreError> {
        let key = self.counter.key(day);
        let (end,): (u64,) = redis::pipe()
            .atomic()
            .incr(&key, BLOCK)
            .expire(&key, COUNTER_LIFE_S)
            .ignore()
            .query_async(&mut self.connection.clone())
            .await?;
        Ok(Block { day, next: end - BLOCK + self.first, end: end + self.first })
    }
}

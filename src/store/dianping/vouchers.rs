//! New vouchers of hm-dianping.

use redis::AsyncCommands;
use sqlx::MySqlPool;
use time::PrimitiveDateTime;

use crate::domain::VoucherId;
use crate::store::{CommitError, RedisConnection, StoreError, Transaction};

/// A voucher about to be created.
#[derive(Debug)]
pub struct DianpingVoucher {
    /// Whose it is.
    pub shop: u64,
    /// What it is called.
    pub title: String,
    /// What stands below that.
    pub sub_title: Option<String>,
    /// How it is used.
    pub rules: Option<String>,
    /// What it costs, in cents.
    pub pay_value: u64,
    /// What it is worth, in cents.
    pub actual_value: u64,
    /// Its flash sale, if it has one.
    pub seckill: Option<SeckillPart>,
}

/// The flash sale of a voucher.
#[derive(Debug, Clone, Copy)]
pub struct SeckillPart {
    /// Its units.
    pub stock: u32,
    /// When it begins.
    pub begins: PrimitiveDateTime,
    /// When it ends.
    pub ends: PrimitiveDateTime,
}

/// The vouchers of hm-dianping.
#[derive(Clone)]
pub struct DianpingVouchers {
    pool: MySqlPool,
    redis: RedisConnection,
}

impl DianpingVouchers {
    /// Vouchers in that database, and their stock in that Redis.
    pub fn new(pool: MySqlPool, redis: RedisConnection) -> Self {
        Self { pool, redis }
    }

    /// Creates a voucher that is on sale. Replicas whose sale is a Lua script read its stock in
    /// Redis, so it is there before COMMIT: a voucher without that key could not be sold.
    pub async fn create(&self, new: &DianpingVoucher) -> Result<VoucherId, StoreError> {
        let mut tx = Transaction::open(&self.pool).await?;
        let insert = sqlx::query(
            "INSERT INTO tb_voucher (shop_id, title, sub_title, rules, pay_value, actual_value, \
             type, status) VALUES (?, ?, ?, ?, ?, ?, ?, 1)",
        )
        .bind(new.shop)
        .bind(&new.title)
        .bind(&new.sub_title)
        .bind(&new.rules)
        .bind(new.pay_value)
        .bind(new.actual_value)
        .bind(u8::from(new.seckill.is_some()));
        let id = VoucherId(tx.execute(insert).await?.last_insert_id());
        if let Some(SeckillPart { stock, begins, ends }) = new.seckill {
            let insert = sqlx::query(
                "INSERT INTO tb_seckill_voucher (voucher_id, stock, begin_time, end_time) \
                 VALUES (?, ?, ?, ?)",
            );
            tx.execute(insert.bind(id.0).bind(stock).bind(begins).bind(ends)).await?;
            let key = format!("seckill:stock:{id}");
            self.redis.clone().set::<_, _, ()>(key, stock).await?;
        }
        match tx.commit().await {
            Ok(()) => Ok(id),
            Err(CommitError::Refused(error)) => Err(error),
            Err(CommitError::Unknown(_)) => Err(StoreError::TimedOut { server: "database" }),
        }
    }
}

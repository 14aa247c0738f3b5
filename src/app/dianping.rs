//! The parts of hm-dianping's API.

use std::sync::Arc;

use anyhow::{Context, bail};
use distlock::{LockOptions, Locks};
use tokio::sync::Semaphore;

use crate::config::Serve;
use crate::http::DianpingApi;
use crate::lock;
use crate::sale::dianping::DianpingSale;
use crate::store::dianping::{
    DianpingLogins, DianpingOrders, DianpingPages, DianpingVouchers, lacks_unique_key,
    missing_tables, server_zone,
};
use crate::store::{self, DatabaseOptions, Health, OrderIds, RedisConnection};

/// Connects to hm-dianping's tables, if its API is served.
pub(super) async fn open(
    config: &Serve,
    (redis, health): (&RedisConnection, &Health),
    (locks, options): (&Locks, LockOptions),
) -> anyhow::Result<Option<DianpingApi>> {
    let Some(counter) = config.dianping.counter() else { return Ok(None) };
    let address = &config.database.database_url;
    let (url, pool_size) = (address.expose().to_owned(), config.db_pool);
    let pool = DatabaseOptions { url, pool_size, naive: false, silence: None };
    let pool = store::database_in_server_zone(&pool)
        .await
        .with_context(|| format!("{} is not usable", address.given_as()))?;
    let missing = missing_tables(&pool).await.context("cannot read hm-dianping's tables")?;
    if !missing.is_empty() {
        let tables = missing.join(", ");
        bail!("{} has no {tables}; `seckill adopt` makes what is missing", address.given_as());
    }
    if lacks_unique_key(&pool).await.context("cannot read hm-dianping's keys")? {
        tracing::warn!("tb_voucher_order has no unique key; `seckill adopt` adds it");
    }
    let zone = match config.dianping.dianping_zone {
        Some(zone) => zone,
        None => server_zone(&pool).await.context("cannot read the database's time zone")?,
    };
    let sale = DianpingSale {
        orders: DianpingOrders::new(pool.clone(), zone),
        ids: OrderIds::dianping(redis.clone(), zone, counter),
        locks: locks.clone(),
        options,
        lock_server: lock::server_name(config.lock),
        health: health.clone(),
        zone,
        admission: Arc::new(Semaphore::new(config.max_orders as usize)),
    };
    Ok(Some(DianpingApi {
        logins: DianpingLogins::new(pool.clone(), redis.clone()),
        pages: DianpingPages::new(pool.clone()),
        vouchers: DianpingVouchers::new(pool, redis.clone()),
        sale,
        admins: config.dianping.dianping_admins.iter().copied().collect(),
    }))
}

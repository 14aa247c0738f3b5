//! hm-dianping's own tables and keys, which its replicas use at the same time: `tb_*` in the
//! database, `login:*`, `icr:order:*` and `seckill:stock:*` in Redis.
//!
//! Times have no zone there. The sessions keep the server's zone, as those of hm-dianping do, so
//! that both read the same time in a `TIMESTAMP`.

mod adopt;
mod adopt_duplicates;
mod logins;
mod orders;
mod pages;
mod vouchers;

use serde_json::{Map, Value};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, MySqlPool, Row};
use time::UtcOffset;

use super::{Session, StoreError};
pub use adopt::{AdoptError, AdoptMode, adopt, undo};
pub use logins::{DianpingLogins, DianpingUser};
pub use orders::{DianpingOrders, DianpingTerms};
pub use pages::DianpingPages;
pub use vouchers::{DianpingVoucher, DianpingVouchers, SeckillPart};

/// The tables, in the order in which they are made.
pub(super) const TABLES: [&str; 8] = [
    "tb_user",
    "tb_shop_type",
    "tb_shop",
    "tb_voucher",
    "tb_seckill_voucher",
    "tb_voucher_order",
    "tb_blog",
    "tb_user_info",
];

/// A JSON object without nulls.
pub type JsonObject = Map<String, Value>;

/// The tables that a database lacks.
pub async fn missing_tables(pool: &MySqlPool) -> Result<Vec<&'static str>, StoreError> {
    let mut session = Session::open(pool).await?;
    let sql = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()";
    let rows = session.fetch_all(sqlx::query(sql)).await?;
    let there: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    Ok(TABLES.into_iter().filter(|table| !there.iter().any(|name| name == table)).collect())
}

/// Whether nothing in the database refuses a second order.
pub async fn lacks_unique_key(pool: &MySqlPool) -> Result<bool, StoreError> {
    let mut connection = pool.acquire().await?;
    Ok(adopt::unique_key(&mut connection).await?.is_none())
}

/// The zone of the database server.
pub async fn server_zone(pool: &MySqlPool) -> Result<UtcOffset, StoreError> {
    let mut session = Session::open(pool).await?;
    let sql = "SELECT CAST(ROUND(TIMESTAMPDIFF(SECOND, UTC_TIMESTAMP(), NOW()) / 60) AS SIGNED)";
    let minutes: i64 = session.fetch_one(sqlx::query(sql)).await?.try_get(0)?;
    let seconds = i32::try_from(minutes * 60).unwrap_or(0);
    UtcOffset::from_whole_seconds(seconds)
        .map_err(|error| StoreError::Unexpected(format!("the database's time zone: {error}")))
}

/// The objects that a query builds, one a row; the query bounds how many.
async fn objects(
    pool: &MySqlPool,
    query: Query<'_, MySql, MySqlArguments>,
) -> Result<Vec<JsonObject>, StoreError> {
    let mut session = Session::open(pool).await?;
    let mut objects = Vec::new();
    for row in session.fetch_all(query).await? {
        let text: String = row.try_get(0)?;
        let mut object: JsonObject = serde_json::from_str(&text)
            .map_err(|error| StoreError::Unexpected(format!("JSON of the database: {error}")))?;
        object.retain(|_, value| !value.is_null());
        objects.push(object);
    }
    Ok(objects)
}

//! Second orders of a user for one voucher, which the unique key does not allow.
//!
//! A row is in `tb_voucher_order` or in the table of those set aside, and moves in one transaction.

use sqlx::{Connection, MySql, MySqlConnection, QueryBuilder, Row};

use super::adopt::{has_table, run};

/// How many pairs of user and voucher are listed.
pub(super) const DUPLICATES_SHOWN: u32 = 20;
/// How many rows move in one transaction.
const BATCH: u32 = 500;
/// Where second orders are set aside.
const SET_ASIDE: &str = "tb_voucher_order_set_aside";

/// How many pairs of user and voucher have several orders, and the first of them as lines.
pub(super) async fn duplicates(
    database: &mut MySqlConnection,
) -> Result<(i64, Vec<String>), sqlx::Error> {
    let pairs = "SELECT CAST(user_id AS CHAR), CAST(voucher_id AS CHAR), \
         CAST(GROUP_CONCAT(id ORDER BY id SEPARATOR ' ') AS CHAR) FROM tb_voucher_order \
         GROUP BY user_id, voucher_id HAVING COUNT(*) > 1";
    let count = format!("SELECT COUNT(*) FROM ({pairs}) AS pairs");
    let count = run(database, count).await?.first().map_or(Ok(0), |row| row.try_get(0))?;
    let shown = format!("{pairs} ORDER BY MIN(id) LIMIT {DUPLICATES_SHOWN}");
    let line = |row: &sqlx::mysql::MySqlRow| {
        let text = |at| row.try_get::<String, _>(at);
        Ok(format!("user {} has several orders of voucher {}: {}", text(0)?, text(1)?, text(2)?))
    };
    let lines = run(database, shown).await?.iter().map(line).collect::<Result<_, sqlx::Error>>()?;
    Ok((count, lines))
}

/// Moves second orders away. One that was paid stays (2), also if it was used since (3) or is
/// refunded (5, 6); else the oldest that is not cancelled (4). Returns how many moved.
pub(super) async fn set_aside_duplicates(
    database: &mut MySqlConnection,
) -> Result<usize, sqlx::Error> {
    let surplus = format!(
        "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (PARTITION BY user_id, voucher_id \
         ORDER BY status IN (2, 3, 5, 6) DESC, status = 4, id) AS place \
         FROM tb_voucher_order) AS places WHERE place > 1 ORDER BY id LIMIT {BATCH}"
    );
    let mut moved = 0;
    loop {
        let rows = run(database, surplus.clone()).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if ids.is_empty() {
            return Ok(moved);
        }
        run(database, format!("CREATE TABLE IF NOT EXISTS {SET_ASIDE} LIKE tb_voucher_order"))
            .await?;
        move_rows(database, &ids, ["tb_voucher_order", SET_ASIDE]).await?;
        moved += ids.len();
    }
}

/// Moves all orders back that were set aside, and removes their table; how many, if it was there.
pub(super) async fn give_set_aside_back(
    database: &mut MySqlConnection,
) -> Result<Option<usize>, sqlx::Error> {
    if !has_table(database, SET_ASIDE).await? {
        return Ok(None);
    }
    let mut moved = 0;
    loop {
        let some = format!("SELECT id FROM {SET_ASIDE} ORDER BY id LIMIT {BATCH}");
        let rows = run(database, some).await?;
        let ids: Vec<i64> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
        if ids.is_empty() {
            run(database, format!("DROP TABLE {SET_ASIDE}")).await?;
            return Ok(Some(moved));
        }
        move_rows(database, &ids, [SET_ASIDE, "tb_voucher_order"]).await?;
        moved += ids.len();
    }
}

async fn move_rows(
    database: &mut MySqlConnection,
    ids: &[i64],
    [from, to]: [&str; 2],
) -> Result<(), sqlx::Error> {
    let mut tx = database.begin().await?;
    for verb in [format!("INSERT INTO {to} SELECT * FROM {from}"), format!("DELETE FROM {from}")] {
        let mut query = QueryBuilder::<MySql>::new(format!("{verb} WHERE id IN ("));
        let mut list = query.separated(", ");
        for id in ids {
            list.push_bind(id);
        }
        query.push(")");
        query.build().execute(&mut *tx).await?;
    }
    tx.commit().await
}

//! Second orders of a user for one voucher, which the unique key does not allow.
//!
//! A row is in `tb_voucher_order` or in the table of those set aside, and moves in one transaction.

use sqlx::mysql::MySqlRow;
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
    let line = |row: &MySqlRow| {
        let text = |at| row.try_get::<String, _>(at);
        Ok(format!("user {} has several orders of voucher {}: {}", text(0)?, text(1)?, text(2)?))
    };
    let lines = run(database, shown).await?.iter().map(line).collect::<Result<_, sqlx::Error>>()?;
    Ok((count, lines))
}

/// Moves second orders away. One that was paid stays (2), also if it was used since (3) or is
/// refunded (5, 6); else the oldest that is not cancelled (4). Returns how many moved.
///
/// Which one stays is decided by rows that are locked until the others have moved, so a payment
/// that commits meanwhile counts.
pub(super) async fn set_aside_duplicates(
    database: &mut MySqlConnection,
) -> Result<usize, sqlx::Error> {
    let candidates = format!(
        "SELECT id FROM (SELECT id, user_id, voucher_id, \
         COUNT(*) OVER (PARTITION BY user_id, voucher_id) AS orders FROM tb_voucher_order) \
         AS counted WHERE orders > 1 ORDER BY user_id, voucher_id, id LIMIT {BATCH}"
    );
    let mut moved = 0;
    loop {
        let candidates = ids_of(&run(database, candidates.clone()).await?)?;
        if candidates.is_empty() {
            return Ok(moved);
        }
        run(database, format!("CREATE TABLE IF NOT EXISTS {SET_ASIDE} LIKE tb_voucher_order"))
            .await?;
        let mut tx = database.begin().await?;
        let surplus = lock_surplus(&mut tx, &candidates).await?;
        move_rows(&mut tx, &surplus, ["tb_voucher_order", SET_ASIDE]).await?;
        tx.commit().await?;
        moved += surplus.len();
    }
}

/// Locks these orders, and gives those that do not stay.
async fn lock_surplus(tx: &mut MySqlConnection, ids: &[i64]) -> Result<Vec<i64>, sqlx::Error> {
    let mut query = QueryBuilder::<MySql>::new(
        "SELECT id, CAST(CONCAT(user_id, ' ', voucher_id) AS CHAR) FROM tb_voucher_order",
    );
    push_ids(&mut query, ids);
    query.push(
        " ORDER BY user_id, voucher_id, status IN (2, 3, 5, 6) DESC, status = 4, id FOR UPDATE",
    );
    let (mut surplus, mut last) = (Vec::new(), String::new());
    for row in query.build().fetch_all(tx).await? {
        let pair: String = row.try_get(1)?;
        if last == pair {
            surplus.push(row.try_get(0)?);
        }
        last = pair;
    }
    Ok(surplus)
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
        let mut tx = database.begin().await?;
        let some = format!("SELECT id FROM {SET_ASIDE} ORDER BY id LIMIT {BATCH} FOR UPDATE");
        let ids = ids_of(&run(&mut tx, some).await?)?;
        move_rows(&mut tx, &ids, [SET_ASIDE, "tb_voucher_order"]).await?;
        tx.commit().await?;
        if ids.is_empty() {
            run(database, format!("DROP TABLE {SET_ASIDE}")).await?;
            return Ok(Some(moved));
        }
        moved += ids.len();
    }
}

fn ids_of(rows: &[MySqlRow]) -> Result<Vec<i64>, sqlx::Error> {
    rows.iter().map(|row| row.try_get(0)).collect()
}

fn push_ids(query: &mut QueryBuilder<MySql>, ids: &[i64]) {
    let mut list = query.push(" WHERE id IN (").separated(", ");
    for id in ids {
        list.push_bind(*id);
    }
    query.push(")");
}

/// Moves rows that the transaction has locked.
async fn move_rows(
    tx: &mut MySqlConnection,
    ids: &[i64],
    [from, to]: [&str; 2],
) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    for verb in [format!("INSERT INTO {to} SELECT * FROM {from}"), format!("DELETE FROM {from}")] {
        let mut query = QueryBuilder::<MySql>::new(verb);
        push_ids(&mut query, ids);
        query.build().execute(&mut *tx).await?;
    }
    Ok(())
}

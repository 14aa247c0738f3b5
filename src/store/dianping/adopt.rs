//! `seckill adopt`: brings a database of hm-dianping in, and takes that back.
//!
//! Each step looks whether it is done, and is one statement or one transaction. What is to be made
//! is noted before it is made. So a run that was killed is completed by the next one, and `undo`
//! knows what was made.

use std::time::Duration;

use rust_embed::RustEmbed;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, Row};
use tokio::time::timeout;

use super::TABLES;
use super::adopt_duplicates::{
    DUPLICATES_SHOWN, duplicates, give_set_aside_back, set_aside_duplicates,
};
use crate::store::migrate::take_turn;
use crate::store::primary::{DatabaseServers, silence};

/// The unique key that is added.
const KEY: &str = "uq_seckill_user_voucher";
/// Notes which tables `adopt` has made.
const LEDGER: &str = "seckill_adoption";
/// How long everything may take: a key of a large table takes its time.
const ADOPTION_TIMEOUT: Duration = Duration::from_hours(1);
/// How long a change of a table waits for the transactions on it, in seconds. New ones wait behind
/// it meanwhile.
const TABLE_LOCK_WAIT: &str = "SET SESSION lock_wait_timeout = 20";
/// How often duplicates are looked for that arrive before the key is there.
const MAX_TRIES: u32 = 5;
/// The number of MySQL's error for a row with that key.
const DUPLICATE_ENTRY: u16 = 1062;

/// The definitions of the tables. No migration runs them: the tables are hm-dianping's.
#[derive(RustEmbed)]
#[folder = "migrations/dianping/"]
struct Definitions;

/// What to do with second orders of a user for a voucher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum AdoptMode {
    /// List them and change nothing.
    Refuse,
    /// Move them to another table.
    SetAside,
}

/// Why a database was not adopted.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// There are second orders, which the lines before list.
    #[error("{0} users have several orders of one voucher: --duplicates set-aside moves them")]
    Duplicates(i64),
    /// Second orders arrive as fast as they are set aside.
    #[error("second orders still arrive: stop the replicas that write them, and run this again")]
    StillArriving,
    /// A file of the program is missing.
    #[error("no definition of the table {0}")]
    NoDefinition(&'static str),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// Another process adopts or migrates.
    #[error(transparent)]
    Turn(#[from] sqlx::migrate::MigrateError),
}

/// Adds what the database lacks; `say` is told each thing that was done.
pub async fn adopt(
    url: &str,
    mode: AdoptMode,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<(), AdoptError> {
    in_turn(url, async |database| {
        if mode == AdoptMode::Refuse && unique_key(database).await?.is_none() {
            refuse_duplicates(database, say).await?;
        }
        for table in TABLES {
            if make_table(database, table).await? {
                say(format!("made the table {table}"));
            }
        }
        add_key(database, mode, say).await
    })
    .await
}

/// Takes back what [`adopt`] did.
pub async fn undo(url: &str, say: &mut (dyn FnMut(String) + Send)) -> Result<(), AdoptError> {
    in_turn(url, async |database| {
        if has_own_key(database).await? {
            run(database, format!("ALTER TABLE tb_voucher_order DROP INDEX {KEY}")).await?;
            say(format!("removed the unique key {KEY}"));
        }
        if let Some(orders) = give_set_aside_back(database).await? {
            say(format!("gave {orders} orders back that were set aside"));
        }
        if !has_table(database, LEDGER).await? {
            return Ok(());
        }
        let mut kept = false;
        for table in TABLES.into_iter().rev() {
            let noted = format!("SELECT 1 FROM {LEDGER} WHERE item = '{table}'");
            if run(database, noted).await?.is_empty() || !has_table(database, table).await? {
                continue;
            }
            // No row comes between the look and the drop.
            run(database, format!("LOCK TABLES {table} WRITE")).await?;
            if run(database, format!("SELECT 1 FROM {table} LIMIT 1")).await?.is_empty() {
                run(database, format!("DROP TABLE {table}")).await?;
                say(format!("removed the table {table}, which was empty"));
            } else {
                kept = true;
                say(format!("kept the table {table}, which has rows"));
            }
            run(database, "UNLOCK TABLES".to_owned()).await?;
        }
        if !kept {
            run(database, format!("DROP TABLE {LEDGER}")).await?;
        }
        Ok(())
    })
    .await
}

/// Runs work alone, within its time.
async fn in_turn(
    url: &str,
    work: impl AsyncFnOnce(&mut MySqlConnection) -> Result<(), AdoptError>,
) -> Result<(), AdoptError> {
    let servers = DatabaseServers::parse(url)?.map(|server| server.timezone(None));
    let mut database = servers.connect().await?;
    let working = async {
        take_turn(&mut database).await?;
        run(&mut database, TABLE_LOCK_WAIT.to_owned()).await?;
        work(&mut database).await?;
        Ok(database.close().await?)
    };
    timeout(ADOPTION_TIMEOUT, working).await.map_err(|_| silence())?
}

/// Runs a statement without parameters; its names are this module's own.
pub(super) async fn run(
    database: &mut MySqlConnection,
    sql: String,
) -> Result<Vec<sqlx::mysql::MySqlRow>, sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(database).await
}

pub(super) async fn has_table(
    database: &mut MySqlConnection,
    table: &str,
) -> Result<bool, sqlx::Error> {
    let sql = "SELECT 1 FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = ?";
    Ok(sqlx::query(sql).bind(table).fetch_optional(database).await?.is_some())
}

/// Makes a table that is missing; whether it was.
async fn make_table(
    database: &mut MySqlConnection,
    table: &'static str,
) -> Result<bool, AdoptError> {
    if has_table(database, table).await? {
        return Ok(false);
    }
    let name = Definitions::iter().find(|name| name.ends_with(&format!("_{table}.sql")));
    let file = name.and_then(|name| Definitions::get(&name));
    let file = file.and_then(|file| String::from_utf8(file.data.into_owned()).ok());
    let definition = file.ok_or(AdoptError::NoDefinition(table))?;
    let ledger = format!("CREATE TABLE IF NOT EXISTS {LEDGER} (item VARCHAR(64) PRIMARY KEY)");
    run(database, ledger).await?;
    run(database, format!("INSERT IGNORE INTO {LEDGER} VALUES ('{table}')")).await?;
    run(database, definition).await?;
    Ok(true)
}

/// The name of a unique key on exactly user and voucher.
pub(super) async fn unique_key(
    database: &mut MySqlConnection,
) -> Result<Option<String>, sqlx::Error> {
    let sql = "SELECT index_name FROM information_schema.statistics \
         WHERE table_schema = DATABASE() AND table_name = 'tb_voucher_order' AND non_unique = 0 \
         GROUP BY index_name HAVING COUNT(*) = 2 \
         AND SUM(column_name IN ('user_id', 'voucher_id')) = 2 ORDER BY index_name LIMIT 1";
    let row = sqlx::query(sql).fetch_optional(database).await?;
    row.map(|row| row.try_get(0)).transpose()
}

/// Whether the key that is added is there, beside others on the same columns or not.
async fn has_own_key(database: &mut MySqlConnection) -> Result<bool, sqlx::Error> {
    let sql = "SELECT 1 FROM information_schema.statistics WHERE table_schema = DATABASE() \
         AND table_name = 'tb_voucher_order' AND index_name = ? LIMIT 1";
    Ok(sqlx::query(sql).bind(KEY).fetch_optional(database).await?.is_some())
}

/// Lists second orders, and refuses if there are any.
async fn refuse_duplicates(
    database: &mut MySqlConnection,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<(), AdoptError> {
    if !has_table(database, "tb_voucher_order").await? {
        return Ok(());
    }
    let (count, first) = duplicates(database).await?;
    if count == 0 {
        return Ok(());
    }
    let more = count - i64::try_from(first.len()).unwrap_or(i64::MAX);
    first.into_iter().for_each(&mut *say);
    if more > 0 {
        say(format!("and {more} more; the first {DUPLICATES_SHOWN} are listed"));
    }
    Err(AdoptError::Duplicates(count))
}

/// Adds the unique key. Replicas without it may write second orders until it is there.
async fn add_key(
    database: &mut MySqlConnection,
    mode: AdoptMode,
    say: &mut (dyn FnMut(String) + Send),
) -> Result<(), AdoptError> {
    if let Some(name) = unique_key(database).await? {
        say(format!("the unique key {name} is there"));
        return Ok(());
    }
    for _ in 0..MAX_TRIES {
        if mode == AdoptMode::SetAside {
            let orders = set_aside_duplicates(database).await?;
            if orders > 0 {
                say(format!("set {orders} orders aside in tb_voucher_order_set_aside"));
            }
        }
        let key = format!("ADD UNIQUE KEY {KEY} (user_id, voucher_id)");
        match run(database, format!("ALTER TABLE tb_voucher_order {key}")).await {
            Ok(_) => {
                say(format!("added the unique key {KEY}"));
                return Ok(());
            }
            Err(error) if !is_duplicate(&error) => return Err(error.into()),
            Err(_) if mode == AdoptMode::Refuse => refuse_duplicates(database, say).await?,
            Err(_) => {}
        }
    }
    Err(AdoptError::StillArriving)
}

fn is_duplicate(error: &sqlx::Error) -> bool {
    let answer = error.as_database_error().and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
    answer.is_some_and(|answer| answer.number() == DUPLICATE_ENTRY)
}

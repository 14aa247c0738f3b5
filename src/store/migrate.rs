//! The schema: one statement a file, which may run twice, so that a step that was broken off
//! leaves nothing half done.

use std::io;
use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migration, Migrator};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{ConnectOptions, Connection, MySqlConnection};
use tokio::time::timeout;

use super::pools::{WELCOME, address};

/// How long to wait for somebody else who migrates, in seconds.
const TURN_S: u32 = 60;
/// How long everything may take, the turn included.
const WHOLE: Duration = Duration::from_mins(2);

static SERVICE: Migrator = sqlx::migrate!("./migrations");
/// The tables of the locks that live in the database, as the lock library has them.
static LOCKS: Migrator = sqlx::migrate!("./migrations/lock");
static LABORATORY: Migrator = sqlx::migrate!("./migrations/lab");

/// Brings the schema up to date; with `lab` also the tables of the unguarded sale. Replicas that
/// start together take turns (a named lock of the database). Returns how many steps were applied.
pub async fn migrate(url: &str, lab: bool) -> Result<usize, MigrateError> {
    let Ok(connecting) = timeout(WELCOME, address(url)?.connect()).await else {
        return Err(silence().into());
    };
    match timeout(WHOLE, run_all(connecting?, lab)).await {
        Ok(applied) => applied,
        Err(_) => Err(silence().into()),
    }
}

fn silence() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database does not answer"))
}

async fn run_all(mut connection: MySqlConnection, lab: bool) -> Result<usize, MigrateError> {
    let all: [&Migrator; 3] = [&SERVICE, &LOCKS, &LABORATORY];
    let sets = if lab { &all[..] } else { &all[..2] };
    take_turn(&mut connection).await?;
    let mut applied = 0;
    for set in sets {
        applied += run(set, &mut connection).await?;
    }
    // This ends the turn as well.
    connection.close().await?;
    Ok(applied)
}

/// Waits for others that migrate this database. sqlx's own `lock` waits with a negative time-out,
/// at which MariaDB answers NULL at once, so that everybody would go on.
async fn take_turn(connection: &mut MySqlConnection) -> Result<(), MigrateError> {
    let got = sqlx::query_scalar(
        "SELECT GET_LOCK(CONCAT('seckill-migrate:', LEFT(SHA2(DATABASE(), 256), 32)), ?)",
    );
    match got.bind(TURN_S).fetch_one(connection).await? {
        Some(1_i64) => Ok(()),
        _ => Err(MigrateError::Execute(sqlx::Error::Protocol(format!(
            "somebody else has been migrating this database for {TURN_S} s"
        )))),
    }
}

/// All sets share one history table, so each ignores the steps of the others.
async fn run(set: &Migrator, connection: &mut MySqlConnection) -> Result<usize, MigrateError> {
    let table = &set.table_name;
    connection.ensure_migrations_table(table).await?;
    // A step that was broken off is run again: each is one statement that may run twice, or that
    // says that it has been run before.
    let broken_off: Vec<i64> =
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success = FALSE")
            .fetch_all(&mut *connection)
            .await?;
    sqlx::query("DELETE FROM _sqlx_migrations WHERE success = FALSE")
        .execute(&mut *connection)
        .await?;
    let before = connection.list_applied_migrations(table).await?;
    for step in set.iter().filter(|step| step.migration_type.is_up_migration()) {
        match before.iter().find(|applied| applied.version == step.version) {
            Some(applied) if applied.checksum != step.checksum => {
                return Err(MigrateError::VersionMismatch(step.version));
            }
            Some(_) => {}
            None => match connection.apply(table, step).await {
                Err(error) if broken_off.contains(&step.version) && is_done(&error) => {
                    note(step, connection).await?;
                }
                applied => drop(applied?),
            },
        }
    }
    Ok(set.iter().filter(|step| before.iter().all(|a| a.version != step.version)).count())
}

/// Whether a step says that its columns or keys are there, or those gone that it removes.
fn is_done(error: &MigrateError) -> bool {
    let (MigrateError::ExecuteMigration(error, _) | MigrateError::Execute(error)) = error else {
        return false;
    };
    let answer = error.as_database_error().and_then(|e| e.try_downcast_ref::<MySqlDatabaseError>());
    answer.is_some_and(|answer| [1060, 1061, 1091].contains(&answer.number()))
}

/// Enters a step as done; its own entry may have been rolled back with its failure.
async fn note(step: &Migration, connection: &mut MySqlConnection) -> Result<(), MigrateError> {
    let query = sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES (?, ?, TRUE, ?, -1) ON DUPLICATE KEY UPDATE success = TRUE",
    );
    let query = query.bind(step.version).bind(&*step.description).bind(&*step.checksum);
    query.execute(connection).await?;
    Ok(())
}

//! The schema: one statement a file, which may run twice, so that a step that was broken off
//! leaves nothing half done.

use std::time::Duration;

use rust_embed::RustEmbed;
use sqlx::migrate::{Migrate, MigrateError, Migration, MigrationType};
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, SqlSafeStr as _};
use tokio::time::timeout;

use super::primary::{DatabaseServers, silence};

/// How long to wait for another process that migrates, in seconds.
const TURN_S: u32 = 60;
/// How long everything may take, the turn included.
const MIGRATION_TIMEOUT: Duration = Duration::from_mins(2);

/// The table of applied steps; sqlx's own name for it.
const TABLE: &str = "_sqlx_migrations";

/// The steps. (`sqlx::migrate!` has cargo build sqlx and its TLS a second time, for the compiler.)
#[derive(RustEmbed)]
#[folder = "migrations/"]
#[prefix = "migrations/"]
struct MigrationFiles;

const SERVICE: &str = "migrations/";
/// The tables of the locks that live in the database, as the lock library has them.
const LOCKS: &str = "migrations/lock/";
const LABORATORY: &str = "migrations/lab/";

/// Brings the schema up to date; with `lab` also the tables of the unguarded sale. Replicas that
/// start together take turns (a named lock of the database). Returns how many steps were applied.
pub async fn migrate(url: &str, lab: bool) -> Result<usize, MigrateError> {
    let connection = DatabaseServers::parse(url)?.connect().await?;
    match timeout(MIGRATION_TIMEOUT, run_all(connection, lab)).await {
        Ok(applied) => applied,
        Err(_) => Err(silence().into()),
    }
}

async fn run_all(mut connection: MySqlConnection, lab: bool) -> Result<usize, MigrateError> {
    let folders: &[&str] = if lab { &[SERVICE, LOCKS, LABORATORY] } else { &[SERVICE, LOCKS] };
    take_turn(&mut connection).await?;
    let mut applied = 0;
    for folder in folders {
        applied += run(&steps(folder)?, &mut connection).await?;
    }
    // This ends the turn as well.
    connection.close().await?;
    Ok(applied)
}

/// The steps of a folder, in the order of their numbers; not those of the folders in it.
fn steps(folder: &str) -> Result<Vec<Migration>, MigrateError> {
    let paths = MigrationFiles::iter();
    let names = paths.filter_map(|path| path.strip_prefix(folder).map(str::to_owned));
    let steps = names.filter(|name| !name.contains('/')).map(|name| step(folder, &name));
    let mut steps = steps.collect::<Result<Vec<_>, _>>()?;
    steps.sort();
    Ok(steps)
}

fn step(folder: &str, name: &str) -> Result<Migration, MigrateError> {
    let wrong = |what: &str| MigrateError::Source(format!("{folder}{name}: {what}").into());
    let (number, words) = name
        .strip_suffix(".sql")
        .and_then(|name| name.split_once('_'))
        .ok_or_else(|| wrong("not named <number>_<words>.sql"))?;
    let version = number.parse().map_err(|_| wrong("does not begin with a number"))?;
    let file = MigrationFiles::get(&format!("{folder}{name}")).ok_or_else(|| wrong("is gone"))?;
    let sql = String::from_utf8(file.data.into_owned()).map_err(|_| wrong("is not UTF-8"))?;
    Ok(Migration::new(
        version,
        words.replace('_', " ").into(),
        MigrationType::Simple,
        AssertSqlSafe(sql).into_sql_str(),
        false,
    ))
}

/// Waits for other processes that migrate this database. sqlx's own `lock` waits with a negative
/// time-out, which MariaDB answers with NULL at once.
pub(super) async fn take_turn(connection: &mut MySqlConnection) -> Result<(), MigrateError> {
    let got = sqlx::query_scalar(
        "SELECT GET_LOCK(CONCAT('seckill-migrate:', LEFT(SHA2(DATABASE(), 256), 32)), ?)",
    );
    match got.bind(TURN_S).fetch_one(connection).await? {
        Some(1_i64) => Ok(()),
        _ => Err(MigrateError::Execute(sqlx::Error::Protocol(format!(
            "another process has been migrating this database for {TURN_S} s"
        )))),
    }
}

/// All sets share one history table, so each ignores the steps of the others.
async fn run(set: &[Migration], connection: &mut MySqlConnection) -> Result<usize, MigrateError> {
    connection.ensure_migrations_table(TABLE).await?;
    // A step that was broken off is run again: each is one statement that may run twice, or that
    // says that it has been run before.
    let broken_off: Vec<i64> =
        sqlx::query_scalar("SELECT version FROM _sqlx_migrations WHERE success = FALSE")
            .fetch_all(&mut *connection)
            .await?;
    sqlx::query("DELETE FROM _sqlx_migrations WHERE success = FALSE")
        .execute(&mut *connection)
        .await?;
    let before = connection.list_applied_migrations(TABLE).await?;
    for step in set {
        match before.iter().find(|applied| applied.version == step.version) {
            Some(applied) if applied.checksum != step.checksum => {
                return Err(MigrateError::VersionMismatch(step.version));
            }
            Some(_) => {}
            None => match connection.apply(TABLE, step).await {
                Err(error) if broken_off.contains(&step.version) && is_done(&error) => {
                    note(step, connection).await?;
                }
                applied => drop(applied?),
            },
        }
    }
    Ok(set.iter().filter(|step| before.iter().all(|a| a.version != step.version)).count())
}

/// Whether a step says that its columns or keys are there, or those removed that it removes.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_gives_its_own_steps_by_number_with_the_checksums_that_databases_remember() {
        let service = steps(SERVICE).expect("steps");
        let versions: Vec<i64> = service.iter().map(|step| step.version).collect();
        assert!(versions.starts_with(&[1, 2, 3]) && versions.is_sorted(), "{versions:?}");
        assert!(versions.iter().all(|version| *version < 8000), "{versions:?}");
        let known = [0x06, 0x4d, 0x91, 0x65];
        assert_eq!((&*service[0].description, &service[0].checksum[..4]), ("users", &known[..]));
        for (folder, number) in [(LOCKS, 8001), (LABORATORY, 9001)] {
            assert_eq!(steps(folder).expect("steps")[0].version, number);
        }
    }

    #[test]
    fn a_file_that_is_no_step_is_named_with_what_is_wrong() {
        for (name, what) in [("users.sql", "<number>"), ("a_b.sql", "number"), ("1_b.sql", "gone")]
        {
            let error = step(SERVICE, name).expect_err("no step");
            let sentence = std::error::Error::source(&error).expect("a cause").to_string();
            assert!(sentence.contains(name) && sentence.contains(what), "{sentence}");
        }
    }
}

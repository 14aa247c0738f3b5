//! The schema: one DDL statement a file, so that a failed step leaves nothing half done.

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{Connection, MySqlConnection};

static SERVICE: Migrator = sqlx::migrate!("./migrations");
static LABORATORY: Migrator = sqlx::migrate!("./migrations/lab");

/// Brings the schema up to date; with `lab` also the tables of the unguarded sale. Replicas that
/// start together take turns (a named lock of the database). Returns how many steps were applied.
pub async fn migrate(url: &str, lab: bool) -> Result<usize, MigrateError> {
    let mut connection = MySqlConnection::connect(url).await?;
    let mut applied = 0;
    let sets: &[&Migrator] = if lab { &[&SERVICE, &LABORATORY] } else { &[&SERVICE] };
    connection.lock().await?;
    for set in sets {
        applied += run(set, &mut connection).await?;
    }
    connection.unlock().await?;
    connection.close().await?;
    Ok(applied)
}

/// Both sets share one history table, so each ignores the steps of the other.
async fn run(set: &Migrator, connection: &mut MySqlConnection) -> Result<usize, MigrateError> {
    let table = &set.table_name;
    connection.ensure_migrations_table(table).await?;
    let before = connection.list_applied_migrations(table).await?;
    for step in set.iter().filter(|step| step.migration_type.is_up_migration()) {
        match before.iter().find(|applied| applied.version == step.version) {
            Some(applied) if applied.checksum != step.checksum => {
                return Err(MigrateError::VersionMismatch(step.version));
            }
            Some(_) => {}
            None => {
                connection.apply(table, step).await?;
            }
        }
    }
    Ok(set.iter().filter(|step| before.iter().all(|a| a.version != step.version)).count())
}

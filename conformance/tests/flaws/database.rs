//! SQL of the test's own, and the stock that locks protect.

use conformance::protocol::Setup;
use distlock::LockKind;
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, SqlSafeStr};
use tokio::runtime::{Builder, Runtime};

use crate::scene::servers;

/// A connection; everything blocks.
pub(crate) struct Sql {
    runtime: Runtime,
    connection: MySqlConnection,
}

/// Where the database is.
pub(crate) fn url() -> String {
    servers().addresses(LockKind::MysqlTable).mysql.expect("it lives there")
}

/// The contender knows the database as well.
pub(crate) fn with_a_database(setup: &mut Setup) {
    setup.addresses.mysql = Some(url());
}

impl Sql {
    pub(crate) fn open_at(url: &str) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        let connection = runtime.block_on(MySqlConnection::connect(url)).expect("a database");
        Self { runtime, connection }
    }

    /// Runs a statement. Every text that is written into it is a name of a test's own.
    pub(crate) fn try_run(&mut self, sql: &str) -> Result<u64, sqlx::Error> {
        let outcome =
            sqlx::raw_sql(AssertSqlSafe(sql).into_sql_str()).execute(&mut self.connection);
        self.runtime.block_on(outcome).map(|outcome| outcome.rows_affected())
    }

    #[track_caller]
    pub(crate) fn run(&mut self, sql: &str) {
        self.try_run(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The first number of the first row.
    #[track_caller]
    pub(crate) fn number(&mut self, sql: &str) -> i64 {
        let row = sqlx::query_scalar(AssertSqlSafe(sql).into_sql_str());
        let number = self.runtime.block_on(row.fetch_one(&mut self.connection));
        number.unwrap_or_else(|error| panic!("{sql}: {error}"))
    }
}

/// Puts `units` units into the stock of that name.
pub(crate) fn put_into_stock(name: &str, units: i64) -> Sql {
    put_into_stock_at(&url(), name, units)
}

/// Puts `units` units into the stock of that name in the database at `url`.
pub(crate) fn put_into_stock_at(url: &str, name: &str, units: i64) -> Sql {
    let mut sql = Sql::open_at(url);
    sql.run(
        "CREATE TABLE IF NOT EXISTS stock \
         (name VARBINARY(512) PRIMARY KEY, units BIGINT NOT NULL)",
    );
    sql.run(&format!("INSERT INTO stock VALUES ('{name}', {units})"));
    sql
}

pub(crate) fn left_in_stock(sql: &mut Sql, name: &str) -> i64 {
    sql.number(&format!("SELECT units FROM stock WHERE name = '{name}'"))
}

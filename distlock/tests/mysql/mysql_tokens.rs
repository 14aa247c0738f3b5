//! Fencing on a real database: the token issuer, the reaper that must not set it back, the fence at
//! the resource, and their tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::support::mysql::{
    OwnDb, locks_on, number, own, plain_pool, run, server, server_at, try_now,
};
use crate::support::{eventually, fresh_name};
use distlock::mysql::{FenceError, MySqlTokens, SCHEMA, ensure_schema, raise_fence};
use distlock::{
    Acquisition, Backends, Fencing, Guarantees, LockError, LockKind, LockName, Locker, Locks,
    MySqlServer, Release, Request, Token, TokenIssuer, locker,
};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Connection, MySqlConnection, MySqlPool, Row};
use testbed::{Action, Command, Proxy, Times};
use tokio::task::JoinSet;

async fn token_of(tokens: &MySqlTokens, name: &LockName) -> Token {
    tokens.next(name).await.expect("a token")
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_name_rise_strictly_over_all_processes() {
    let (name, other) = (fresh_name(), fresh_name());
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let tokens = MySqlTokens::new(&server().await);
        for _ in 0..4 {
            let (tokens, name) = (tokens.clone(), name.clone());
            tasks.spawn(async move {
                let mut seen = Vec::new();
                for _ in 0..10 {
                    seen.push(token_of(&tokens, &name).await);
                }
                assert!(seen.is_sorted_by(|one, next| one < next), "{seen:?}");
                seen
            });
        }
    }
    let mut all: Vec<_> = tasks.join_all().await.concat();
    all.sort();
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "one was issued twice: {all:?}");
    let tokens = MySqlTokens::new(&server().await);
    assert!(token_of(&tokens, &name).await > *all.last().expect("tokens"));
    let first = token_of(&tokens, &other).await;
    assert!(token_of(&tokens, &other).await > first);
}

/// Counts rows of a table that has only this test's names.
async fn rows(pool: &MySqlPool, sql: &'static str) -> i64 {
    sqlx::query_scalar(sql).fetch_one(pool).await.expect(sql)
}

/// A database of its own on the shared server, with a pool as the driver makes it.
async fn empty_database(name: &str) -> MySqlServer {
    own().database.create_database(name).expect("a database");
    server_at(&own().database.url(name), 8).await
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_continue_to_rise_when_their_rows_are_reaped_at_any_moment() {
    let server = empty_database("reaped").await;
    let tokens = MySqlTokens::new(&server);
    let locks = locks_on(LockKind::MysqlTable, &server);
    let names: Vec<_> = std::iter::repeat_with(fresh_name).take(3).collect();
    let (mut tasks, reaped) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for name in &names {
        let (tokens, locks, name) = (tokens.clone(), locks.clone(), name.clone());
        let reaped = Arc::clone(&reaped);
        tasks.spawn(async move {
            let (mut last, mut last_owned) = (Token(0), Token(0));
            let mut round = 0;
            // Often, and on as long as the reaper has hardly had a turn.
            while round < 40 || (round < 4_000 && reaped.load(Ordering::Relaxed) <= 20) {
                round += 1;
                let token = token_of(&tokens, &name).await;
                assert!(token > last, "{token} after {last}");
                last = token;
                let guard = locks.lock(&name, &try_now()).await.expect("the lock");
                let token = guard.token().expect("a token");
                assert!(token > last_owned, "{token} after {last_owned}");
                last_owned = token;
                assert_eq!(guard.release().await.expect("a release"), Release::Released);
            }
        });
    }
    while !tasks.is_empty() {
        let gone = server.reap(Duration::ZERO, 100).await.expect("an answer");
        reaped.fetch_add(gone, Ordering::Relaxed);
        while let Some(done) = tasks.try_join_next() {
            done.expect("tokens that rise");
        }
    }
    let reaped = reaped.load(Ordering::Relaxed);
    assert!(reaped > 20, "only {reaped} rows were reaped");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_row_waits_for_the_floor_that_a_reaper_is_raising() {
    let server = empty_database("raised").await;
    let (tokens, locks) = (MySqlTokens::new(&server), locks_on(LockKind::MysqlTable, &server));
    let mut reaper = server.pool().begin().await.expect("a transaction");
    let raise = sqlx::query("UPDATE lock_floors SET token = 900");
    raise.execute(&mut *reaper).await.expect("an answer");
    let minted = tokio::spawn(async move { token_of(&tokens, &fresh_name()).await });
    let owned = tokio::spawn(async move {
        locks.lock(&fresh_name(), &try_now()).await.expect("the lock").token()
    });
    let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                 WHERE DB = 'raised' AND INFO LIKE 'INSERT INTO lock_%'";
    eventually("rows wait to be made", async || rows(server.pool(), waits).await == 2).await;
    reaper.commit().await.expect("an answer");
    assert_eq!(minted.await.expect("no panic"), Token(901));
    assert_eq!(owned.await.expect("no panic"), Some(Token(901)));
}

#[tokio::test(flavor = "multi_thread")]
async fn old_rows_are_reaped_a_bounded_number_at_a_time_and_held_ones_stay() {
    let server = empty_database("old").await;
    let tokens = MySqlTokens::new(&server);
    let (table, row) =
        (locks_on(LockKind::MysqlTable, &server), locks_on(LockKind::MysqlRow, &server));
    let held = fresh_name();
    let in_table = table.lock(&held, &try_now()).await.expect("a lock");
    let in_row = row.lock(&held, &try_now()).await.expect("a lock");
    for _ in 0..6 {
        let name = fresh_name();
        token_of(&tokens, &name).await;
        for locks in [&table, &row] {
            let guard = locks.lock(&name, &try_now()).await.expect("a lock");
            guard.release().await.expect("a release");
        }
    }
    assert_eq!(server.reap(Duration::from_mins(1), 100).await.expect("an answer"), 0, "too young");
    let first = server.reap(Duration::ZERO, 3).await.expect("an answer");
    assert!((7..=9).contains(&first), "{first}: of three tables three rows were to be looked at");
    let mut reaped = first;
    for _ in 0..3 {
        reaped += server.reap(Duration::ZERO, 3).await.expect("an answer");
    }
    assert_eq!(reaped, 18);
    assert_eq!(rows(server.pool(), "SELECT COUNT(*) FROM lock_holders").await, 1);
    assert_eq!(rows(server.pool(), "SELECT COUNT(*) FROM lock_rows").await, 1);
    assert_eq!(rows(server.pool(), "SELECT COUNT(*) FROM lock_tokens").await, 0);
    for guard in [in_table, in_row] {
        assert_eq!(guard.release().await.expect("a release"), Release::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_does_not_wait_for_a_row_that_is_held() {
    let server = empty_database("held").await;
    let locks = locks_on(LockKind::MysqlRow, &server);
    let held = locks.lock(&fresh_name(), &try_now()).await.expect("a lock");
    for _ in 0..6 {
        let guard = locks.lock(&fresh_name(), &try_now()).await.expect("a lock");
        guard.release().await.expect("a release");
    }
    // The server knows that the table is small: it would rather read it whole than by its key.
    run(server.pool(), "ANALYZE TABLE lock_rows").await;
    assert_eq!(server.reap(Duration::ZERO, 100).await.expect("an answer"), 6);
    assert_eq!(held.release().await.expect("a release"), Release::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reaper_locks_few_free_rows_at_a_time() {
    let direct = empty_database("batches").await;
    let proxy = Proxy::before(own().database.addr()).expect("a port");
    let url = proxy.instead_of(own().database.addr(), &own().database.url("batches"));
    let locks = locks_on(LockKind::MysqlRow, &direct);
    let names: Vec<_> = (0..64).map(|_| fresh_name()).collect();
    for name in &names {
        let guard = locks.lock(name, &try_now()).await.expect("a lock");
        guard.release().await.expect("a release");
    }
    let other = server_at(&url, 2).await;
    let held_up =
        proxy.arm(Command::sql("DELETE FROM lock_rows"), Action::HoldRequest, Times::Next(1));
    let reaping = tokio::spawn(async move { other.reap(Duration::ZERO, 100).await });
    eventually("it has locked the rows of a batch", async || held_up.fired() == 1).await;
    let mut busy = 0;
    for name in &names {
        let taken = locks.try_lock(name, try_now().lease).await.expect("an answer");
        busy += usize::from(taken.is_none());
    }
    held_up.release();
    assert!((1..=16).contains(&busy), "{busy} of {} were busy", names.len());
    // A row that was in use just then is left to the next time.
    let deleted = reaping.await.expect("no panic").expect("an answer");
    assert!(deleted >= 16, "{deleted}");
}

#[tokio::test(flavor = "multi_thread")]
async fn new_rows_cause_old_ones_to_be_reaped() {
    let server = empty_database("unasked").await;
    let tokens = MySqlTokens::new(&server);
    let old = "INSERT INTO lock_tokens VALUES \
               ('old', 4000, UTC_TIMESTAMP(6) - INTERVAL 61 MINUTE), \
               ('young', 5000, UTC_TIMESTAMP(6) - INTERVAL 59 MINUTE)";
    run(server.pool(), old).await;
    for _ in 0..128 {
        token_of(&tokens, &fresh_name()).await;
    }
    let left = "SELECT COUNT(*) FROM lock_tokens WHERE name IN ('old', 'young')";
    eventually("the old one is gone", async || rows(server.pool(), left).await == 1).await;
    let name = LockName::new("old").expect("a name");
    assert_eq!(token_of(&tokens, &name).await, Token(4001));
    assert!(
        number(server.pool(), "SELECT 1 FROM lock_tokens WHERE name <> ?", &name).await.is_some()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_killed_forgets_no_token() {
    let own = tokio::task::block_in_place(OwnDb::start);
    let (server, name) = (server_at(&own.url(), 4).await, fresh_name());
    let tokens = MySqlTokens::new(&server);
    let mut last = Token(0);
    for _ in 0..3 {
        for _ in 0..5 {
            last = token_of(&tokens, &name).await;
        }
        own.database.kill().expect("a dead server");
        let error = tokens.next(&name).await.expect_err("nobody is there");
        assert!(matches!(error, LockError::NoConnection(_) | LockError::Backend(_)), "{error}");
        own.database.restart().expect("a server");
        assert!(token_of(&tokens, &name).await > last);
    }
}

/// A kind that has no tokens of its own.
struct TokenlessLocker(Arc<dyn Locker>);

impl Locker for TokenlessLocker {
    fn name(&self) -> &'static str {
        "tokenless"
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { fencing: Fencing::Optional, ..self.0.guarantees() }
    }

    fn begin(&self, request: Request) -> Box<dyn Acquisition> {
        self.0.begin(request)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_without_tokens_gets_one_of_the_mint_for_each_ownership() {
    let (server, name) = (server().await, fresh_name());
    let backends = Backends { mysql: Some(server.clone()), ..Backends::default() };
    let named = locker(LockKind::MysqlNamed, &backends).expect("a locker");
    let locks = Locks::new(Arc::new(TokenlessLocker(named)));
    let refused = locks.lock(&name, &try_now().fenced()).await;
    assert!(matches!(refused, Err(LockError::Unsupported(_))), "without a mint");
    let locks = locks.with_token_issuer(Arc::new(MySqlTokens::new(&server)));
    let mut last = None;
    for _ in 0..3 {
        let guard = locks.lock(&name, &try_now().fenced()).await.expect("the lock");
        assert!(guard.token() > last, "{:?} after {last:?}", guard.token());
        last = guard.token();
        guard.release().await.expect("a release");
        let guard = locks.lock(&name, &try_now()).await.expect("the lock");
        assert_eq!(guard.token(), None, "where nobody asks for one, none is made");
        guard.release().await.expect("a release");
    }
}

const STOCK: &str = "CREATE TABLE IF NOT EXISTS fenced_stock \
    (name VARBINARY(512) NOT NULL PRIMARY KEY, units INT NOT NULL)";

async fn read(connection: &mut MySqlConnection, name: &LockName) -> i32 {
    let read = sqlx::query("SELECT units FROM fenced_stock WHERE name = ?");
    let read = read.bind(name.as_str().as_bytes()).fetch_one(connection).await;
    read.expect("a row").get(0)
}

async fn write(connection: &mut MySqlConnection, name: &LockName, units: i32) {
    let write = sqlx::query("UPDATE fenced_stock SET units = ? WHERE name = ?");
    let write = write.bind(units).bind(name.as_str().as_bytes());
    write.execute(connection).await.expect("an answer");
}

/// A reads, its lease ends, B reads, A writes, B writes. Returns which of them sold, and the stock
/// left of ten.
async fn sell_twice(shown_at_the_read: bool) -> (bool, bool, i32) {
    let pool = plain_pool(4).await;
    let (name, first, second) = (fresh_name(), Token(7), Token(8));
    run(&pool, STOCK).await;
    let stock = sqlx::query("INSERT INTO fenced_stock VALUES (?, 10)");
    stock.bind(name.as_str().as_bytes()).execute(&pool).await.expect("a row");
    let mut stale = pool.acquire().await.expect("a connection");
    let mut holder = pool.acquire().await.expect("a connection");
    let mut seen = Vec::new();
    for (connection, token) in [(&mut stale, first), (&mut holder, second)] {
        if shown_at_the_read {
            raise_fence(connection, &name, token).await.expect("the highest so far");
        }
        seen.push(read(connection, &name).await);
    }
    let mut sold = Vec::new();
    for ((connection, token), seen) in [(stale, first), (holder, second)].into_iter().zip(seen) {
        let mut connection = connection;
        let mut transaction = connection.begin().await.expect("a transaction");
        match raise_fence(&mut transaction, &name, token).await {
            Ok(()) => {
                write(&mut transaction, &name, seen - 1).await;
                transaction.commit().await.expect("an answer");
                sold.push(true);
            }
            Err(FenceError::Stale { highest }) => {
                assert!(highest > token);
                transaction.rollback().await.expect("an answer");
                sold.push(false);
            }
            Err(error) => panic!("{error}"),
        }
    }
    let mut connection = pool.acquire().await.expect("a connection");
    (sold[0], sold[1], read(&mut connection, &name).await)
}

#[tokio::test]
async fn a_stale_reader_is_refused_if_tokens_are_shown_at_the_read_as_well() {
    assert_eq!(sell_twice(true).await, (false, true, 9));
    // Checked at the write alone, two are sold and one is missing.
    assert_eq!(sell_twice(false).await, (true, true, 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn shown_first_in_a_transaction_the_fence_keeps_others_out_to_its_end() {
    let pool = plain_pool(8).await;
    let name = fresh_name();
    let mut first = pool.begin().await.expect("a transaction");
    raise_fence(&mut first, &name, Token(5)).await.expect("a new resource");
    let others: Vec<_> = [6, 7, 4]
        .map(|token| {
            let (pool, name) = (pool.clone(), name.clone());
            tokio::spawn(async move {
                let mut transaction = pool.begin().await.expect("a transaction");
                let outcome = raise_fence(&mut transaction, &name, Token(token)).await;
                transaction.commit().await.expect("an answer");
                outcome
            })
        })
        .into();
    let waits = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                 WHERE INFO LIKE 'INSERT INTO lock_fence%'";
    eventually("all wait", async || rows(&pool, waits).await == 3).await;
    first.commit().await.expect("an answer");
    let mut accepted = 0;
    for other in others {
        match other.await.expect("no panic") {
            Ok(()) => accepted += 1,
            Err(FenceError::Stale { highest }) => assert!(highest > Token(4)),
            Err(error) => panic!("{error}"),
        }
    }
    assert!((1..=2).contains(&accepted), "{accepted}: 4 is stale, 7 never is");
    let mut connection = pool.acquire().await.expect("a connection");
    raise_fence(&mut connection, &name, Token(7)).await.expect("one's own token again");
    let stale = raise_fence(&mut connection, &name, Token(6)).await.expect_err("7 was here");
    assert!(matches!(stale, FenceError::Stale { highest: Token(7) }), "{stale}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_is_made_once_by_many_at_a_time_and_each_step_is_one_statement() {
    own().database.create_database("schema_of_many").expect("a database");
    let url = own().database.url("schema_of_many");
    let pool = MySqlPoolOptions::new().max_connections(8).connect(&url).await.expect("a pool");
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let pool = pool.clone();
        tasks.spawn(async move { ensure_schema(&pool).await });
    }
    for outcome in tasks.join_all().await {
        outcome.expect("the tables");
    }
    // Without its floors nothing is granted: a token could go back.
    let server = MySqlServer::new(pool);
    run(server.pool(), "UPDATE lock_floors SET token = 70").await;
    ensure_schema(server.pool()).await.expect("the tables");
    let tokens = MySqlTokens::new(&server);
    assert_eq!(token_of(&tokens, &fresh_name()).await, Token(71), "it was not set back");
    run(server.pool(), "DELETE FROM lock_floors").await;
    let error = tokens.next(&fresh_name()).await.expect_err("no floor");
    assert!(error.to_string().contains("lock_floors"), "{error}");
    let locks = locks_on(LockKind::MysqlTable, &server);
    let error = locks.lock(&fresh_name(), &try_now()).await.expect_err("no floor");
    assert!(error.to_string().contains("lock_floors"), "{error}");
    for (name, sql) in SCHEMA {
        let code = sql.lines().filter(|line| !line.trim_start().starts_with("--"));
        assert_eq!(code.collect::<String>().matches(';').count(), 1, "{name}");
    }
}

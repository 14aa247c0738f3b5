//! Locks seen from outside, in a database. What every kind shows is in the crate conformance.

use crate::support::mysql::{locks_on, own, server, try_now, waiting};
use crate::support::{eventually, fresh_name};
use distlock::mysql::MySqlServerOptions;
use distlock::{LockError, LockKind, LockName, LockState, LockWaiters, Locks, MySqlServer};
use sqlx::{Connection, Executor, MySqlConnection, Row};
use std::time::{Duration, Instant};

/// The database of this test program, for `user:password`.
fn server_for(login: &str) -> MySqlServer {
    let own = own().url();
    let (_, place) = own.split_once('@').expect("a login");
    let (url, acquire) = (format!("mysql://{login}@{place}"), Duration::from_secs(4));
    let options = MySqlServerOptions { url, pool_size: 2, acquire };
    MySqlServer::with_own_pool(&options).expect("an address")
}

async fn names(locks: &Locks, prefix: &str, limit: usize) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), None);
    loop {
        let page = locks.list(prefix, cursor, limit).await.expect("a page");
        assert!(page.locks.len() <= limit, "{page:?}");
        names.extend(page.locks.into_iter().map(|lock| lock.name));
        cursor = page.next;
        if cursor.is_none() {
            return names;
        }
    }
}

#[tokio::test]
async fn rows_are_listed_in_pages_and_free_ones_are_left_out() {
    let locks = locks_on(LockKind::MysqlTable, &server().await);
    let prefix = format!("{}_100%", fresh_name());
    let mut guards = Vec::new();
    for number in 10..35 {
        let name = LockName::new(format!("{prefix}{number}")).expect("a name");
        guards.push(locks.lock(&name, &try_now()).await.expect("the lock"));
    }
    let decoy = LockName::new(prefix.replace('_', "x")).expect("a name");
    let _decoy = locks.lock(&decoy, &try_now()).await.expect("the lock");
    let wanted: Vec<_> = (10..35).map(|number| format!("{prefix}{number}")).collect();
    for limit in [1, 10, 25, 1000] {
        assert_eq!(names(&locks, &prefix, limit).await, wanted, "pages of {limit}");
    }
    guards.pop().expect("a guard").release().await.expect("a release");
    assert_eq!(names(&locks, &prefix, 10).await, wanted[..24]);
}

#[tokio::test]
async fn the_time_since_a_row_was_taken_is_shown_and_a_re_entry_does_not_restart_it() {
    let (locks, name) = (locks_on(LockKind::MysqlTable, &server().await), fresh_name());
    let held_for = async || {
        let seen = locks.inspect(&name).await.expect("an answer");
        let [holder] = seen.state.holders() else { panic!("{seen:?}") };
        holder.held_for.expect("the server stores it")
    };
    let asked = Instant::now();
    let guard = locks.lock(&name, &try_now()).await.expect("the lock");
    let taken = Instant::now();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let owner = guard.owner().clone();
    let again = locks.lock_as(owner, &name, &try_now()).await.expect("the lock");
    let (at_least, shown) = (taken.elapsed(), held_for().await);
    assert!(at_least <= shown && shown <= asked.elapsed(), "{at_least:?} {shown:?}");
    for guard in [again, guard] {
        guard.release().await.expect("a release");
    }
    let retaken = Instant::now();
    let guard = locks.lock(&name, &try_now()).await.expect("the lock");
    assert!(held_for().await <= retaken.elapsed(), "an owner before it counts");
    guard.release().await.expect("a release");
}

#[tokio::test]
async fn a_database_without_tables_has_no_locks_and_gets_no_tables() {
    own().database.create_database("bare").expect("a database");
    let (url, acquire) = (own().database.url("bare"), Duration::from_secs(4));
    let options = MySqlServerOptions { url, pool_size: 2, acquire };
    let server = MySqlServer::with_own_pool(&options).expect("an address");
    for kind in [LockKind::MysqlTable, LockKind::MysqlRow] {
        let locks = locks_on(kind, &server);
        let seen = locks.inspect(&fresh_name()).await.expect("an answer");
        assert_eq!(seen.state, LockState::Free, "{kind}");
        assert!(names(&locks, "lock:", 10).await.is_empty(), "{kind}");
    }
    let tables = sqlx::query("SHOW TABLES").fetch_all(server.pool()).await.expect("an answer");
    assert!(tables.is_empty(), "{} tables", tables.len());
}

#[tokio::test]
async fn named_locks_cannot_be_listed_and_the_reason_is_reported() {
    let locks = locks_on(LockKind::MysqlNamed, &server().await);
    let refused = locks.list("lock:", None, 10).await.expect_err("there is no list");
    assert!(matches!(refused, LockError::Unsupported(why) if why.contains("hashes")), "{refused}");
}

/// The server makes its lists anew only if they were not read for 100 ms.
#[tokio::test]
async fn lists_that_another_reader_keeps_old_show_no_holder() {
    if !own().database.version().contains("MariaDB") {
        return println!("MySQL has other lists, which are always new");
    }
    let (locks, others) = (server().await, server().await);
    let pool = others.pool().clone();
    let [locks, others] = [locks, others].map(|server| locks_on(LockKind::MysqlRow, &server));
    let name = fresh_name();
    let guard = locks.lock(&name, &try_now()).await.expect("the lock");
    let wanted = name.clone();
    let waits = tokio::spawn(async move { others.lock(&wanted, &waiting()).await });
    let deadline = Instant::now() + Duration::from_secs(20);
    while locks.inspect(&name).await.expect("an answer").state.holders().is_empty() {
        assert!(Instant::now() < deadline, "the holder is not shown");
    }
    let reader = tokio::spawn(async move {
        let mut session = pool.acquire().await.expect("a connection");
        loop {
            let lists = "SELECT * FROM information_schema.INNODB_LOCKS";
            sqlx::query(lists).fetch_all(&mut *session).await.expect("the lists");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    guard.release().await.expect("a release");
    waits.await.expect("no panic").expect("the lock").release().await.expect("a release");

    let seen = locks.inspect(&name).await.expect("an answer");
    assert!(seen.state.holders().is_empty(), "{seen:?}");
    reader.abort();
}

#[tokio::test]
async fn names_and_owners_that_are_not_text_are_shown_as_damaged_and_end_no_list() {
    let (server, prefix) = (server().await, fresh_name());
    let odd = |end: &[u8]| [prefix.as_str().as_bytes(), end].concat();
    let owners = [(odd(b"\x80"), &b"owner"[..]), (odd(b"\xff"), b"owner"), (odd(b"1"), b"\xff")];
    for (name, owner) in owners {
        let insert = "INSERT INTO lock_holders \
            (name, owner, host, pid, holds, token, acquired_at, expires_at) \
            VALUES (?, ?, 'h', 1, '', 1, UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)";
        let query = sqlx::query(insert).bind(name.clone()).bind(owner);
        query.execute(server.pool()).await.expect("a lock");
        let row = sqlx::query("INSERT INTO lock_rows VALUES (?, UTC_TIMESTAMP(6))").bind(name);
        row.execute(server.pool()).await.expect("a row");
    }
    let locks = locks_on(LockKind::MysqlTable, &server);
    let shown = ["1", "\\x80", "\\xff"].map(|end| format!("{prefix}{end}"));
    for limit in [1, 2, 1000] {
        assert_eq!(names(&locks, prefix.as_str(), limit).await, shown, "pages of {limit}");
    }
    let own = LockName::new(format!("{prefix}1")).expect("a name");
    let seen = locks.inspect(&own).await.expect("an answer");
    assert!(matches!(seen.state, LockState::Damaged(_)), "{seen:?}");
    let rows = locks_on(LockKind::MysqlRow, &server);
    for limit in [1, 2] {
        let listed = names(&rows, prefix.as_str(), limit).await;
        assert!(listed.ends_with(&shown[1..]), "pages of {limit}: {listed:?}");
    }
}

/// A connection of its own, and its number.
async fn connection() -> (MySqlConnection, u64) {
    let mut connection = MySqlConnection::connect(&own().url()).await.expect("a connection");
    let id = connection.fetch_one("SELECT CONNECTION_ID()").await.expect("a number").get(0);
    connection.execute("START TRANSACTION").await.expect("a transaction");
    (connection, id)
}

/// Locks that row, or waits for it.
async fn lock_row(connection: &mut MySqlConnection, name: &LockName) {
    let lock = sqlx::query("SELECT name FROM lock_rows WHERE name = ? FOR UPDATE");
    lock.bind(name.as_str().as_bytes()).fetch_one(connection).await.expect("the row");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_waits_for_another_row_and_waiters_behind_waiters_are_shown() {
    let server = server().await;
    let [first, second] = [fresh_name(), fresh_name()];
    for name in [&first, &second] {
        let row = sqlx::query("INSERT INTO lock_rows VALUES (?, UTC_TIMESTAMP(6))");
        row.bind(name.as_str().as_bytes()).execute(server.pool()).await.expect("a row");
    }
    let ((mut one, holder), (mut other, _)) = (connection().await, connection().await);
    lock_row(&mut one, &first).await;
    lock_row(&mut other, &second).await;
    let mut waiters = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let (mut waiter, id) = connection().await;
        waiters.push(format!("connection {id}"));
        let first = first.clone();
        tasks.push(tokio::spawn(async move { lock_row(&mut waiter, &first).await }));
    }
    tasks.push(tokio::spawn(async move { lock_row(&mut one, &second).await }));
    let locks = locks_on(LockKind::MysqlRow, &server);
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        // Another test keeps the lists old for up to 10 s.
        let seen = locks.inspect(&first).await.expect("an answer");
        let is_held = seen.state.holders().iter().any(|it| it.id == holder.to_string());
        if let LockWaiters::Unordered(shown) | LockWaiters::Ordered(shown) = &seen.waiters
            && is_held
            && shown.len() == 3
            && shown.iter().all(|waiter| waiters.contains(&waiter.id))
        {
            break;
        }
        assert!(Instant::now() < deadline, "holder {holder}, waiters {waiters:?}: {seen:?}");
    }
    drop(other);
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn mysql_shows_the_holder_of_a_row_without_waiters_and_its_waiters_in_their_order() {
    let server = server().await;
    if own().database.version().contains("MariaDB") {
        return println!("MariaDB shows the holder of a row only while another waits");
    }
    // The longest name, of characters that SQL writes in a way of its own.
    let name = fresh_name().to_string() + "'\\%ü";
    let name = LockName::new(name.clone() + &"x".repeat(LockName::MAX_BYTES - name.len()));
    let name = name.expect("a name");
    let row = sqlx::query("INSERT INTO lock_rows VALUES (?, UTC_TIMESTAMP(6))");
    row.bind(name.as_str().as_bytes()).execute(server.pool()).await.expect("a row");
    let locks = locks_on(LockKind::MysqlRow, &server);
    assert_eq!(locks.inspect(&name).await.expect("an answer").state, LockState::Free);

    let (mut holder, id) = connection().await;
    lock_row(&mut holder, &name).await;
    let mut connections = vec![connection().await, connection().await, connection().await];
    // The last connection waits first.
    let mut queue = Vec::new();
    let mut tasks = Vec::new();
    while let Some((mut waiter, id)) = connections.pop() {
        let wanted = name.clone();
        tasks.push(tokio::spawn(async move { lock_row(&mut waiter, &wanted).await }));
        queue.push(format!("connection {id}").into());
        eventually("it waits", async || {
            let seen = locks.inspect(&name).await.expect("an answer");
            seen.waiters == LockWaiters::Ordered(queue.clone())
        })
        .await;
    }
    let seen = locks.inspect(&name).await.expect("an answer");
    let [shown] = seen.state.holders() else { panic!("{seen:?}") };
    assert_eq!(shown.id, id.to_string());
    assert_eq!(names(&locks, name.as_str(), 10).await, [name.as_str()]);
    for task in &tasks {
        task.abort();
    }
    assert!(locks.force_release(&name, &shown.id).await.expect("an answer"));
    eventually("it is free", async || {
        locks.inspect(&name).await.expect("an answer").state == LockState::Free
    })
    .await;
}

#[tokio::test]
async fn a_row_is_unknown_to_a_user_without_the_right_and_the_right_is_named() {
    let server = server().await;
    for statement in
        ["CREATE USER IF NOT EXISTS 'rowless'@'%'", "GRANT SELECT ON locks.* TO 'rowless'@'%'"]
    {
        sqlx::raw_sql(statement).execute(server.pool()).await.expect("a user");
    }
    let (locks, name) = (locks_on(LockKind::MysqlRow, &server), fresh_name());
    let guard = locks.lock(&name, &try_now()).await.expect("the lock");
    let is_mariadb = own().database.version().contains("MariaDB");
    let wanted = if is_mariadb { "the right PROCESS" } else { "the right SELECT is missing on" };
    let seen = locks_on(LockKind::MysqlRow, &server_for("rowless")).inspect(&name).await;
    let LockState::Unknown { reason, is_final } = seen.expect("an answer").state else {
        panic!("it is known")
    };
    assert!(reason.starts_with(wanted) && is_final, "{reason}");
    guard.release().await.expect("a release");
}

#[tokio::test]
async fn a_user_without_the_right_to_end_the_connection_is_denied_and_the_lock_stays() {
    let server = server().await;
    for statement in [
        "CREATE USER IF NOT EXISTS 'reader'@'%'",
        "GRANT SELECT ON locks.* TO 'reader'@'%'",
        "GRANT PROCESS ON *.* TO 'reader'@'%'",
    ] {
        sqlx::raw_sql(statement).execute(server.pool()).await.expect("a user");
    }
    let readers = server_for("reader");
    let holders = locks_on(LockKind::MysqlNamed, &server);
    let name = fresh_name();
    let guard = holders.lock(&name, &try_now()).await.expect("the lock");

    let readers = locks_on(LockKind::MysqlNamed, &readers);
    let seen = readers.inspect(&name).await.expect("an answer");
    let holder = seen.state.holders().first().expect("a holder").id.clone();
    let refused = readers.force_release(&name, &holder).await;
    assert!(matches!(refused, Err(LockError::AccessDenied(_))), "{refused:?}");
    assert_eq!(holders.inspect(&name).await.expect("an answer").state, seen.state);
    guard.release().await.expect("a release");
}

#[tokio::test]
async fn a_login_that_is_refused_is_denied_access() {
    let server = server_for("reader-of-none");
    let seen = locks_on(LockKind::MysqlNamed, &server).inspect(&fresh_name()).await;
    assert!(matches!(seen, Err(LockError::AccessDenied(_))), "{seen:?}");
}

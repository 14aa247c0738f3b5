//! What happens to chosen commands of MariaDB, on connections of the newer and the older kind.

use std::io::ErrorKind;
use std::io::Read as _;
use std::time::Duration;

use testbed::{Action, Command, Proxy, Times};

use crate::mysql_client::Client;
use crate::{SERVERS, await_that};

fn before_database() -> Proxy {
    Proxy::before(SERVERS.database.addr()).unwrap()
}

/// A connection with a transaction that has written a row, before its COMMIT.
fn about_to_commit(proxy: &Proxy, table: &str, has_no_eof: bool) -> Client {
    let mut client = Client::through(proxy, has_no_eof);
    client.query(&format!("CREATE TABLE IF NOT EXISTS {table} (id VARCHAR(20))"));
    client.query("START TRANSACTION");
    client.query(&format!("INSERT INTO {table} VALUES ('x')"));
    client
}

fn rows(table: &str) -> usize {
    Client::direct().query(&format!("SELECT id FROM {table}"))
}

#[test]
fn a_commit_whose_answer_is_cut_off_reset_or_lost_was_executed() {
    let proxy = before_database();
    let actions = [Action::CutAnswer, Action::ResetAnswer, Action::LoseAnswer];
    for (round, action) in (1..).zip(actions) {
        let rule = proxy.arm(Command::sql("COMMIT"), action, Times::Next(1));
        let mut client = about_to_commit(&proxy, "answered", true);
        client.say_query(" commit");
        match action {
            Action::CutAnswer => client.sees_the_end(),
            Action::ResetAnswer => {
                let error = client.stream.read(&mut [0; 8]).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            }
            _ => {
                await_that("it is lost", || rule.fired() == 1);
                client.hears_nothing();
            }
        }
        assert_eq!(rule.fired(), 1);
        assert_eq!(rows("answered"), round, "{action:?}");
    }
}

#[test]
fn a_commit_that_never_arrives_is_never_executed() {
    let proxy = before_database();
    for action in [Action::CutRequest, Action::LoseRequest] {
        let rule = proxy.arm(Command::sql("COMMIT"), action, Times::Next(1));
        let mut client = about_to_commit(&proxy, "unheard", false);
        client.say_query("COMMIT");
        await_that("it fires", || rule.fired() == 1);
        if action == Action::CutRequest {
            client.sees_the_end();
        } else {
            client.hears_nothing();
            // Not even the end of the client ends its transaction.
            drop(client);
            await_that("the row is locked", || {
                let mut direct = Client::direct();
                direct.query("SELECT 1 FROM information_schema.innodb_trx") > 0
            });
            proxy.cut();
        }
        assert_eq!(rows("unheard"), 0, "{action:?}");
    }
    let mut client = about_to_commit(&proxy, "unheard", false);
    client.query("COMMIT");
    assert_eq!(rows("unheard"), 1);
}

#[test]
fn a_prepared_statement_is_known_by_its_sql_and_its_values() {
    for has_no_eof in [true, false] {
        let proxy = before_database();
        let table = format!("prepared_{has_no_eof}");
        let mut client = Client::through(&proxy, has_no_eof);
        client.query(&format!("CREATE TABLE {table} (id VARCHAR(20))"));
        let insert = format!("INSERT INTO {table}");
        let chosen = Command::sql(&insert.to_lowercase()).containing("second");
        let rule = proxy.arm(chosen, Action::CutAnswer, Times::Always);
        let all = proxy.watch(Command::sql(&insert));
        let closed = client.prepare(&format!("{insert} VALUES (?)"));
        client.say(0x19, &closed);
        let look = client.prepare(&format!("SELECT id FROM {table} WHERE id = ?"));
        let write = client.prepare(&format!("{insert} VALUES (?)"));
        for (text, found) in [("first", 1), ("third", 0)] {
            if found > 0 {
                client.say_execute(write, text);
                assert_eq!(client.hear().unwrap(), 0);
            }
            client.say_execute(look, text);
            assert_eq!(client.hear().unwrap(), found);
        }
        client.say_execute(look, "second");
        assert_eq!(client.hear().unwrap(), 0);
        client.say_execute(write, "second");
        client.sees_the_end();
        assert_eq!((rule.matched(), rule.fired(), all.matched()), (1, 1, 2));
        assert_eq!(rows(&table), 2);
    }
}

#[test]
fn an_answer_of_many_rows_is_held_as_a_whole_and_released_as_a_whole() {
    for has_no_eof in [true, false] {
        let proxy = before_database();
        let mut client = Client::through(&proxy, has_no_eof);
        let rule = proxy.arm(
            Command::sql("SELECT seq").containing("seq_1_to_5000"),
            Action::HoldAnswer,
            Times::Nth(2),
        );
        let sql = "SELECT seq, seq FROM seq_1_to_5000";
        assert_eq!(client.query(sql), 5000);
        client.say_query(sql);
        await_that("it is held", || rule.fired() == 1);
        client.hears_nothing();
        rule.release();
        assert_eq!(client.hear().unwrap(), 5000);
        assert_eq!(client.query(sql), 5000);
        // A refusal is an answer as well.
        client.say_query("SELECT nonsense");
        let mut refusal = [0; 5];
        client.stream.read_exact(&mut refusal).unwrap();
        assert_eq!(refusal[4], 0xff);
    }
}

#[test]
fn a_lock_that_is_waited_for_is_granted_before_its_answer_is_lost() {
    let proxy = before_database();
    let mut holder = Client::direct();
    assert_eq!(holder.query("SELECT GET_LOCK('a', 0)"), 1);
    let lost = Command::sql("SELECT GET_LOCK").containing("'a'");
    let rule = proxy.arm(lost, Action::LoseAnswer, Times::Next(1));
    let mut client = Client::through(&proxy, false);
    assert_eq!(client.query("SELECT GET_LOCK('b', 0)"), 1);
    client.say_query("SELECT GET_LOCK('a', 10)");
    let waits = "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'";
    await_that("it waits", || Client::direct().query(waits) == 1);
    // Columns may have been told meanwhile, but no outcome.
    assert_eq!(rule.fired(), 0);
    drop(holder);
    await_that("it is granted", || rule.fired() == 1);
    let held = "SELECT 1 FROM DUAL WHERE IS_USED_LOCK('a') IS NOT NULL";
    assert_eq!(Client::direct().query(held), 1);
    client.hears_nothing();
}

#[test]
fn several_results_are_one_answer() {
    for has_no_eof in [true, false] {
        let proxy = before_database();
        let mut client = Client::through(&proxy, has_no_eof);
        let delay = Duration::from_millis(50);
        let rule = proxy.arm(Command::sql("DO"), Action::DelayAnswer(delay), Times::Always);
        let lost = proxy.arm(Command::sql("COMMIT"), Action::CutAnswer, Times::Always);
        for _ in 0..2 {
            client.say_query("DO 1; SELECT 1; SELECT 2 UNION SELECT 3; DO 2");
            await_that("it is read to its end", || rule.fired() > 0);
            for rows in [0, 1, 2, 0] {
                assert_eq!(client.hear().unwrap(), rows);
            }
        }
        assert_eq!(rule.fired(), 2);
        client.say_query("COMMIT");
        client.sees_the_end();
        assert_eq!(lost.fired(), 1);
    }
}

#[test]
fn an_answer_that_is_too_long_to_be_kept_is_passed_on_as_it_is() {
    let proxy = before_database();
    let mut client = Client::through(&proxy, true);
    let rule = proxy.arm(Command::sql("SELECT"), Action::HoldAnswer, Times::Always);
    let sql = "SELECT REPEAT('x', 1000000) FROM seq_1_to_12";
    assert_eq!(client.query(sql), 12);
    assert_eq!((rule.matched(), rule.fired(), proxy.counts().opaque), (1, 0, 1));
    assert_eq!(client.query("SELECT 1"), 1);
}

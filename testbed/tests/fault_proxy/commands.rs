//! What happens to chosen commands of Redis.

use std::time::{Duration, Instant};

use testbed::{Action, Command, Times};

use crate::redis_client::{Client, command};
use crate::{await_that, before_redis};

const OK: &str = "+OK\r\n";
const PONG: &str = "+PONG\r\n";
const DELAY: Duration = Duration::from_millis(150);
/// In one of these tries the machine does not stand still for as long as a delay takes.
const TRIES: u64 = 20;

/// Says several things at once.
fn say_together(client: &mut Client, all: &[&[&str]]) {
    use std::io::Write;
    let bytes: Vec<u8> = all.iter().flat_map(|words| command(words)).collect();
    client.0.write_all(&bytes).unwrap();
}

#[test]
fn a_lost_answer_was_given_to_a_command_that_was_executed_and_what_follows_is_silence() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let mut other = Client::through(&proxy);
    let rule =
        proxy.arm(Command::redis("set").containing("lost-2"), Action::LoseAnswer, Times::Next(1));
    let set: [&[&str]; 4] =
        [&["SET", "lost-1", "1"], &["PING"], &["SET", "lost-2", "2"], &["SET", "lost-3", "3"]];
    say_together(&mut client, &set);
    client.hears("+OK\r\n+PONG\r\n");
    await_that("it fires", || rule.fired() == 1);
    assert_eq!(direct.get("lost-2").as_deref(), Some("2"));
    await_that("what came with it is executed", || direct.get("lost-3").is_some());
    client.say(&["SET", "lost-4", "4"]);
    await_that("it is swallowed", || proxy.counts().swallowed_to_server > 0);
    client.hears_nothing();
    assert_eq!(direct.get("lost-4"), None);
    assert_eq!(proxy.counts().silenced, 1);
    // Others go on, also with the same command.
    other.asks(&["SET", "lost-2", "5"], OK);
    assert_eq!((rule.matched(), rule.fired()), (2, 1));
}

#[test]
fn a_cut_answer_is_an_end_behind_the_answers_before_it() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let rule = proxy.arm(Command::redis("SET"), Action::CutAnswer, Times::Nth(2));
    say_together(&mut client, &[&["SET", "cut-1", "1"], &["PING"], &["SET", "cut-2", "2"]]);
    client.hears("+OK\r\n+PONG\r\n");
    client.sees_the_end();
    assert_eq!((rule.fired(), proxy.counts().fired, proxy.counts().cut), (1, 1, 1));
    assert_eq!(direct.get("cut-2").as_deref(), Some("2"));
    Client::through(&proxy).asks(&["SET", "cut-2", "3"], OK);
}

#[test]
fn an_answer_is_reset_after_its_command_was_executed() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let rule = proxy.arm(Command::redis("SET"), Action::ResetAnswer, Times::Next(1));
    client.say(&["SET", "reset", "1"]);
    client.sees_a_reset();
    assert_eq!(rule.fired(), 1);
    assert_eq!(direct.get("reset").as_deref(), Some("1"));
}

#[test]
fn a_held_request_waits_with_all_that_follows_it_and_is_executed_once_released() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let mut other = Client::through(&proxy);
    let rule = proxy.arm(Command::redis("SET"), Action::HoldRequest, Times::Next(1));
    say_together(&mut client, &[&["PING"], &["SET", "held", "1"], &["PING"]]);
    client.hears(PONG);
    await_that("it is held", || rule.fired() == 1);
    other.asks(&["SET", "others", "1"], OK);
    assert_eq!(direct.get("held"), None);
    rule.release();
    client.hears(&format!("{OK}{PONG}"));
    assert_eq!(direct.get("held").as_deref(), Some("1"));
}

#[test]
fn a_request_that_is_cut_off_or_lost_is_never_executed() {
    let proxy = before_redis();
    let mut direct = Client::direct();
    for action in [Action::CutRequest, Action::LoseRequest] {
        let mut client = Client::through(&proxy);
        let rule = proxy.arm(Command::redis("SET"), action, Times::Next(1));
        say_together(&mut client, &[&["SET", "never", "1"], &["PING"]]);
        await_that("it fires", || rule.fired() == 1);
        if action == Action::CutRequest {
            client.sees_the_end();
        } else {
            await_that("what follows is gone", || proxy.counts().swallowed_to_server == 14);
            client.hears_nothing();
        }
        assert_eq!(direct.get("never"), None, "{action:?}");
        assert!(!action.is_executed());
    }
}

#[test]
fn a_connection_cut_at_both_sides_may_have_executed_its_command() {
    let proxy = before_redis();
    let mut direct = Client::direct();
    let rule = proxy.arm(Command::redis("INCR"), Action::CutBoth, Times::Always);
    for _ in 0..3 {
        let mut client = Client::through(&proxy);
        client.say(&["INCR", "perhaps"]);
        client.sees_the_end();
    }
    assert_eq!(rule.fired(), 3);
    // Here, all of them are.
    await_that("it has arrived", || direct.get("perhaps").as_deref() == Some("3"));
}

#[test]
fn a_command_is_delayed_before_it_is_executed_and_an_answer_after_that() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let request = proxy.arm(
        Command::redis("SET").containing("a"),
        Action::DelayRequest(DELAY),
        Times::Always,
    );
    let is_seen = (1..=TRIES).any(|number| {
        let (key, start) = (format!("late-a-{number}"), Instant::now());
        client.say(&["SET", &key, "1"]);
        await_that("it is delayed", || request.fired() == number);
        let value = direct.get(&key);
        let is_early = start.elapsed() < DELAY;
        assert!(value.is_none() || !is_early, "it is executed before its delay is over");
        client.hears(OK);
        assert!(start.elapsed() >= DELAY);
        is_early
    });
    assert!(is_seen, "too slow to see anything");
    request.disarm();

    let (b, delay) = (Command::redis("SET").containing("b"), Action::DelayAnswer(DELAY));
    let answer = proxy.arm(b, delay, Times::Always);
    let is_seen = (1..=TRIES).any(|number| {
        let (key, start) = (format!("late-b-{number}"), Instant::now());
        client.say(&["SET", &key, "1"]);
        await_that("it is executed", || direct.get(&key).is_some());
        let is_early = start.elapsed() < DELAY;
        client.hears(OK);
        assert!(start.elapsed() >= DELAY);
        assert_eq!(answer.fired(), number);
        is_early
    });
    assert!(is_seen, "it is executed only when its delay is over");
    let fired = answer.fired();
    let mut is_fast = || client.time(&["SET", "late-c", "1"], OK) < DELAY;
    assert!((0..TRIES).any(|_| is_fast()), "no rule is about that");
    assert_eq!(answer.fired(), fired);
}

#[test]
fn a_held_answer_and_what_follows_it_arrive_when_they_are_released() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let mut other = Client::through(&proxy);
    let rule = proxy.arm(Command::redis("SET"), Action::HoldAnswer, Times::Next(2));
    let all: [&[&str]; 4] = [&["PING"], &["SET", "wait", "1"], &["PING"], &["SET", "wait", "2"]];
    say_together(&mut client, &all);
    client.hears(PONG);
    await_that("both are executed", || direct.get("wait").as_deref() == Some("2"));
    await_that("both are held", || rule.fired() == 2);
    client.hears_nothing();
    other.asks(&["SET", "wait", "3"], OK);
    rule.release();
    client.hears("+OK\r\n+PONG\r\n+OK\r\n");
}

#[test]
fn a_rule_is_about_the_commands_it_names_as_often_as_it_says() {
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    let seen = proxy.watch(Command::redis(""));
    let watched = proxy.watch(Command::redis("config get"));
    let given = proxy.watch(Command::redis("ECHO").when(|parts| parts[1].len() == 3));
    let every = proxy.arm(Command::redis("ECHO"), Action::DelayAnswer(DELAY), Times::Every(3));
    let never = proxy.watch(Command::sql("ECHO"));
    let mut untouched = Vec::new();
    for (round, word) in ["a", "bb", "ccc", "d", "ee", "fff"].iter().enumerate() {
        let before = every.fired();
        let took = client.time(&["ECHO", word], &format!("${}\r\n{word}\r\n", word.len()));
        let has_fired = every.fired() > before;
        assert_eq!(has_fired, round % 3 == 2, "{round}: {took:?}");
        assert!(took >= DELAY || !has_fired, "{round}: {took:?}");
        untouched.extend((!has_fired).then_some(took));
    }
    // The machine may stand still in some of them.
    assert!(untouched.iter().any(|took| *took < DELAY), "{untouched:?}");
    client.asks(&["CONFIG", "GET", "port"], "*2\r\n$4\r\nport\r\n$5\r\n");
    assert_eq!(client.line().len(), 5);
    client.asks(&["CONFIG", "RESETSTAT"], OK);
    assert_eq!((every.matched(), every.fired()), (6, 2));
    assert_eq!((watched.matched(), watched.fired()), (1, 0));
    assert_eq!((given.matched(), never.matched(), seen.matched()), (2, 0, 8));
    let counts = proxy.counts();
    assert_eq!((counts.commands, counts.matched, counts.fired), (9, 8, 2));
    every.disarm();
    client.asks(&["ECHO", "g"], "$1\r\ng\r\n");
    assert_eq!(every.matched(), 6);
}

#[test]
fn an_outage_can_begin_with_the_command_that_something_happens_to() {
    let proxy = before_redis();
    let (mut client, mut direct) = (Client::through(&proxy), Client::direct());
    let mut other = Client::through(&proxy);
    let rule = proxy.arm_with_outage(Command::redis("SET"), Action::LoseAnswer, Times::Next(1));
    client.say(&["SET", "outage", "1"]);
    client.sees_the_end();
    other.sees_the_end();
    Client::open(proxy.addr()).sees_a_reset();
    assert_eq!((rule.fired(), proxy.counts().refused), (1, 1));
    assert_eq!(direct.get("outage").as_deref(), Some("1"));
    proxy.end_outage();
    Client::through(&proxy).asks(&["SET", "outage", "2"], OK);
}

#[test]
fn an_inline_command_is_passed_on_and_makes_its_connection_opaque() {
    use std::io::Write;
    let proxy = before_redis();
    let mut client = Client::through(&proxy);
    let rule = proxy.arm(Command::redis("PING"), Action::CutRequest, Times::Nth(2));
    client.asks(&["PING"], PONG);
    client.0.write_all(b"PING\r\n").unwrap();
    client.hears(PONG);
    client.asks(&["PING"], PONG);
    assert_eq!((rule.matched(), proxy.counts().opaque), (1, 1));
}

//! The server without servers behind it: what it refuses, and how its stream reads.

use axum::http::header;
use reqwest::Response;
use serde_json::{Value, json};

use super::*;
use crate::access::TOKEN_HEADER;
use crate::command_sources::source_file;
use crate::event_log::Priority;
use crate::setup::RaceSetup;
use crate::test_board::TestBoard;

/// The address of a source.
const SOURCE: &str = "source/lua/lock/redisson_release.lua";

impl TestBoard {
    async fn events(&self, last: Option<&str>) -> EventReader {
        let url = format!("{}/events?token={}", self.origin, self.token);
        let request = self.client.get(url);
        let request = match last {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        let response = request.send().await.expect("an answer");
        assert_eq!(response.status(), 200);
        EventReader { response, text: String::new() }
    }

    fn push(&self, events: impl IntoIterator<Item = usize>) {
        for event in events {
            self.log.push(event.to_string(), Priority::Fault);
        }
    }
}

/// A page that reads the stream.
struct EventReader {
    response: Response,
    text: String,
}

impl EventReader {
    /// The next message: its id and its data.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| {
                    message.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned))
                };
                let found = field("id: ").zip(field("data: "));
                self.text = rest.to_owned();
                let Some((id, data)) = found else { continue };
                return Some((id, serde_json::from_str(&data).expect("JSON")));
            }
            let chunk = self.response.chunk().await.expect("read in time")?;
            self.text.push_str(std::str::from_utf8(&chunk).expect("UTF-8"));
        }
    }

    /// Reads that number of events; the last id is given too.
    async fn read(&mut self, count: usize) -> (Vec<Value>, String) {
        let (mut all, mut last) = (Vec::new(), String::new());
        while all.len() < count {
            let (id, data) = self.next().await.expect("more events");
            all.extend(data["events"].as_array().expect("a list").iter().cloned());
            last = id;
        }
        (all, last)
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<Value> {
    range.map(|number| json!(number)).collect()
}

#[tokio::test]
async fn a_page_that_reconnects_gets_what_it_missed_and_a_late_one_gets_all() {
    let board = TestBoard::start().await;
    let mut early = board.events(None).await;
    board.log.begin("{\"seed\":7}".to_owned());
    let (_, first) = early.next().await.expect("the race");
    assert_eq!((&first["race"], &first["setup"]["seed"]), (&json!(1), &json!(7)));
    board.push(0..10);
    let (read, last) = early.read(10).await;
    assert_eq!(read, numbers(0..10));
    drop(early);
    board.push(10..30);
    let mut again = board.events(Some(&last)).await;
    assert_eq!(again.read(20).await.0, numbers(10..30), "from where it stopped");
    let mut late = board.events(None).await;
    assert_eq!(late.read(30).await.0, numbers(0..30), "from the begin");
    board.log.begin("{}".to_owned());
    let (id, next) = again.next().await.expect("the next race");
    assert_eq!((next["race"].clone(), id.as_str()), (json!(2), "2.0"));
    late.next().await.expect("the next race");
    board.stop.cancel();
    assert_eq!(late.next().await, None, "the stream ends with the board");
}

/// A page that never reads: its place in the log is all that there is of it.
#[tokio::test]
async fn a_slow_page_delays_neither_the_log_nor_another_page() {
    let board = TestBoard::start().await;
    board.log.begin("{}".to_owned());
    let slow = board.events(None).await;
    let mut quick = board.events(None).await;
    let many = 30_000;
    let long = |number: usize| format!("\"{number:020}\"");
    for number in 0..many {
        board.log.push(long(number), Priority::Fault);
    }
    assert_eq!(board.log.left_out(), 0);
    let (read, _) = quick.read(many).await;
    assert_eq!(read.last(), Some(&json!(format!("{:020}", many - 1))));
    drop(slow);
}

#[tokio::test]
async fn pages_of_other_sites_start_no_race_and_inject_no_fault() {
    let mut board = TestBoard::start().await;
    for path in ["race", "fault"] {
        let body = json!({"lane": "left", "action": "flush-redis"});
        let url = format!("{}/{path}", board.origin);
        let from = |origin: &str, token: &str| {
            let request = board.client.post(&url).json(&body);
            request.header(header::ORIGIN, origin).header(TOKEN_HEADER, token)
        };
        let requests = [
            board.client.post(&url).json(&body).header(TOKEN_HEADER, &board.token),
            from("http://evil.example", &board.token),
            from("null", &board.token),
            from(&board.origin, "guessed"),
            from(&board.origin, &board.token).header(header::HOST, "evil.example"),
        ];
        for request in requests {
            let response = request.send().await.expect("an answer");
            assert_eq!(response.status(), 403);
        }
    }
    for path in ["", "events", "save", "commands?lane=left", "locks?lane=left", SOURCE] {
        let response = board.client.get(format!("{}/{path}", board.origin)).send().await;
        assert_eq!(response.expect("an answer").status(), 403, "/{path} without the token");
    }
    assert!(board.requests.races.try_recv().is_err(), "nothing was ordered");
    assert!(board.requests.faults[0].try_recv().is_err(), "nothing was ordered");
}

#[tokio::test]
async fn the_first_page_starts_a_race_and_no_other_begins_before_it_is_over() {
    let mut board = TestBoard::start().await;
    let first = json!({"first": true, "seed": 9});
    let status = |response: Response| response.status().as_u16();
    let started = board.post("race", &first).send().await.expect("an answer");
    assert_eq!(status(started), 202);
    let RaceRequest { setup, turn } = board.requests.races.recv().await.expect("an order");
    assert_eq!(setup, RaceSetup { seed: 9, ..RaceSetup::default() });
    board.log.begin("{}".to_owned());
    let late = board.post("race", &first).send().await.expect("an answer");
    assert_eq!(status(late), 200, "a second page watches it");
    let other = board.post("race", &json!({})).send().await.expect("an answer");
    assert_eq!(status(other), 409);
    drop(turn);
    let late = board.post("race", &first).send().await.expect("an answer");
    assert_eq!(status(late), 200, "opening a page does not end what can be replayed");
    let other = board.post("race", &json!({})).send().await.expect("an answer");
    assert_eq!(status(other), 202);
}

#[tokio::test]
async fn bad_input_is_answered_with_its_field_and_limit() {
    let board = TestBoard::start().await;
    for (path, body, code, field) in [
        ("race", json!({"users": 1001}), "whole_number", "users"),
        ("race", json!({"right": {"lock": "luck"}}), "one_of", "right.lock"),
        ("race", json!({"left": {"x": 1}}), "unknown_field", "left.x"),
        ("race", json!([]), "not_an_object", "body"),
        ("fault", json!({"lane": "middle", "action": "freeze", "replica": 1}), "one_of", "lane"),
        ("fault", json!({"lane": "left", "action": "burn", "replica": 1}), "one_of", "action"),
        (
            "fault",
            json!({"lane": "left", "action": "freeze", "replica": 9}),
            "whole_number",
            "replica",
        ),
    ] {
        let response = board.post(path, &body).send().await.expect("an answer");
        assert_eq!(response.status(), 400, "{body}");
        let answer: Value = response.json().await.expect("JSON");
        assert_eq!((&answer["code"], &answer["field"]), (&json!(code), &json!(field)), "{answer}");
        assert!(answer["error"].is_string(), "{answer}");
    }
    for (query, status) in [("lane=left&from=x", 200), ("lane=middle", 400), ("from=1", 400)] {
        let url = format!("{}/commands?token={}&{query}", board.origin, board.token);
        let response = board.client.get(url).send().await.expect("an answer");
        assert_eq!(response.status(), status, "{query}");
        let answer: Value = response.json().await.expect("JSON");
        let code = if status == 200 { Value::Null } else { json!("one_of") };
        assert_eq!(answer["code"], code, "{answer}");
    }
    for (lane, status) in [("right", 200), ("middle", 400)] {
        let url = format!("{}/locks?token={}&lane={lane}", board.origin, board.token);
        let response = board.client.get(url).send().await.expect("an answer");
        assert_eq!(response.status(), status, "{lane}");
    }
    let long = json!({"left": "x".repeat(MAX_BODY_BYTES)});
    let response = board.post("race", &long).send().await.expect("an answer");
    assert_eq!(response.status(), 413);
    let answer: Value = response.json().await.expect("JSON");
    assert_eq!((&answer["code"], &answer["most"]), (&json!("body_too_large"), &json!(4096)));
}

#[tokio::test]
async fn a_source_has_its_text_by_lines_and_no_other_file_is_served() {
    let board = TestBoard::start().await;
    let get = async |path: &str| {
        let url = format!("{}/{path}?token={}", board.origin, board.token);
        board.client.get(url).send().await.expect("an answer")
    };
    let page = get(SOURCE).await;
    assert!(page.headers()[header::CONTENT_SECURITY_POLICY].to_str().is_ok());
    let page = page.text().await.expect("a page");
    let (_, text) = source_file("lua/lock/redisson_release.lua").expect("a source");
    let (last, line) = (1..).zip(text.lines()).last().expect("a line");
    let line = format!("<span id=\"L{last}\"><a href=\"#L{last}\">{last}</a> {line}</span>");
    assert!(page.contains(&line) && !page.contains("{{"), "{page}");
    let page = get("source/src/store/session.rs").await.text().await.expect("a page");
    assert!(page.contains("Result&lt;") && !page.contains("Result<"), "its text is no markup");
    for path in ["Cargo.toml", "lua/lock/..%2f..%2fCargo.toml", "%2fetc%2fpasswd", "lua/lock"] {
        let response = get(&format!("source/{path}")).await;
        assert_eq!(response.status(), 404, "{path}");
        let answer: Value = response.json().await.expect("JSON");
        assert_eq!(answer["code"], "no_such_source", "{answer}");
    }
}

#[tokio::test]
async fn an_address_of_an_earlier_board_gets_a_page_that_a_person_can_read() {
    let board = TestBoard::start().await;
    let get = async |path: &str| {
        let response = board.client.get(format!("{}/{path}", board.origin)).send().await;
        let response = response.expect("an answer");
        assert_eq!(response.status(), 403, "{path}");
        response.text().await.expect("a text")
    };
    let page = get("?token=old").await;
    for words in
        ["Open the address that the board printed", "请打开竞赛台打印出的地址", "<style nonce"]
    {
        assert!(page.contains(words) && !page.contains("{{"), "{page}");
    }
    let other = get("locks?token=old").await;
    assert!(other.contains("\"code\":\"wrong_token\""), "{other}");
}

#[tokio::test]
async fn the_number_of_pages_that_read_is_bounded() {
    let board = TestBoard::start().await;
    let mut readers = Vec::new();
    for _ in 0..MAX_STREAMS {
        readers.push(board.events(None).await);
    }
    let url = format!("{}/events?token={}", board.origin, board.token);
    let one_more = board.client.get(url).send().await.expect("an answer");
    assert_eq!(one_more.status(), 503);
    let answer: Value = one_more.json().await.expect("JSON");
    assert_eq!((&answer["code"], &answer["most"]), (&json!("too_many_pages"), &json!(16)));
}

#[tokio::test]
async fn a_fault_of_a_page_is_refused_in_a_challenge_and_in_a_rung() {
    for race in [json!({"challenge": 4}), json!({"rung": "multi"})] {
        let mut board = TestBoard::start().await;
        board.post("race", &race).send().await.expect("an answer");
        let RaceRequest { setup, turn: _turn } = board.requests.races.recv().await.expect("one");
        board.log.begin(setup.to_json());
        let healing = json!({"lane": "right", "action": "thaw-redis"});
        let response = board.post("fault", &healing).send().await.expect("an answer");
        assert_eq!(response.status(), 409);
        let answer: Value = response.json().await.expect("JSON");
        assert_eq!(answer["code"], "challenge_faults", "{answer}");
        assert!(board.requests.faults[1].try_recv().is_err(), "nothing happens to the lane");
    }
}

//! One-time codes: five minutes, three tries, one use, each with its own challenge.

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Connection, MySqlConnection};
use testbed::{Action, Command, Times};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::redis_side;
use crate::support::{Answer, Place, Service, eventually};

const PHONE: &str = "13800000001";

async fn ask(service: &Service, phone: &str) -> Answer {
    let body = Some(json!({"phone": phone}));
    service.call(Method::POST, "/api/login/codes", None, body).await
}

/// A fresh code for that phone, and its challenge.
async fn code(service: &Service, phone: &str) -> Sent {
    Sent::of(&ask(service, phone).await.expect(202))
}

#[derive(Clone)]
struct Sent {
    challenge: String,
    code: String,
}

impl Sent {
    fn of(answer: &Value) -> Self {
        let text = |name: &str| answer[name].as_str().expect("--dev tells it").to_owned();
        Self { challenge: text("challenge"), code: text("code") }
    }

    /// This challenge with another code, never the right one.
    fn wrong(&self, number: u32) -> Self {
        Self { code: wrong(&self.code, number), ..self.clone() }
    }
}

async fn try_code(service: &Service, phone: &str, sent: &Sent) -> Answer {
    let body = json!({"phone": phone, "challenge": sent.challenge, "code": sent.code});
    service.call(Method::POST, "/api/login", None, Some(body)).await
}

/// Another code of six digits, never the right one.
fn wrong(code: &str, number: u32) -> String {
    format!("{:06}", (code.parse::<u32>().expect("digits") + 1 + number) % 1_000_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_exchanged_for_a_token_that_works() {
    let service = Service::start(&["--token-ttl-s", "60"]).await;
    let answer = ask(&service, PHONE).await.expect(202);
    assert_eq!(answer["expires_in_s"], 300);
    let sent = Sent::of(&answer);
    let Sent { challenge, code } = &sent;
    assert!(code.len() == 6 && code.bytes().all(|b| b.is_ascii_digit()), "{code}");
    let is_hexadecimal = challenge.bytes().all(|b| b.is_ascii_hexdigit());
    assert!(challenge.len() == 32 && is_hexadecimal, "{challenge}");

    let login = try_code(&service, PHONE, &sent).await.expect(200);
    assert_eq!(login["token_type"], "Bearer");
    let user = &login["user"];
    assert!(user["id"].as_str().expect("a string").parse::<u64>().is_ok());
    assert_eq!((&user["phone"], &user["role"]), (&json!("+86****0001"), &json!("buyer")));
    let ends = OffsetDateTime::parse(login["expires_at"].as_str().unwrap(), &Rfc3339).unwrap();
    let life = (ends - OffsetDateTime::now_utc()).whole_seconds();
    assert!((55..=60).contains(&life), "{life} s");

    let me = service.get("/api/me", login["token"].as_str().unwrap()).await.expect(200);
    assert_eq!(me, *user);
    assert!(!login.to_string().contains(PHONE), "the phone is nowhere in full");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_phone_is_the_same_user_also_when_first_logins_race() {
    let service = Service::start(&[]).await;
    let mut users = Vec::new();
    for _ in 0..2 {
        let code = code(&service, PHONE).await;
        users.push(try_code(&service, PHONE, &code).await.expect(200)["user"]["id"].clone());
    }
    assert_eq!(users[0], users[1]);
    // Two phones that log in for the first time at once are two users.
    let (one, two) = (code(&service, "13800000002").await, code(&service, "13800000003").await);
    let (one, two) = tokio::join!(
        try_code(&service, "13800000002", &one),
        try_code(&service, "13800000003", &two),
    );
    users.extend([one.expect(200)["user"]["id"].clone(), two.expect(200)["user"]["id"].clone()]);
    users.dedup();
    assert_eq!(users.len(), 3, "{users:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_works_once() {
    let service = Service::start(&[]).await;
    let code = code(&service, PHONE).await;
    try_code(&service, PHONE, &code).await.expect(200);
    assert_eq!(try_code(&service, PHONE, &code).await.problem(401), "wrong_code");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_hundred_simultaneous_right_tries_one_logs_in() {
    let service: &Service = Box::leak(Box::new(Service::start(&[]).await));
    let code: &Sent = Box::leak(Box::new(code(service, PHONE).await));
    let mut tries = JoinSet::new();
    for _ in 0..100 {
        tries.spawn(try_code(service, PHONE, code));
    }
    let answers = tries.join_all().await;
    let logged_in = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!(logged_in, 1);
    let rest = answers.iter().filter(|answer| answer.status != 200);
    assert!(rest.into_iter().all(|answer| answer.problem(401) == "wrong_code"));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tries_below_the_limit_are_forgiven_and_the_last_one_voids_the_code() {
    let more = ["--login-code-tries", "5"];
    for (flags, most) in [(&[][..], 3), (&more[..], 5)] {
        let service = Service::start(flags).await;
        for (tries, status) in [(most - 1, 200), (most, 401)] {
            let code = code(&service, PHONE).await;
            for number in 0..tries {
                let refused = try_code(&service, PHONE, &code.wrong(number)).await;
                assert_eq!(refused.problem(401), "wrong_code");
            }
            assert_eq!(try_code(&service, PHONE, &code).await.status, status, "{tries} tries");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_guesses_from_many_places_get_no_more_than_three_tries() {
    let service = Service::start(&[]).await;
    let caller: &Caller = Box::leak(Box::new(Caller::new(&service.url)));
    let right: &Sent = Box::leak(Box::new(code(&service, PHONE).await));
    let guess = |sent: Sent, address: u32| {
        let Sent { challenge, code } = sent;
        let body = json!({"phone": PHONE, "challenge": challenge, "code": code}).to_string();
        let request = caller.raw((Method::POST, "/api/login"), body);
        // As from a thousand places.
        let spoofed = format!("203.0.113.{}", address % 256);
        async move { caller.send(request.header("x-forwarded-for", spoofed)).await }
    };
    let mut guesses = JoinSet::new();
    for number in 0..1000 {
        guesses.spawn(guess(right.wrong(number), number));
        if guesses.len() == 64 {
            let answer = guesses.join_next().await.expect("it is not empty").expect("no panic");
            assert_eq!(answer.problem(401), "wrong_code");
        }
    }
    let answers = guesses.join_all().await;
    assert!(answers.iter().all(|answer| answer.problem(401) == "wrong_code"));
    assert_eq!(guess(right.clone(), 0).await.problem(401), "wrong_code", "void since the third");
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_of_one_phone_are_good_beside_each_other_each_with_its_own_challenge() {
    let service = Service::start(&[]).await;
    let first = code(&service, PHONE).await;
    let mut second = code(&service, PHONE).await;
    while second.code == first.code {
        second = code(&service, PHONE).await;
    }
    let crossed = Sent { challenge: first.challenge.clone(), code: second.code.clone() };
    assert_eq!(try_code(&service, PHONE, &crossed).await.problem(401), "wrong_code");
    try_code(&service, PHONE, &first).await.expect(200);
    try_code(&service, PHONE, &second).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_good_for_its_own_phone_only_and_for_five_minutes() {
    let service = Service::start(&[]).await;
    let code = code(&service, PHONE).await;
    for other in ["13800000002", "+4915112345678"] {
        assert_eq!(try_code(&service, other, &code).await.problem(401), "wrong_code", "{other}");
    }
    let mut redis = redis_side::connect(&service.place.redis_url).await;
    let life: i64 = redis.ttl(format!("login:codes:{{+86{PHONE}}}")).await.unwrap();
    assert!((290..=300).contains(&life), "{life} s");
    try_code(&service, PHONE, &code).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_do_not_reveal_whether_a_phone_is_known() {
    let service = Service::start(&[]).await;
    let known = code(&service, PHONE).await;
    try_code(&service, PHONE, &known).await.expect(200);
    let mut answers = Vec::new();
    for phone in [PHONE, "13899999999"] {
        let mut sent = ask(&service, phone).await.expect(202);
        let mut refused = try_code(&service, phone, &Sent::of(&sent).wrong(0)).await;
        sent["code"].take();
        sent["challenge"].take();
        assert_eq!(refused.problem(401), "wrong_code");
        refused.body["request_id"].take();
        answers.push((sent, refused.body));
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_phone_or_code_is_refused_before_it_costs_a_try() {
    let service = Service::start(&[]).await;
    let sent = code(&service, PHONE).await;
    let Sent { challenge, .. } = &sent;
    for (phone, challenge, code) in [
        (PHONE, &**challenge, ""),
        (PHONE, challenge, "12345"),
        (PHONE, challenge, "1234567"),
        (PHONE, &challenge[1..], "123456"),
        (PHONE, "", "123456"),
        ("", challenge, "123456"),
        ("12345", challenge, "123456"),
        ("1234567890123456", challenge, "123456"),
        ("1380000000", challenge, "123456"),
        ("138000000010", challenge, "123456"),
        ("+13800000001", challenge, "123456"),
        ("138 0000 0001", challenge, "123456"),
    ] {
        let body = json!({"phone": phone, "challenge": challenge, "code": code});
        let refused = service.call(Method::POST, "/api/login", None, Some(body.clone())).await;
        assert_eq!(refused.problem(400), "invalid_body", "{body}");
    }
    try_code(&service, PHONE, &sent).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_whose_database_fails_keeps_its_code() {
    let (proxy, through) = tokio::task::spawn_blocking(|| Place::fresh().database_through_proxy())
        .await
        .expect("a proxy");
    let url = through.database_url.clone();
    let service = Service::start_at(through, &[]).await;
    let sent = code(&service, PHONE).await;
    // The users cannot be read; then no server answers.
    let mut database = MySqlConnection::connect(&url).await.expect("the database");
    sqlx::raw_sql("RENAME TABLE users TO away").execute(&mut database).await.expect("away");
    for _ in 0..4 {
        assert_eq!(try_code(&service, PHONE, &sent).await.problem(500), "internal");
    }
    sqlx::raw_sql("RENAME TABLE away TO users").execute(&mut database).await.expect("back");
    proxy.start_outage();
    for _ in 0..4 {
        assert_eq!(try_code(&service, PHONE, &sent).await.status, 503);
    }
    proxy.end_outage();
    let login = async || try_code(&service, PHONE, &sent).await.status == 200;
    eventually("the code is still good", login).await;
    assert_eq!(try_code(&service, PHONE, &sent).await.problem(401), "wrong_code", "used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_whose_last_answer_is_lost_does_not_say_that_nothing_was_done() {
    let (proxy, service) = Service::start_through_redis_proxy(&[]).await;
    let sent = code(&service, PHONE).await;
    let using_up = Command::redis("EVALSHA").containing(&*sent.challenge);
    let using_up = using_up.when(|parts| parts.last() == Some(&&b"1"[..]));
    let lost = proxy.arm(using_up, Action::CutAnswer, Times::Next(1));
    let unknown = try_code(&service, PHONE, &sent).await;
    assert_eq!((unknown.problem(504), lost.fired()), ("outcome_unknown", 1));
    assert!(unknown.body.get("executed").is_none(), "{}", unknown.body);
    eventually("the code is used up", async || {
        try_code(&service, PHONE, &sent).await.status == 401
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_whose_issue_has_no_answer_are_void_and_not_counted() {
    let (proxy, service) = Service::start_through_redis_proxy(&[]).await;
    // The codes of a phone at a time are fewer.
    for _ in 0..8 {
        let issuing = Command::redis("EVALSHA").containing("login:codes:");
        let lost = proxy.arm(issuing, Action::CutAnswer, Times::Next(1));
        eventually("its answer is lost", async || {
            let refused = ask(&service, PHONE).await;
            assert_eq!(refused.problem(503), "dependency_unavailable");
            lost.fired() == 1
        })
        .await;
    }
    eventually("a code is sent", async || ask(&service, PHONE).await.status == 202).await;
}

//! One-time codes: five minutes, five tries, one use, ten a day.

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::task::JoinSet;

use crate::caller::Caller;
use crate::support::{Answer, Service};

const PHONE: &str = "13800000001";

async fn ask(service: &Service, phone: &str) -> Answer {
    let body = Some(json!({"phone": phone}));
    service.call(Method::POST, "/api/login/codes", None, body).await
}

/// A fresh code for that phone.
async fn code(service: &Service, phone: &str) -> String {
    ask(service, phone).await.expect(202)["code"].as_str().expect("a code").to_owned()
}

async fn try_code(service: &Service, phone: &str, code: &str) -> Answer {
    let body = Some(json!({"phone": phone, "code": code}));
    service.call(Method::POST, "/api/login", None, body).await
}

/// Another code of six digits, never the right one.
fn wrong(code: &str, number: u32) -> String {
    format!("{:06}", (code.parse::<u32>().expect("digits") + 1 + number) % 1_000_000)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_exchanged_for_a_token_that_works() {
    let service = Service::start(&["--token-ttl-s", "60"]).await;
    let sent = ask(&service, PHONE).await.expect(202);
    assert_eq!(sent["expires_in_s"], 300);
    let code = sent["code"].as_str().expect("--dev tells it");
    assert!(code.len() == 6 && code.bytes().all(|b| b.is_ascii_digit()), "{code}");

    let login = try_code(&service, PHONE, code).await.expect(200);
    assert_eq!(login["token_type"], "Bearer");
    let user = &login["user"];
    assert!(user["id"].as_str().expect("a string").parse::<u64>().is_ok());
    assert_eq!((&user["phone"], &user["role"]), (&json!("13****001"), &json!("buyer")));
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
    let code: &str = Box::leak(code(service, PHONE).await.into_boxed_str());
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
async fn four_wrong_tries_are_forgiven_and_the_fifth_voids_the_code() {
    let service = Service::start(&[]).await;
    for (tries, status) in [(4, 200), (5, 401)] {
        let code = code(&service, PHONE).await;
        for number in 0..tries {
            let refused = try_code(&service, PHONE, &wrong(&code, number)).await;
            assert_eq!(refused.problem(401), "wrong_code");
        }
        assert_eq!(try_code(&service, PHONE, &code).await.status, status, "{tries} tries");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_guesses_from_many_places_get_no_more_than_five_tries() {
    let service = Service::start(&[]).await;
    let caller: &Caller = Box::leak(Box::new(Caller::new(&service.url)));
    let right: &str = Box::leak(code(&service, PHONE).await.into_boxed_str());
    let guess = |code: String, address: u32| {
        let body = json!({"phone": PHONE, "code": code}).to_string();
        let request = caller.raw((Method::POST, "/api/login"), body);
        // As from a thousand places.
        let spoofed = format!("203.0.113.{}", address % 256);
        async move { caller.send(request.header("x-forwarded-for", spoofed)).await }
    };
    let mut guesses = JoinSet::new();
    for number in 0..1000 {
        guesses.spawn(guess(wrong(right, number), number));
        if guesses.len() == 64 {
            let answer = guesses.join_next().await.expect("it is not empty").expect("no panic");
            assert_eq!(answer.problem(401), "wrong_code");
        }
    }
    let answers = guesses.join_all().await;
    assert!(answers.iter().all(|answer| answer.problem(401) == "wrong_code"));
    assert_eq!(guess(right.to_owned(), 0).await.problem(401), "wrong_code", "void since the fifth");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_code_voids_the_one_before_and_comes_with_five_new_tries() {
    let service = Service::start(&[]).await;
    let old = code(&service, PHONE).await;
    for number in 0..4 {
        try_code(&service, PHONE, &wrong(&old, number)).await.problem(401);
    }
    let mut new = code(&service, PHONE).await;
    while new == old {
        new = code(&service, PHONE).await;
    }
    assert_eq!(try_code(&service, PHONE, &old).await.problem(401), "wrong_code");
    try_code(&service, PHONE, &new).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_is_good_for_its_own_phone_only_and_for_five_minutes() {
    let service = Service::start(&[]).await;
    let code = code(&service, PHONE).await;
    for other in ["13800000002", "+13800000001", "1380000000", "138000000010"] {
        assert_eq!(try_code(&service, other, &code).await.problem(401), "wrong_code", "{other}");
    }
    let client = redis::Client::open(service.place.redis_url.as_str()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let life: i64 = redis.ttl(format!("login:code:{{{PHONE}}}")).await.unwrap();
    assert!((290..=300).contains(&life), "{life} s");
    try_code(&service, PHONE, &code).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_phone_gets_ten_codes_a_day_and_the_eleventh_is_told_when_to_come_back() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let mut last = Value::Null;
    for number in 0..30 {
        let request =
            caller.raw((Method::POST, "/api/login/codes"), format!(r#"{{"phone":"{PHONE}"}}"#));
        let spoofed = format!("198.51.100.{number}");
        let answer = caller.send(request.header("x-forwarded-for", spoofed)).await;
        if number < 10 {
            last = answer.expect(202)["code"].clone();
        } else {
            assert_eq!(answer.problem(429), "too_many_codes", "{number}");
            let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
            assert!((86_000..=86_400).contains(&wait), "{wait} s");
        }
    }
    try_code(&service, PHONE, last.as_str().unwrap()).await.expect(200);
    ask(&service, "13800000002").await.expect(202);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_whether_a_phone_is_known() {
    let service = Service::start(&[]).await;
    let known = code(&service, PHONE).await;
    try_code(&service, PHONE, &known).await.expect(200);
    let mut answers = Vec::new();
    for phone in [PHONE, "13899999999"] {
        let mut sent = ask(&service, phone).await.expect(202);
        sent["code"].take();
        let mut refused = try_code(&service, phone, "no-way").await;
        assert_eq!(refused.problem(401), "wrong_code");
        refused.body["request_id"].take();
        answers.push((sent, refused.body));
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_phone_or_code_is_refused_before_it_costs_a_try() {
    let service = Service::start(&[]).await;
    let code = code(&service, PHONE).await;
    for body in [
        json!({"phone": PHONE, "code": ""}),
        json!({"phone": PHONE, "code": "12345"}),
        json!({"phone": PHONE, "code": "1234567"}),
        json!({"phone": PHONE, "code": 123_456}),
        json!({"phone": PHONE}),
        json!({"phone": "", "code": "123456"}),
        json!({"phone": "12345", "code": "123456"}),
        json!({"phone": "1234567890123456", "code": "123456"}),
        json!({"phone": "138 0000 0001", "code": "123456"}),
        json!({"code": "123456"}),
    ] {
        let refused = service.call(Method::POST, "/api/login", None, Some(body.clone())).await;
        assert_eq!(refused.problem(400), "invalid_body", "{body}");
    }
    try_code(&service, PHONE, &code).await.expect(200);
}

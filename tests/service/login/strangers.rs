//! What a stranger who knows a phone can do to its owner: use up part of the phone's codes, and no
//! code of the owner's.

use std::time::Duration;

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};

use crate::caller::Caller;
use crate::redis_side;
use crate::support::{Answer, Service};

const PHONE: &str = "13800000001";
const OWNER: &str = "192.0.2.1";
const STRANGER: &str = "198.51.100.7";
/// Addresses count, and the test is a proxy that tells them.
const BEHIND_PROXY: [&str; 4] = ["--limit-codes-address", "60", "--trusted-proxies", "127.0.0.0/8"];

async fn ask(caller: &Caller, address: &str) -> Answer {
    let body = json!({"phone": PHONE}).to_string();
    let request = caller.raw((Method::POST, "/api/login/codes"), body);
    caller.send(request.header("x-forwarded-for", address)).await
}

/// An attempt with the challenge of that answer.
async fn log_in(caller: &Caller, sent: &Value, code: &str) -> Answer {
    let body = json!({"phone": PHONE, "challenge": sent["challenge"], "code": code}).to_string();
    caller.send(caller.raw((Method::POST, "/api/login"), body)).await
}

fn wrong(sent: &Value) -> String {
    let right: u32 = sent["code"].as_str().expect("--dev tells it").parse().expect("digits");
    format!("{:06}", (right + 1) % 1_000_000)
}

fn retry_after(answer: &Answer) -> u64 {
    answer.headers["retry-after"].to_str().expect("text").parse().expect("seconds")
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_and_guesses_of_others_leave_the_owners_code_valid() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let mine = ask(&caller, OWNER).await.expect(202);
    for _ in 0..5 {
        let theirs = ask(&caller, STRANGER).await.expect(202);
        for _ in 0..10 {
            let guess = log_in(&caller, &theirs, &wrong(&theirs)).await;
            assert_eq!(guess.problem(401), "wrong_code");
        }
    }
    // Guesses at challenges that do not exist.
    for number in 0..100 {
        let made_up = json!({"challenge": format!("{number:032x}")});
        assert_eq!(log_in(&caller, &made_up, "123456").await.problem(401), "wrong_code");
    }
    log_in(&caller, &mine, mine["code"].as_str().expect("a code")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_uses_up_half_of_a_phones_codes_and_the_owner_gets_one_from_another() {
    let service = Service::start(&BEHIND_PROXY).await;
    let caller = Caller::new(&service.url);
    for number in 0..30 {
        let answer = ask(&caller, STRANGER).await;
        if number < 3 {
            answer.expect(202);
        } else {
            assert_eq!(answer.problem(429), "too_many_codes", "{number}");
        }
    }
    for _ in 0..3 {
        ask(&caller, OWNER).await.expect(202);
    }
    // The phone has had six now, from whichever address.
    assert_eq!(ask(&caller, "203.0.113.9").await.problem(429), "too_many_codes");
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_are_replenished_one_by_one_and_not_after_a_day() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    for _ in 0..6 {
        ask(&caller, OWNER).await.expect(202);
    }
    let refused = ask(&caller, OWNER).await;
    assert_eq!(refused.problem(429), "too_many_codes");
    let interval = 24 * 3600 / 10;
    assert!((interval - 10..=interval).contains(&retry_after(&refused)), "{:?}", refused.headers);

    // A setting makes that wait short enough to be seen.
    let quick = ["--login-codes-a-day", "1000", "--login-codes-at-once", "1"];
    let service = Service::start(&[&quick[..], &["--login-code-ttl-s", "30"]].concat()).await;
    let caller = Caller::new(&service.url);
    let sent = ask(&caller, OWNER).await.expect(202);
    let wait = retry_after(&ask(&caller, OWNER).await);
    assert!((80..=87).contains(&wait), "{wait} s");
    log_in(&caller, &sent, sent["code"].as_str().expect("a code")).await.expect(200);
    let mut redis = redis_side::connect(&service.place.redis_url).await;
    let life: i64 = redis.pttl(format!("limit:codes:phone:+86{PHONE}")).await.expect("a key");
    let longest = Duration::from_secs(87).as_millis();
    assert!(life > 0 && u128::from(life.unsigned_abs()) <= longest, "{life} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_day_of_guessing_hits_48_of_a_million_codes() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    // Six codes at once, and three guesses at each; the other ten come one by one over a day.
    let mut guesses = 0;
    while let Ok(sent) = {
        let answer = ask(&caller, STRANGER).await;
        if answer.status == 202 { Ok(answer.body) } else { Err(answer) }
    } {
        for _ in 0..10 {
            log_in(&caller, &sent, &wrong(&sent)).await.problem(401);
        }
        // The code itself is void after the third.
        let right = sent["code"].as_str().expect("a code");
        assert_eq!(log_in(&caller, &sent, right).await.problem(401), "wrong_code");
        guesses += 3;
    }
    assert_eq!(guesses, 18);
    let (at_once, a_day, tries) = (6, 10, 3);
    assert_eq!((at_once + a_day) * tries, 48);
}

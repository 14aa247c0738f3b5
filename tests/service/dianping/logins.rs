//! Codes and tokens.

use std::collections::HashMap;

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Executor, Row};

use super::{DianpingService, data, message};

#[tokio::test(flavor = "multi_thread")]
async fn a_login_creates_a_user_and_a_token_whose_life_slides_until_the_logout() {
    let api = DianpingService::start().await;
    let token = api.login("13912345678").await;
    let me = data(api.call((Method::GET, "/user/me"), &token, Value::Null).await);
    let name = me["nickName"].as_str().expect("a name").to_owned();
    assert!(name.starts_with("user_") && name.len() == 15, "{me}");
    assert_eq!(me, json!({"id": 3, "nickName": name, "icon": ""}));
    let mut redis = api.redis().await;
    let key = format!("login:token:{token}");
    let fields: HashMap<String, String> = redis.hgetall(&key).await.expect("a hash");
    let field = |name: &str| fields[name].clone();
    assert_eq!(
        [field("id"), field("nickName"), field("icon")],
        ["3".to_owned(), name, String::new()]
    );
    let _was_there: bool = redis.expire(&key, 100).await.expect("a shorter life");
    data(api.call((Method::GET, "/user/me"), &token, Value::Null).await);
    let life: i64 = redis.ttl(&key).await.expect("a life");
    assert!((1795..=1800).contains(&life), "{life}");
    let out = api.call((Method::POST, "/user/logout"), &token, Value::Null).await;
    assert_eq!(out.expect(200), json!({"success": true}));
    let after = api.call((Method::GET, "/user/me"), &token, Value::Null).await;
    assert_eq!(after.status.as_u16(), 401);
    let again = api.login("13912345678").await;
    let again = data(api.call((Method::GET, "/user/me"), &again, Value::Null).await);
    assert_eq!(again["id"], 3, "the same user");
    let users = api.database().await.fetch_one("SELECT COUNT(*) FROM tb_user").await;
    assert_eq!(users.expect("a count").get::<i64, _>(0), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_or_a_code_that_a_replica_of_hm_dianping_gave_out_is_good_here() {
    let api = DianpingService::start().await;
    let mut redis = api.redis().await;
    let fields = [("id", "2"), ("nickName", "bob"), ("icon", "/b.png")];
    let token = "5f1d2c3b-aaaa-bbbb-cccc-0123456789ab";
    let key = format!("login:token:{token}");
    redis.hset_multiple::<_, _, _, ()>(&key, &fields).await.expect("a token");
    let me = data(api.call((Method::GET, "/user/me"), token, Value::Null).await);
    assert_eq!(me, json!({"id": 2, "nickName": "bob", "icon": "/b.png"}));
    redis.set::<_, _, ()>("login:code:13800000002", "424242").await.expect("a code");
    let body = json!({"phone": "13800000002", "code": "424242"});
    data(api.call((Method::POST, "/user/login"), "", body.clone()).await);
    let second = api.call((Method::POST, "/user/login"), "", body).await;
    assert_eq!(message(second), "验证码错误", "it is used up");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_phones_and_codes_are_refused_and_guesses_are_limited() {
    let api = DianpingService::start().await;
    for phone in ["", "1380000000", "12800000001", "138000000011", "1380000000x"] {
        let path = format!("/user/code?phone={phone}");
        let refused = api.call((Method::POST, &path), "", Value::Null).await;
        assert_eq!(message(refused), "手机号格式错误", "{phone}");
    }
    for (body, reason) in [
        (json!({}), "手机号格式错误"),
        (json!({"phone": "13800000001"}), "验证码错误"),
        (json!({"phone": "13800000001", "code": ""}), "验证码错误"),
    ] {
        let refused = api.call((Method::POST, "/user/login"), "", body.clone()).await;
        assert_eq!(message(refused), reason, "{body}");
    }
    let path = "/user/code?phone=13700000001";
    let code = data(api.call((Method::POST, path), "", Value::Null).await);
    let mut refusals = Vec::new();
    for _ in 0..11 {
        let body = json!({"phone": "13700000001", "code": "wrong"});
        refusals.push(message(api.call((Method::POST, "/user/login"), "", body).await));
    }
    assert_eq!(refusals.iter().filter(|text| *text == "验证码错误").count(), 10);
    assert_eq!(refusals[10], "请求过于频繁，请稍后再试");
    let body = json!({"phone": "13700000001", "code": code});
    let late = api.call((Method::POST, "/user/login"), "", body).await;
    assert_eq!(message(late), "请求过于频繁，请稍后再试", "the right one as well");
    let mut asked = Vec::new();
    for _ in 0..7 {
        let answer = api.call((Method::POST, path), "", Value::Null).await;
        asked.push(answer.body["success"].clone());
    }
    assert_eq!((&asked[4], &asked[6]), (&json!(true), &json!(false)), "{asked:?}");
}

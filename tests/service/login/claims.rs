//! What a token must say, although its signature is right.

use seckill::domain::Role;
use seckill::token::Tokens;
use serde_json::{Value, json};

use super::mint::{HEADER, claims, claims_with, now, sign};
use crate::support::{SECRET, Service, token};

fn is_accepted(token: &str) -> bool {
    Tokens::new(&SECRET.to_owned().into()).expect("a good secret").verify(token).is_some()
}

#[test]
fn a_token_signed_by_the_secret_with_the_services_own_claims_is_accepted() {
    // Without this one the refusals of the other tests would show nothing.
    assert!(is_accepted(&sign(HEADER, &claims().to_string())));
    assert!(is_accepted(&sign(r#"{"alg":"HS256","typ":"JWT"}"#, &claims().to_string())));
    assert!(is_accepted(&token(7, Role::Buyer)));
}

#[test]
fn a_token_ends_at_its_expiry_to_the_second() {
    assert!(!is_accepted(&sign(HEADER, &claims_with("exp", json!(now() - 1)))));
    assert!(!is_accepted(&sign(HEADER, &claims_with("exp", json!(now())))), "at it is too late");
    assert!(is_accepted(&sign(HEADER, &claims_with("exp", json!(now() + 2)))));
    for exp in [0, -1, i64::MIN] {
        assert!(!is_accepted(&sign(HEADER, &claims_with("exp", json!(exp)))), "{exp}");
    }
}

#[test]
fn a_token_that_is_not_yet_valid_is_refused() {
    assert!(!is_accepted(&sign(HEADER, &claims_with("nbf", json!(now() + 2)))));
    assert!(!is_accepted(&sign(HEADER, &claims_with("nbf", json!("soon")))));
    assert!(is_accepted(&sign(HEADER, &claims_with("nbf", json!(now() - 1)))));
}

#[test]
fn each_claim_must_be_there_and_have_its_type() {
    for name in ["sub", "role", "iss", "aud", "iat", "exp"] {
        for value in [Value::Null, json!(true), json!([]), json!({}), json!(""), json!("x")] {
            let claims = claims_with(name, value.clone());
            assert!(!is_accepted(&sign(HEADER, &claims)), "{name}: {value}");
        }
    }
    let numbers =
        ["1e400", "9223372036854775808", "99999999999999999999999", "1.5", "\"9999999999\""];
    for number in numbers {
        let claims = claims_with("exp", json!("EXP")).replace("\"EXP\"", number);
        assert!(!is_accepted(&sign(HEADER, &claims)), "exp {number}");
    }
}

#[test]
fn the_issuer_the_audience_and_the_role_are_compared_exactly() {
    let wrong = [
        ("iss", vec![json!("Seckill"), json!("seckill "), json!("evil"), json!(["seckill"])]),
        ("aud", vec![json!("seckill"), json!("seckill-api2"), json!(["seckill-api", "x"])]),
        ("role", vec![json!("Admin"), json!("root"), json!("admin\u{0}"), json!(["admin"])]),
        (
            "sub",
            vec![
                json!("0"),
                json!("-1"),
                json!("1 OR 1=1"),
                json!(1),
                json!("18446744073709551615"),
            ],
        ),
    ];
    for (name, values) in wrong {
        for value in values {
            let token = sign(HEADER, &claims_with(name, value.clone()));
            assert!(!is_accepted(&token), "{name}: {value}");
        }
    }
}

#[test]
fn a_claim_that_stands_twice_is_refused() {
    for (name, value) in
        [("role", "\"admin\""), ("sub", "\"1\""), ("exp", "9999999999"), ("aud", "\"seckill-api\"")]
    {
        let twice = claims().to_string().replacen('{', &format!("{{\"{name}\":{value},"), 1);
        assert!(!is_accepted(&sign(HEADER, &twice)), "{twice}");
    }
    assert!(!is_accepted(&sign(
        HEADER,
        "[\"1\",\"admin\",\"seckill\",\"seckill-api\",1,9999999999]"
    )));
}

#[test]
fn a_header_that_the_service_does_not_write_is_refused() {
    for header in [
        r#"{"alg":"HS256"}"#,
        r#"{"typ":"at+jwt","alg":"HS256"}"#,
        r#"{"typ":"JWE","alg":"HS256"}"#,
        r#"{"typ":"JWT","alg":"HS256","kid":"../../../../dev/null"}"#,
        r#"{"typ":"JWT","alg":"HS256","kid":"1' UNION SELECT 'key' -- "}"#,
        r#"{"typ":"JWT","alg":"HS256","jku":"http://127.0.0.1:1/keys"}"#,
        r#"{"typ":"JWT","alg":"HS256","jwk":{"kty":"oct","k":"AAAA"}}"#,
        r#"{"typ":"JWT","alg":"HS256","x5u":"http://127.0.0.1:1/cert"}"#,
        r#"{"typ":"JWT","alg":"HS256","crit":["exp"]}"#,
        r#"{"typ":"JWT","alg":"HS256","zip":"DEF"}"#,
        r#"{"typ":"JWT","alg":"HS256","cty":"JWT"}"#,
        r#"{"typ":"JWT","alg":"HS256","made-up":1}"#,
        r#"{"typ":"JWT","alg":"HS256","alg":"HS256"}"#,
    ] {
        assert!(!is_accepted(&sign(header, &claims().to_string())), "{header}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_ends_while_it_is_used_is_refused_from_then_on() {
    let service = Service::start(&[]).await;
    let ends = now() + 2;
    let claims = json!({
        "sub": "7", "role": "buyer", "iss": "seckill", "aud": "seckill-api",
        "iat": now(), "exp": ends,
    });
    let token = sign(HEADER, &claims.to_string());
    let (mut accepted, mut refused) = (0, 0);
    while refused == 0 {
        let before = now();
        assert!(before < ends + 5, "it is still accepted");
        match service.get("/api/orders", &token).await.status.as_u16() {
            200 => {
                assert!(before < ends, "accepted when it had ended");
                accepted += 1;
            }
            401 => {
                assert!(now() >= ends, "refused before its end");
                refused += 1;
            }
            status => panic!("{status}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(accepted > 0);
}

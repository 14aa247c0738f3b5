//! Texts that mean something to a database, a script or a shell, in every place that takes text.

use std::fmt::Write;
use std::time::{Duration, Instant};

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;
use serde_json::json;

use crate::caller::{Caller, bearer, contents, keys};
use crate::support::{Service, login_body, token, voucher_body};

/// A line each.
const PAYLOADS: &str = r#"'
"
`
\
''
' OR '1'='1
' OR 1=1 -- 
" OR ""="
1 OR 1=1
1'--
1; DROP TABLE orders
1;DELETE FROM users;--
1 UNION SELECT phone FROM users
1 AND SLEEP(30)
' AND SLEEP(30) AND '1
1 AND BENCHMARK(1000000000,MD5(1))
1/**/OR/**/1
1%27%20OR%201=1
’ OR 1=1
＇ OR 1=1
¿' OR 1=1
1e0
0x31
1.0
-1
1,2
١
{1}
}{
lock:order:*
*
$(sleep 30)
`sleep 30`
| sleep 30
${jndi:ldap://127.0.0.1/a}
{{7*7}}
../../etc/passwd
return redis.call('FLUSHALL')
<script>alert(1)</script>"#;
/// Control characters and broken UTF-8: bytes that no line of a program can hold.
const CONTROLS: [&str; 6] =
    [" 1", "1 ", "1\u{0}", "1\r\nSET x y", "\r\nDEL login", "\u{7f}\u{1b}[2J"];
/// Nothing that was to sleep for 30 s or to count for longer did.
const PROMPT_WITHIN: Duration = Duration::from_secs(15);

fn payloads() -> impl Iterator<Item = &'static str> {
    PAYLOADS.lines().chain(CONTROLS)
}

/// Every byte escaped, so that it arrives as it is.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes() {
        write!(escaped, "%{byte:02X}").expect("a string takes everything");
    }
    escaped
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_or_query_that_is_no_number_is_refused_unread() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    caller.voucher(5).await;
    let before = contents(&service.place).await;
    let admin = bearer(&token(1, Role::Admin));
    let routes = [
        (Method::GET, "/api/vouchers/PAYLOAD", ""),
        (Method::POST, "/api/vouchers/PAYLOAD/orders", ""),
        (Method::GET, "/api/orders/PAYLOAD", ""),
        (Method::POST, "/api/orders/PAYLOAD/pay", ""),
        (Method::POST, "/api/orders/PAYLOAD/cancel", ""),
        (Method::GET, "/api/orders?limit=PAYLOAD", ""),
        (Method::GET, "/api/orders?cursor=PAYLOAD", ""),
        (Method::GET, "/api/orders?PAYLOAD=1", ""),
        (Method::PATCH, "/api/admin/vouchers/PAYLOAD", r#"{"title":"x"}"#),
        (Method::DELETE, "/api/admin/vouchers/PAYLOAD", ""),
        (Method::POST, "/api/admin/vouchers/PAYLOAD/on-sale", ""),
        (Method::POST, "/api/admin/vouchers/PAYLOAD/stock", r#"{"units":1}"#),
        (Method::GET, "/api/admin/vouchers/PAYLOAD/audit", ""),
    ];
    for (method, template, body) in routes {
        for payload in payloads() {
            let path = template.replace("PAYLOAD", &escaped(payload));
            let request = caller.raw((method.clone(), &path), body).header(AUTHORIZATION, &admin);
            let started = Instant::now();
            let answer = caller.refused(&format!("{path} {payload}"), request).await;
            assert_eq!(answer.status, 400, "{method} {template} {payload}: {}", answer.body);
            assert!(
                started.elapsed() < PROMPT_WITHIN,
                "{template} {payload}: {:?}",
                started.elapsed()
            );
        }
    }
    assert_eq!(contents(&service.place).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_with_a_payload_is_refused_and_leaves_no_key() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let before = (contents(&service.place).await, keys(&service.place).await);
    let none = "0".repeat(32);
    for payload in payloads() {
        // The sixth is what is left of it if something cuts it to a code's six characters.
        let six: String = payload.chars().chain("xxxxxx".chars()).take(6).collect();
        for (path, body) in [
            ("/api/login/codes", json!({"phone": payload})),
            ("/api/login/codes", json!({"phone": format!("13800000001{payload}")})),
            ("/api/login", json!({"phone": payload, "challenge": none, "code": "123456"})),
            ("/api/login", login_body(payload)),
            ("/api/login", login_body(&six)),
            ("/api/login", json!({"phone": "13800000001", "challenge": payload, "code": "123456"})),
        ] {
            let request = caller.raw((Method::POST, path), body.to_string());
            let started = Instant::now();
            let answer = caller.refused(&body.to_string(), request).await;
            assert!(matches!(answer.status.as_u16(), 400 | 401), "{body}: {}", answer.body);
            assert!(started.elapsed() < PROMPT_WITHIN, "{body}: {:?}", started.elapsed());
        }
    }
    assert_eq!((contents(&service.place).await, keys(&service.place).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_for_customers_is_kept_to_the_letter() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let admin = token(1, Role::Admin);
    let mut stored = 0;
    for payload in payloads().chain(["\u{1f35c}\u{fffd}", "\u{1f35c}\u{202e}", "e\u{301}"]) {
        let mut body = voucher_body(1);
        body["title"] = json!(payload);
        body["description"] = json!(payload);
        let answer = caller.post("/api/admin/vouchers", &admin, body).await;
        if payload.chars().any(|c| c.is_control() || c == '\u{202e}') {
            assert_eq!(answer.problem(400), "invalid_body", "{payload:?}");
            continue;
        }
        let voucher = &answer.expect(201)["voucher"];
        assert_eq!(
            (&voucher["title"], &voucher["description"]),
            (&json!(payload), &json!(payload))
        );
        stored += 1;
    }
    assert_eq!(contents(&service.place).await["vouchers"].0, stored);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_in_a_header_is_only_text() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let before = contents(&service.place).await;
    for payload in payloads() {
        for name in ["x-request-id", "authorization", "cookie", "user-agent", "accept", "host"] {
            let Ok(value) = reqwest::header::HeaderValue::from_str(payload) else { continue };
            let request = caller.request(Method::GET, "/api/me").header(name, value);
            let answer = caller.refused(&format!("{name}: {payload}"), request).await;
            assert_eq!(answer.status, 401, "{name}: {payload}");
        }
    }
    assert_eq!(contents(&service.place).await, before);
}

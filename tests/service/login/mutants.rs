//! Tokens that were not made with the secret: every one is refused, by the verifier and over HTTP.

use reqwest::Method;
use reqwest::header::{AUTHORIZATION, HeaderValue};
use ring::hmac::{HMAC_SHA256, HMAC_SHA384, HMAC_SHA512};
use seckill::domain::Role;
use seckill::token::Tokens;
use serde_json::json;

use super::mint::{HEADER, base64, claims, claims_with, sign, sign_as, sign_by};
use crate::caller::{Caller, bearer, contents};
use crate::support::{SECRET, Service, token};
use crate::wire;

/// A good token of an admin, in its three parts.
fn parts() -> [String; 3] {
    let token = token(1, Role::Admin);
    let mut parts = token.split('.').map(str::to_owned);
    std::array::from_fn(|_| parts.next().expect("three parts"))
}

/// The header says that there is no signature, in every spelling.
fn unsigned() -> Vec<String> {
    let mut mutants = Vec::new();
    let [_, claims, signature] = parts();
    for algorithm in ["none", "None", "NONE", "nOnE", "", "null", " none", "none\\u0000", "HS256 "]
    {
        for header in [
            format!(r#"{{"typ":"JWT","alg":"{algorithm}"}}"#),
            format!(r#"{{"alg":"{algorithm}"}}"#),
            format!(r#"{{"alg":"{algorithm}","typ":"JWT","kid":"0"}}"#),
        ] {
            for end in ["", signature.as_str(), "AA"] {
                mutants.push(format!("{}.{claims}.{end}", base64(&header)));
            }
        }
    }
    for header in [r#"{"typ":"JWT"}"#, r#"{"alg":null}"#, r#"{"alg":["HS256"]}"#, "{}", "[]", ""] {
        mutants.push(format!("{}.{claims}.{signature}", base64(header)));
        mutants.push(format!("{}.{claims}.", base64(header)));
    }
    mutants
}

/// The header names another algorithm, and the signature is one of the secret after all.
fn other_algorithms() -> Vec<String> {
    let mut mutants = Vec::new();
    let names = "HS384 HS512 RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 ES256K EdDSA \
        hs256 Hs256 HS-256 HMAC dir A256KW";
    for algorithm in names.split(' ') {
        let header = format!(r#"{{"typ":"JWT","alg":"{algorithm}"}}"#);
        for by in [HMAC_SHA256, HMAC_SHA384, HMAC_SHA512] {
            mutants.push(sign_as(by, SECRET.as_bytes(), &header, &claims().to_string()));
        }
    }
    for by in [HMAC_SHA384, HMAC_SHA512] {
        mutants.push(sign_as(by, SECRET.as_bytes(), HEADER, &claims().to_string()));
    }
    mutants
}

/// Signed by what a forger may know: nothing, a public key, a file's content, a guess.
fn other_keys() -> Vec<String> {
    const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n\
                          -----END PUBLIC KEY-----\n";
    let shorter = &SECRET.as_bytes()[..SECRET.len() - 1];
    let longer = format!("{SECRET} ");
    let keys: [&[u8]; 12] = [
        b"",
        b"\0",
        b"0",
        b"secret",
        b"secret123",
        b"seckill",
        b"changeme",
        PUBLIC.as_bytes(),
        shorter,
        longer.as_bytes(),
        &[0; 32],
        b"attacker",
    ];
    let k = base64(b"attacker");
    let headers = [
        HEADER.to_owned(),
        r#"{"typ":"JWT","alg":"HS256","kid":"../../../../../../dev/null"}"#.to_owned(),
        r#"{"typ":"JWT","alg":"HS256","kid":"x' UNION SELECT '' -- "}"#.to_owned(),
        r#"{"typ":"JWT","alg":"HS256","jku":"http://127.0.0.1:1/jwks.json"}"#.to_owned(),
        r#"{"typ":"JWT","alg":"HS256","x5u":"http://127.0.0.1:1/cert.pem"}"#.to_owned(),
        format!(r#"{{"typ":"JWT","alg":"HS256","jwk":{{"kty":"oct","k":"{k}"}}}}"#),
    ];
    let claims = claims().to_string();
    keys.iter().flat_map(|key| headers.iter().map(|header| sign_by(key, header, &claims))).collect()
}

/// Good parts, put together wrongly.
fn broken_shapes() -> Vec<String> {
    let [header, claims, signature] = parts();
    let other = token(2, Role::Buyer);
    let (_, others) = other.rsplit_once('.').expect("three parts");
    let admin = base64(claims_with("sub", json!("2")));
    let good = format!("{header}.{claims}.{signature}");
    let mut mutants: Vec<String> =
        ["", ".", "..", "...", "null", &header].map(str::to_owned).into();
    mutants.extend([
        format!("{header}.{claims}"),
        format!("{header}.{claims}."),
        format!(".{claims}.{signature}"),
        format!("{header}..{signature}"),
        format!("{claims}.{header}.{signature}"),
        format!("{header}.{claims}.{others}"),
        format!("{header}.{admin}.{signature}"),
        format!("{header}=.{claims}.{signature}"),
        format!("{header} .{claims}.{signature}"),
        format!("{good}.{signature}"),
    ]);
    for (before, after) in
        [("", "."), (".", ""), ("", "=="), ("\"", "\""), ("", ",x"), ("", "\u{e9}"), ("", "%00")]
    {
        mutants.push(format!("{before}{good}{after}"));
    }
    for length in 0..signature.len() {
        mutants.push(format!("{header}.{claims}.{}", &signature[..length]));
    }
    mutants
}

/// One bit of a good token is wrong: every bit of every byte.
fn bit_flips() -> Vec<String> {
    let token = token(1, Role::Admin);
    let flip = |at: usize, bit: u32| {
        let mut bytes = token.clone().into_bytes();
        bytes[at] ^= 1 << bit;
        String::from_utf8(bytes).ok()
    };
    (0..token.len()).flat_map(|at| (0..7).filter_map(move |bit| flip(at, bit))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_mutant_of_a_token_is_accepted() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let tokens = Tokens::new(&SECRET.to_owned().into()).expect("a good secret");
    let before = contents(&service.place).await;
    let groups = [unsigned(), other_algorithms(), other_keys(), broken_shapes(), bit_flips()];
    let (mut verified, mut sent) = (0, 0);
    for mutant in groups.iter().flatten() {
        assert_eq!(tokens.verify(mutant), None, "{mutant}");
        verified += 1;
        // What no header can hold is refused before it is looked at.
        let Ok(value) = HeaderValue::try_from(bearer(mutant)) else { continue };
        let body = crate::support::voucher_body(1).to_string();
        let request = caller.raw((Method::POST, "/api/admin/vouchers"), body);
        let answer = caller.refused(mutant, request.header(AUTHORIZATION, value)).await;
        assert_eq!(answer.problem(401), "unauthorized", "{mutant}");
        sent += 1;
    }
    println!("{verified} mutants verified, {sent} of them sent");
    assert!(verified >= 1500 && sent >= 1000, "{verified} {sent}");
    assert_eq!(contents(&service.place).await, before);
    let good = sign(HEADER, &claims().to_string());
    caller.post("/api/admin/vouchers", &good, crate::support::voucher_body(1)).await.expect(201);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tokens_are_as_bad_as_none() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let (buyer, admin) = (token(7, Role::Buyer), token(1, Role::Admin));
    for (one, two) in [(&buyer, &admin), (&admin, &buyer), (&buyer, &buyer)] {
        let request = caller.request(Method::GET, "/api/orders");
        let request = request.header(AUTHORIZATION, bearer(one)).header(AUTHORIZATION, bearer(two));
        assert_eq!(caller.refused("twice", request).await.problem(401), "unauthorized");
    }
    // A token anywhere else is none.
    for path in [format!("/api/orders?token={buyer}"), format!("/api/orders?access_token={buyer}")]
    {
        let answer = caller.refused(&path, caller.request(Method::GET, &path)).await;
        assert_eq!(answer.problem(401), "unauthorized");
    }
    let request =
        caller.request(Method::GET, "/api/orders").header("cookie", format!("token={buyer}"));
    assert_eq!(caller.refused("cookie", request).await.problem(401), "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_megabyte_is_refused_at_once() {
    let tokens = Tokens::new(&SECRET.to_owned().into()).expect("a good secret");
    let long = claims_with("sub", json!("1".repeat(1_000_000)));
    let started = std::time::Instant::now();
    for token in [
        "A".repeat(1_000_000),
        ".".repeat(1_000_000),
        format!("{}.A.A", "A".repeat(1_000_000)),
        sign_by(b"attacker", HEADER, &long),
        sign(HEADER, &long),
    ] {
        assert_eq!(tokens.verify(&token), None);
    }
    assert!(started.elapsed().as_secs() < 5, "{:?}", started.elapsed());

    let service = Service::start(&[]).await;
    let token = "A".repeat(1_000_000);
    let request =
        format!("GET /api/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n");
    let heard = wire::exchange(&service.url, request.as_bytes(), wire::SILENCE).await;
    assert_eq!(heard.statuses(), [431], "{}", heard.text);
}

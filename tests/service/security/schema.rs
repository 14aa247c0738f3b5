//! Bodies that are not what the API takes: about a hundred and more for each operation.

use reqwest::Method;
use reqwest::header::AUTHORIZATION;
use seckill::domain::Role;

use crate::caller::{Caller, bearer, contents, keys};
use crate::support::{Service, token};

/// No JSON object at all, or not one alone, or one of something else; a line each.
const DOCUMENTS: &str = r#"null
true
false
0
-1
1e400
NaN
Infinity
""
"{}"
[]
[{}]
[null]
[1,2]
{
}
{}}
{{}
{}{}
{},
,{}
{} x
{}//
/**/{}
{,}
{"a"}
{"a":}
{"a":1,}
{a:1}
{'a':1}
{"a":1 "b":2}
{"":1}
{"a":undefined}
{"a":NaN}
{"a":1e400}
{"id":"1"}
{"user_id":"1"}
{"price":0}
{"stock":null}
{"ok":true}
{"a":{"b":{"c":{}}}}
{"data":{},"errors":[]}
{"0":0}
{" ":0}
{"sold":[]}
{"__proto__":{}}
{"constructor":{"prototype":{}}}
{"$ne":1}
{"$where":"sleep(3000)"}
{"@type":"java.lang.Runtime"}
{"query":"{__schema{types{name}}}"}
<a/>
<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>
a: 1
--- {}
a=1
phone=13800000001
O:8:"Class":0:{}
(1)
{"\ud800":1}
{"\x41":1}"#;

/// Bytes that no line of a program can hold: spaces alone, control characters, marks, broken UTF-8,
/// other encodings, compressed.
const BYTES: [&[u8]; 15] = [
    b" ",
    b"\r\n",
    b"{}\0",
    b"\0{}",
    b"{\x01}",
    b"\xef\xbb\xbf{}",
    b"{}\xe2\x80\xa8",
    b"{\"phone\":\"\xff\"}",
    b"\xc0\xaf",
    b"\xed\xa0\x80",
    b"{\"\xfe\":1}",
    b"\xff\xfe{\0}\0",
    b"\x1f\x8b\x08\0\0\0\0\0\0\x03\xab\xae\x05\0\x43\xbf\xa6\xa3\x02\0\0\0",
    b"\x81\xa1a\x01",
    b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--",
];

/// Values that no field takes, and none at all.
const NEVER: &str = r#"true false [] {} [1] {"a":1} NaN Infinity -Infinity 1e400 -1e400 0x10 01 +1
    .5 1. undefined 'a' "\ud800" "\x41" "\u0000" , " \"#;
const NO_TEXT: &str = "0 1 -1 1.5 9223372036854775808";
const NO_WHOLE: &str = r#"-1 1.5 1.0 1e2 -0 "1" "" 18446744073709551616 10000000001 1e-1
    9223372036854775807 9223372036854775808 -9223372036854775809"#;
const NO_UNITS: &str = "0 1000001 4294967297";
const NO_MOMENT: &str = r#""" "now" "2026-01-01" "2026-13-01T00:00:00Z" "2026-02-30T00:00:00Z"
    "2026-01-01T00:00:00" "2026-01-01T25:00:00Z" "1999-12-31T23:59:59Z" "9000-01-01T00:00:00Z"
    "0000-01-01T00:00:00Z" "-2026-01-01T00:00:00Z" "2026-01-01T00:00:00+99:99" 1767225600
    "99999-01-01T00:00:00Z""#;
const NO_PHONE: &str = r#""" "+" "12345" "1234567890123456" "++123456" "123-456" "123456\u0020"
    "\r\n123456" "\uff11\uff12\uff13\uff14\uff15\uff16" "12345a""#;
const NO_CODE: &str = r#""" "12345" "1234567" "\u0661\u0661""#;
const NO_TITLE: &str = r#""" "a\u0007" "a\u009f" "a\r\nb""#;

/// A field's name, a value that it takes, and lists of those that it does not.
type Field = (&'static str, &'static str, &'static [&'static str]);

/// An operation, a body it takes, and for each field what it does not take.
struct Operation {
    method: Method,
    path: &'static str,
    good: &'static [Field],
    /// Whether a field may be missing.
    partial: bool,
}

const WHOLE: &[&str] = &[NEVER, NO_WHOLE];
const TEXT: &[&str] = &[NEVER, NO_TEXT];
const MOMENT: &[&str] = &[NEVER, NO_TEXT, NO_MOMENT];
const UNITS: &[&str] = &[NEVER, NO_WHOLE, NO_UNITS];
const TITLE: &[&str] = &[NEVER, NO_TEXT, NO_TITLE];
const PHONE: Field = ("phone", "\"13800000001\"", &[NEVER, NO_TEXT, NO_PHONE]);

const CHALLENGE: Field =
    ("challenge", "\"00000000000000000000000000000000\"", &[NEVER, NO_TEXT, NO_CODE]);

const OPERATIONS: [Operation; 7] = [
    Operation { method: Method::POST, path: "/api/login/codes", good: &[PHONE], partial: false },
    Operation {
        method: Method::POST,
        path: "/api/login",
        good: &[PHONE, CHALLENGE, ("code", "\"123456\"", &[NEVER, NO_TEXT, NO_CODE])],
        partial: false,
    },
    Operation {
        method: Method::POST,
        path: "/api/admin/vouchers",
        good: &[
            ("title", "\"t\"", TITLE),
            ("description", "\"d\"", TEXT),
            ("price_cents", "1", WHOLE),
            ("face_value_cents", "1", WHOLE),
            ("starts_at", "\"2026-01-01T00:00:00Z\"", MOMENT),
            ("ends_at", "\"2027-01-01T00:00:00Z\"", MOMENT),
            ("stock", "1", UNITS),
        ],
        partial: false,
    },
    Operation {
        method: Method::PATCH,
        path: "/api/admin/vouchers/ID",
        good: &[
            ("title", "\"Dinner for two\"", TITLE),
            ("description", "\"Valid on weekdays.\"", TEXT),
            ("price_cents", "8000", WHOLE),
            ("starts_at", "\"2020-01-01T00:00:00Z\"", MOMENT),
        ],
        partial: true,
    },
    Operation {
        method: Method::POST,
        path: "/api/admin/vouchers/ID/stock",
        good: &[("units", "1", UNITS)],
        partial: false,
    },
    Operation {
        method: Method::POST,
        path: "/api/admin/vouchers/ID/on-sale",
        good: &[],
        partial: true,
    },
    Operation { method: Method::POST, path: "/api/vouchers/ID/orders", good: &[], partial: true },
];

impl Operation {
    fn body(&self, name: &str, value: &str) -> String {
        let field = |(field, good, _): &Field| {
            let value = if *field == name { value } else { good };
            format!("\"{field}\":{value}")
        };
        format!("{{{}}}", self.good.iter().map(field).collect::<Vec<_>>().join(","))
    }

    fn bad_bodies(&self) -> Vec<Vec<u8>> {
        let documents = DOCUMENTS.lines().map(str::as_bytes);
        let mut bodies: Vec<_> = documents.chain(BYTES).map(<[u8]>::to_vec).collect();
        let good = self.body("", "");
        let mut add = |body: String| bodies.push(body.into_bytes());
        for (name, value, kinds) in self.good {
            for bad in kinds.iter().flat_map(|kind| kind.split_whitespace()).chain([""]) {
                add(self.body(name, bad));
            }
            add(self.body(name, &format!("{value},\"{name}\":{value}")));
            add(self.body(name, &"[".repeat(10_000)));
            add(self.body(name, &format!("\"{}\"", "x".repeat(2000))));
            add(good.replacen(name, &name.to_uppercase(), 1));
            if !self.partial {
                add(self.body(name, "null"));
                add(good.replacen(name, "other", 1));
            }
        }
        // The fields by position, as if they had no names.
        let values: Vec<_> = self.good.iter().map(|(_, value, _)| *value).collect();
        add(format!("[{}]", values.join(",")));
        add(format!("[{good}]"));
        add(format!("{{\"data\":{good}}}"));
        add(format!("{good}{good}"));
        add(format!("{good}x"));
        for length in 1..good.len() {
            add(good[..length].to_owned());
        }
        for nesting in ["[", "{\"a\":", "[{\"a\":", "{\"a\":[", "\"\\"] {
            for times in [100, 1000, 10_000 / nesting.len(), 16_000 / nesting.len()] {
                add(nesting.repeat(times));
            }
        }
        add(format!("{}{}", "[".repeat(8000), "]".repeat(8000)));
        let many = (0..1000).map(|number| format!("\"f{number}\":1")).collect::<Vec<_>>();
        add(format!("{{{}}}", many.join(",")));
        bodies
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_the_schema_is_refused_and_changes_nothing() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(1000).await;
    let admin = bearer(&token(1, Role::Admin));
    let before = (contents(&service.place).await, keys(&service.place).await);
    for operation in OPERATIONS {
        let path = operation.path.replace("ID", &id);
        let bodies = operation.bad_bodies();
        assert!(bodies.len() >= 100, "{path}: {}", bodies.len());
        println!("{} bad bodies for {} {}", bodies.len(), operation.method, operation.path);
        for body in bodies {
            let what = String::from_utf8_lossy(&body).into_owned();
            let request = caller.raw((operation.method.clone(), &path), body);
            let answer = caller.refused(&what, request.header(AUTHORIZATION, &admin)).await;
            assert_eq!(answer.problem(400), "invalid_body", "{path} {what}");
            assert!(answer.body["field"].is_string(), "it says where: {}", answer.body);
        }
    }
    assert_eq!((contents(&service.place).await, keys(&service.place).await), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bodies_that_the_bad_ones_are_made_of_are_good() {
    let service = Service::start(&[]).await;
    let caller = Caller::new(&service.url);
    let id = caller.voucher(1000).await;
    for operation in OPERATIONS {
        let path = operation.path.replace("ID", &id);
        let request = caller.raw((operation.method.clone(), &path), operation.body("", ""));
        let request = request.header(AUTHORIZATION, bearer(&token(1, Role::Admin)));
        let answer = caller.send(request).await;
        // That login code was never asked for, but it is well formed.
        let good = answer.status.is_success() || answer.body["code"] == "wrong_code";
        assert!(good, "{path}: {}", answer.body);
    }
}

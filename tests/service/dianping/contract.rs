//! Requests and answers, by the facts of the API.

use redis::AsyncCommands;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{Executor, Row};
use time::{OffsetDateTime, UtcOffset};

use super::{DianpingService, ID_EPOCH, call, counter_of, data, message, seckill_voucher};
use crate::support::{Service, client};

const PAST: [&str; 2] = ["2020-01-01T00:00:00", "2020-01-02T00:00:00"];
const FUTURE: [&str; 2] = ["2037-01-01T00:00:00", "2037-01-02T00:00:00"];
const NOW: [&str; 2] = ["2020-01-01T00:00:00", "2037-01-02T00:00:30"];

fn buy(voucher: u64) -> (Method, String) {
    (Method::POST, format!("/voucher-order/seckill/{voucher}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_buyer_gets_an_order_id_above_53_bits_and_later_requests_get_the_reason_in_chinese() {
    let api = DianpingService::start().await;
    let admin = api.login("13800000001").await;
    let mut vouchers = Vec::new();
    for (stock, window) in [(5, NOW), (5, FUTURE), (5, PAST), (0, NOW)] {
        let body = seckill_voucher(stock, window);
        let created = api.call((Method::POST, "/voucher/seckill"), &admin, body).await;
        vouchers.push(data(created).as_u64().expect("an id"));
    }
    let bob = api.login("13800000002").await;
    let ask = async |voucher: u64| {
        let (method, path) = buy(voucher);
        api.call((method, &path), &bob, Value::Null).await
    };
    let order = data(ask(vouchers[0]).await);
    let id = order.as_i64().expect("a number");
    let now = OffsetDateTime::now_utc();
    let seconds = (now - ID_EPOCH).whole_seconds();
    assert!((id >> 32) - seconds <= 0 && (id >> 32) - seconds > -10, "{id} at {seconds}");
    let count: i64 = api.redis().await.get(counter_of(now)).await.expect("a counter of the day");
    // As a peer counts, which uses what INCR answers.
    assert!((1..=count).contains(&(id & 0xffff_ffff)), "{count} {id}");
    for (voucher, reason) in [
        (vouchers[0], "不能重复下单"),
        (vouchers[1], "秒杀尚未开始"),
        (vouchers[2], "秒杀已经结束"),
        (vouchers[3], "库存不足"),
        (999_999, "优惠券不存在"),
    ] {
        assert_eq!(message(ask(voucher).await), reason, "{voucher}");
    }
    let mut database = api.database().await;
    let rows = "SELECT id, CAST(user_id AS SIGNED), CAST(voucher_id AS SIGNED), \
         CAST(status AS SIGNED), CAST(pay_type AS SIGNED) FROM tb_voucher_order";
    let rows = database.fetch_all(rows).await.expect("the orders");
    let row: Vec<i64> = (0..5).map(|at| rows[0].get(at)).collect();
    let voucher = i64::try_from(vouchers[0]).expect("an id");
    assert_eq!((rows.len(), row), (1, vec![id, 2, voucher, 1, 1]));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_id_is_a_string_for_a_client_that_asks_for_strings() {
    let api = DianpingService::start().await;
    let voucher = api.voucher(1).await;
    let token = api.login("13800000002").await;
    let url = format!("{}{}", api.service.url, buy(voucher).1);
    let request = client().post(url).header("authorization", token).header("X-Ids", "string");
    let body: Value = request.send().await.expect("an answer").json().await.expect("JSON");
    let id: i64 = body["data"].as_str().expect("a string").parse().expect("a number in it");
    assert!(id > 1 << 53, "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_login_is_401_with_an_empty_body_without_one() {
    let api = DianpingService::start().await;
    let voucher = seckill_voucher(1, NOW);
    for token in ["", "0123456789abcdef0123456789abcdef", "Bearer x", "*"] {
        for (method, path, body) in [
            (Method::GET, "/user/me", Value::Null),
            (Method::POST, "/user/logout", Value::Null),
            (Method::POST, "/voucher-order/seckill/1", Value::Null),
            (Method::POST, "/voucher", voucher.clone()),
            (Method::POST, "/voucher/seckill", voucher.clone()),
        ] {
            let answer = api.call((method, path), token, body).await;
            assert_eq!((answer.status.as_u16(), answer.body), (401, json!("")), "{path} {token}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_that_lead_to_a_voucher_have_their_data_without_nulls() {
    let api = DianpingService::start().await;
    let shop = data(api.get("/shop/1").await);
    let fields = [
        ("id", json!(1)),
        ("name", json!("茶餐厅")),
        ("typeId", json!(1)),
        ("x", json!(120.1)),
        ("avgPrice", json!(80)),
        ("openHours", json!("10:00-22:00")),
    ];
    for (name, value) in fields {
        assert_eq!(shop[name], value, "{name}");
    }
    let text = data(api.get("/shop/2").await).to_string();
    assert!(!text.contains("null") && !text.contains("area"), "{text}");
    assert_eq!(message(api.get("/shop/3").await), "店铺不存在");
    let kinds = data(api.get("/shop-type/list").await);
    assert_eq!(
        kinds,
        json!([{"id": 1, "name": "美食", "sort": 1},
        {"id": 2, "name": "KTV", "icon": "/k.png", "sort": 2}])
    );
    let ids = |list: Value| -> Vec<u64> {
        let list = list.as_array().expect("a list");
        list.iter().map(|one| one["id"].as_u64().expect("an id")).collect()
    };
    let shops = async |query| data(api.get(&format!("/shop/of/type?&{query}")).await);
    assert_eq!(ids(shops("typeId=1&current=1").await), [1, 2]);
    assert_eq!(ids(shops("typeId=1&current=2").await), [0; 0]);
    let near = shops("typeId=1&current=1&x=120.2&y=30.4&sortBy=").await;
    assert_eq!((ids(near.clone()), near[0]["distance"].as_f64()), (vec![2, 1], Some(0.0)));
    let blogs = data(api.get("/blog/hot?current=1").await);
    assert_eq!((&blogs[0]["title"], &blogs[0]["name"]), (&json!("best"), &json!("ann")));
    assert_eq!(ids(blogs), [5, 4]);
    for (path, about) in [
        ("/shop/0", "id: "),
        ("/shop/of/type", "typeId: "),
        ("/blog/hot?current=0", "current: "),
        ("/shop/of/type?typeId=1&x=200&y=0", "x: "),
    ] {
        let message = message(api.get(path).await);
        assert!(message.starts_with(about), "{path}: {message}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_own_page_has_the_users_posts_and_what_is_said_of_other_users() {
    let api = DianpingService::start().await;
    let token = api.login("13800000002").await;
    let get = async |path| api.call((Method::GET, path), &token, Value::Null).await;
    let blogs = data(get("/blog/of/me").await);
    assert_eq!((blogs.as_array().map(Vec::len), &blogs[0]["id"]), (Some(1), &json!(4)));
    assert_eq!(data(get("/blog/of/me?current=2").await), json!([]));
    let info = json!({"userId": 2, "city": "杭州", "fans": 7, "followee": 0, "gender": true,
        "birthday": "1999-12-31", "credits": 0, "level": false});
    assert_eq!(data(get("/user/info/2").await), info);
    assert_eq!(get("/user/info/1").await.expect(200), json!({"success": true}));
    for path in ["/blog/of/me", "/user/info/2"] {
        assert_eq!(api.get(path).await.status.as_u16(), 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_ids_are_drawn_from_the_counter_that_the_service_names() {
    let place = super::adopted().await;
    let start = ["--api", "hm-dianping", "--dianping-admins", "1"];
    let counter = ["--dianping-counter", "icr:order:yyyy:MM:dd"];
    let service = Service::start_at(place, &[&start[..], &counter].concat()).await;
    let api = DianpingService { service };
    let (voucher, token) = (api.voucher(1).await, api.login("13800000002").await);
    let mut redis = api.redis().await;
    let keys = [0, 1].map(|days| {
        let (year, month, day) =
            (OffsetDateTime::now_utc().date() + time::Duration::days(days)).to_calendar_date();
        format!("icr:order:{year}:{:02}:{day:02}", u8::from(month))
    });
    let (method, path) = buy(voucher);
    let id = data(api.call((method, &path), &token, Value::Null).await).as_i64().expect("an id");
    let counts: [Option<i64>; 2] = redis.mget(&keys).await.expect("the counts");
    let count = counts.into_iter().flatten().max().expect("a counter of that name");
    assert!((1..=count).contains(&(id & 0xffff_ffff)), "{count} {id}");
    let unused: Option<i64> = redis.get(counter_of(OffsetDateTime::now_utc())).await.expect("it");
    assert_eq!(unused, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shop_lists_its_vouchers_with_stock_and_times_that_have_no_zone() {
    let api = DianpingService::start().await;
    let admin = api.login("13800000001").await;
    let plain = json!({"shopId": 1, "title": "plain", "payValue": 1, "actualValue": 2});
    let plain = data(api.call((Method::POST, "/voucher"), &admin, plain).await);
    let body = seckill_voucher(7, ["2020-01-01T00:00", "2037-01-02T00:00:30.000"]);
    let sale = data(api.call((Method::POST, "/voucher/seckill"), &admin, body).await);
    let list = data(api.get("/voucher/list/1").await);
    let expected = json!([
        {"id": plain, "shopId": 1, "title": "plain", "payValue": 1, "actualValue": 2, "type": 0,
            "status": 1},
        {"id": sale, "shopId": 1, "title": "100元代金券", "subTitle": "周一至周日",
            "payValue": 8000, "actualValue": 10_000, "type": 1, "status": 1, "stock": 7,
            "beginTime": NOW[0], "endTime": NOW[1]},
    ]);
    assert_eq!(list, expected);
    assert_eq!(data(api.get("/voucher/list/2").await), json!([]));
    let stock: String = api.redis().await.get(format!("seckill:stock:{sale}")).await.expect("it");
    assert_eq!(stock, "7", "for replicas whose sale is a script");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_admin_creates_vouchers_and_a_wrong_field_is_named() {
    let api = DianpingService::start().await;
    let bob = api.login("13800000002").await;
    let admin = api.login("13800000001").await;
    let create = async |token: &str, body: Value| {
        message(api.call((Method::POST, "/voucher/seckill"), token, body).await)
    };
    assert_eq!(create(&bob, seckill_voucher(1, NOW)).await, "没有权限");
    for (field, value) in [
        ("title", json!("")),
        ("stock", json!(-1)),
        ("shopId", json!(0)),
        ("beginTime", json!("2026-01-01 00:00:00")),
        ("endTime", json!(PAST[0])),
    ] {
        let mut body = seckill_voucher(1, NOW);
        body[field] = value;
        let message = create(&admin, body).await;
        assert!(message.contains(':') && message != "服务器异常", "{field}: {message}");
    }
    let rows = "SELECT 1 FROM tb_voucher";
    assert!(api.database().await.fetch_all(rows).await.expect("a list").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn times_are_those_of_the_zone_that_the_service_has() {
    let place = super::adopted().await;
    let begin = |ahead: time::Duration, zone: UtcOffset| {
        let local = (OffsetDateTime::now_utc() + ahead).to_offset(zone);
        let form =
            time::macros::format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
        local.format(form).expect("a time")
    };
    let east = UtcOffset::from_hms(8, 0, 0).expect("a zone");
    let start = ["--api", "hm-dianping", "--dianping-admins", "1", "--dianping-zone", "+08:00"];
    let service = Service::start_at(place, &start).await;
    let api = DianpingService { service };
    let admin = api.login("13800000001").await;
    let minute = time::Duration::MINUTE;
    for (from, expected) in [(-minute, true), (minute, false)] {
        let window = [&*begin(from, east), "2037-01-01T00:00:00"];
        let body = seckill_voucher(1, window);
        let id = data(api.call((Method::POST, "/voucher/seckill"), &admin, body).await);
        let (method, path) = buy(id.as_u64().expect("an id"));
        let answer = call(&api.service.url, (method, &path), &admin, Value::Null).await;
        assert_eq!(answer.body["success"], json!(expected), "{from}: {}", answer.body);
    }
}

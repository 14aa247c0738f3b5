//! The API of hm-dianping, on its own tables and keys.

mod adopt;
mod commit;
mod contract;
mod logins;
mod peer;
mod race;

use std::time::Duration;

use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use reqwest::Method;
use seckill::store::dianping::{AdoptMode, adopt};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, MySqlConnection};
use time::OffsetDateTime;

use crate::support::{Answer, Place, Service, client};

/// Two shops of a kind, in columns that show leading zeros as hm-dianping's own do, and users 1 (an
/// admin of the tests) and 2.
const ROWS: &str = "\
    ALTER TABLE tb_shop MODIFY sold INT(10) UNSIGNED ZEROFILL NOT NULL DEFAULT 0, \
        MODIFY comments INT(10) UNSIGNED ZEROFILL NOT NULL DEFAULT 0, \
        MODIFY score INT(2) UNSIGNED ZEROFILL NOT NULL DEFAULT 0; \
    INSERT INTO tb_shop_type (id, name, icon, sort) VALUES (2, 'KTV', '/k.png', 2), \
        (1, '美食', NULL, 1); \
    INSERT INTO tb_shop (id, name, type_id, images, area, x, y, avg_price, open_hours) VALUES \
        (1, '茶餐厅', 1, 'a.jpg', '大关', 120.1, 30.3, 80, '10:00-22:00'), \
        (2, '火锅', 1, 'b.jpg', NULL, 120.2, 30.4, NULL, NULL); \
    INSERT INTO tb_user (id, phone, nick_name, icon) VALUES (1, '13800000001', 'ann', '/a.png'), \
        (2, '13800000002', 'bob', ''); \
    INSERT INTO tb_blog (id, shop_id, user_id, title, images, content, liked) VALUES \
        (4, 1, 2, 'good', 'c.jpg', 'tea', 1), (5, 1, 1, 'best', 'd.jpg', 'rice', 9); \
    INSERT INTO tb_user_info (user_id, city, fans, gender, birthday) VALUES \
        (2, '杭州', 7, 1, '1999-12-31')";

/// A service of the API at a place of its own, with the rows above.
pub(crate) struct DianpingService {
    pub(crate) service: Service,
}

impl DianpingService {
    pub(crate) async fn start() -> Self {
        let place = adopted().await;
        Self { service: serve(place).await }
    }

    /// A request with that token.
    pub(crate) async fn call(&self, route: (Method, &str), token: &str, body: Value) -> Answer {
        call(&self.service.url, route, token, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call((Method::GET, path), "", Value::Null).await
    }

    /// The token of a login with that phone.
    pub(crate) async fn login(&self, phone: &str) -> String {
        let path = format!("/user/code?phone={phone}");
        let code = self.call((Method::POST, &path), "", Value::Null).await;
        let code = data(code).as_str().expect("a code").to_owned();
        let body = json!({"phone": phone, "code": code, "password": ""});
        let token = self.call((Method::POST, "/user/login"), "", body).await;
        data(token).as_str().expect("a token").to_owned()
    }

    /// A voucher of a flash sale from yesterday until tomorrow, created by the admin.
    pub(crate) async fn voucher(&self, stock: i64) -> u64 {
        let admin = self.login("13800000001").await;
        let body = seckill_voucher(stock, ["2020-01-01T00:00:00", "2037-01-01T00:00:00"]);
        let created = self.call((Method::POST, "/voucher/seckill"), &admin, body).await;
        data(created).as_u64().expect("an id")
    }

    pub(crate) async fn database(&self) -> MySqlConnection {
        connect(&self.service.place).await
    }

    pub(crate) async fn redis(&self) -> MultiplexedConnection {
        redis(&self.service.place).await
    }
}

/// The second 0 of order ids.
pub(crate) const ID_EPOCH: OffsetDateTime = time::macros::datetime!(2022-01-01 0:00 UTC);

/// The key of the counter that order ids of that day are drawn from.
pub(crate) fn counter_of(now: OffsetDateTime) -> String {
    let (year, month, day) = now.to_calendar_date();
    format!("icr:order:{year}{:02}{day:02}", u8::from(month))
}

/// A place with the tables of hm-dianping and the rows above.
pub(crate) async fn adopted() -> Place {
    let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
    adopt(&place.database_url, AdoptMode::Refuse, &mut drop).await.expect("it is adopted");
    let mut database = connect(&place).await;
    database.execute(sqlx::raw_sql(ROWS)).await.expect("the rows");
    place
}

pub(crate) async fn serve(place: Place) -> Service {
    Service::start_at(place, &["--api", "hm-dianping", "--dianping-admins", "1"]).await
}

pub(crate) async fn connect(place: &Place) -> MySqlConnection {
    let mut database = MySqlConnection::connect(&place.database_url).await.expect("the database");
    database.execute("SET time_zone = 'SYSTEM'").await.expect("the server's zone");
    database
}

pub(crate) async fn redis(place: &Place) -> MultiplexedConnection {
    let client = redis::Client::open(place.redis_url.as_str()).expect("an address of Redis");
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(10)));
    client.get_multiplexed_async_connection_with_config(&config).await.expect("Redis")
}

/// A request to that service; an empty token is none, and null is no body.
pub(crate) async fn call(
    url: &str,
    (method, path): (Method, &str),
    token: &str,
    body: Value,
) -> Answer {
    let mut request = client().request(method, format!("{url}{path}"));
    if !token.is_empty() {
        request = request.header("authorization", token);
    }
    if !body.is_null() {
        request = request.json(&body);
    }
    Answer::of(request.send().await.expect("an answer")).await
}

/// The data of a success; the envelope has nothing else.
pub(crate) fn data(answer: Answer) -> Value {
    let mut body = answer.expect(200);
    let data = body["data"].take();
    assert_eq!(body, json!({"success": true, "data": null}), "{data}");
    data
}

/// The message of a refusal; the envelope has nothing else.
pub(crate) fn message(answer: Answer) -> String {
    let mut body = answer.expect(200);
    let message = body["errorMsg"].take();
    assert_eq!(body, json!({"success": false, "errorMsg": null}), "{message}");
    message.as_str().expect("a message").to_owned()
}

pub(crate) fn seckill_voucher(stock: i64, [begin, end]: [&str; 2]) -> Value {
    json!({
        "shopId": 1, "title": "100元代金券", "subTitle": "周一至周日", "payValue": 8000,
        "actualValue": 10_000, "type": 1, "stock": stock, "beginTime": begin, "endTime": end,
    })
}

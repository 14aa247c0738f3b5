//! What the tests share: the servers, a service of one's own, and a client.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use reqwest::{Client, Method, Response, StatusCode};
use seckill::app::App;
use seckill::config::{Cli, Command};
use seckill::domain::{Role, UserId};
use seckill::token::{Identity, Tokens};
use serde_json::{Value, json};
use sqlx::{Connection, Executor, MySqlConnection};
use testbed::{Bed, Database, Flavor, Proxy, Redis, RedisOptions};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Signs the tokens of all tests.
pub(crate) const SECRET: &str = "tests-only-0123456789-abcdefghij";
/// The most tests of this binary that need a Redis database.
const REDIS_DATABASES: u32 = 1024;

/// The servers of this test binary; the bed takes them down when the process ends.
pub(crate) struct Servers {
    pub(crate) bed: Bed,
    pub(crate) redis: Redis,
    pub(crate) database: Database,
}

/// The shared servers, started by the first test that asks.
pub(crate) fn servers() -> &'static Servers {
    static SERVERS: OnceLock<Servers> = OnceLock::new();
    SERVERS.get_or_init(|| {
        let bed = Bed::start().expect("a private bed");
        let options = RedisOptions {
            user: Some("seckill".to_owned()),
            rights: Some(least_rights()),
            extra: vec![format!("databases {REDIS_DATABASES}")],
            ..RedisOptions::default()
        };
        let redis = bed.redis(options).expect("Redis is installed");
        let database = bed.database(Flavor::Any).expect("MariaDB or MySQL is installed");
        Servers { bed, redis, database }
    })
}

/// What the service's user of Redis may do where it ships, and choose another database.
pub(crate) fn least_rights() -> String {
    let rules = include_str!("../../deploy/redis.acl").lines();
    let rules: Vec<_> = rules.filter(|line| !line.starts_with('#')).collect();
    format!("{} +select", rules.join(" "))
}

/// Addresses of a database and a Redis database that no other test uses. The login to Redis may do
/// everything, so that tests can look; a service there has the least rights.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) database_url: String,
    pub(crate) redis_url: String,
}

impl Place {
    pub(crate) fn fresh() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        assert!(number < REDIS_DATABASES, "raise REDIS_DATABASES");
        let name = format!("test_{number}");
        servers().database.create_database(&name).expect("a database of one's own");
        let redis = servers().redis.admin_url().trim_end_matches("/0");
        let database_url = servers().database.url(&name);
        make_admins(&database_url);
        Self { database_url, redis_url: format!("{redis}/{number}") }
    }

    /// The address of Redis with the login of the service, where that is the shared server.
    pub(crate) fn service_redis_url(&self) -> String {
        let login = |url: &str| url[..=url.find('@').expect("a login")].to_owned();
        let redis = &servers().redis;
        self.redis_url.replace(&login(redis.admin_url()), &login(redis.url()))
    }

    /// How long services wait for an answer of this Redis. The shared one is stopped by no test:
    /// what is late there says something of the machine alone.
    pub(crate) fn redis_timeout_ms(&self) -> &'static str {
        let is_shared = self.redis_url.contains(&servers().redis.addr().to_string());
        if is_shared { "10000" } else { "500" }
    }

    /// A proxy in front of the database, and the place as seen through it.
    pub(crate) fn database_through_proxy(&self) -> (Proxy, Self) {
        let database = servers().database.addr();
        let proxy = Proxy::before(database).expect("a proxy");
        let database_url = proxy.instead_of(database, &self.database_url);
        (proxy, Self { database_url, redis_url: self.redis_url.clone() })
    }

    /// Makes the place's Redis reachable through a proxy.
    pub(crate) fn redis_through_proxy(&self) -> (Proxy, Self) {
        let redis = servers().redis.addr();
        let proxy = Proxy::before(redis).expect("a proxy");
        let redis_url = proxy.instead_of(redis, &self.redis_url);
        (proxy, Self { database_url: self.database_url.clone(), redis_url })
    }
}

/// Users 1 and 9, the admins of the tests: routes of admins read the role from the database.
pub(crate) fn make_admins(database_url: &str) {
    let make = async {
        let mut database = MySqlConnection::connect(database_url).await.expect("the database");
        let users = include_str!("../../migrations/0001_users.sql");
        database.execute(sqlx::raw_sql(users)).await.expect("the table of users");
        let admins = "INSERT INTO users (id, phone, role) VALUES \
            (1, '+8613800009001', 'admin'), (9, '+8613800009009', 'admin')";
        database.execute(sqlx::raw_sql(admins)).await.expect("two admins");
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // A thread of its own: the caller's may have a runtime already.
    let run = || runtime.expect("a runtime").block_on(make);
    std::thread::scope(|scope| scope.spawn(run).join().expect("two admins"));
}

/// A service in this process, with its real router and server.
pub(crate) struct Service {
    pub(crate) url: String,
    pub(crate) place: Place,
    end: CancellationToken,
    task: JoinHandle<()>,
}

impl Service {
    /// A service with `--dev` and more flags, at a place of its own.
    pub(crate) async fn start(flags: &[&str]) -> Self {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        Self::start_at(place, flags).await
    }

    /// Starts a service at that place.
    pub(crate) async fn start_at(place: Place, flags: &[&str]) -> Self {
        let app = app(&place, flags).await.expect("the service starts");
        let url = format!("http://{}", app.address().expect("an address"));
        let end = CancellationToken::new();
        let task = tokio::spawn(app.run(end.clone().cancelled_owned()));
        Self { url, place, end, task }
    }

    /// Starts a service at a place of its own, with a proxy on its way to Redis.
    pub(crate) async fn start_through_redis_proxy(flags: &[&str]) -> (Proxy, Self) {
        let place = tokio::task::spawn_blocking(Place::fresh).await.expect("a place");
        let (proxy, through) = place.redis_through_proxy();
        (proxy, Self::start_at(through, flags).await)
    }

    /// Ends it as SIGTERM does.
    pub(crate) async fn stop(self) {
        self.end.cancel();
        self.task.await.expect("the service ends without a panic");
    }

    /// A request; `token` as a bearer, `body` as JSON.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        body: Option<Value>,
    ) -> Answer {
        let mut request = client().request(method, format!("{}{path}", self.url));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        Answer::of(request.send().await.expect("an answer")).await
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        self.call(Method::GET, path, Some(token), None).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        self.call(Method::POST, path, Some(token), Some(body)).await
    }

    /// A voucher that is on sale now, with that stock; its id.
    pub(crate) async fn voucher(&self, stock: u32) -> String {
        self.voucher_in_buckets(stock, 1).await
    }

    /// A voucher that is on sale now, with its stock in that number of buckets; its id.
    pub(crate) async fn voucher_in_buckets(&self, stock: u32, buckets: u32) -> String {
        let (admin, mut body) = (token(1, Role::Admin), voucher_body(stock));
        body["stock_buckets"] = buckets.into();
        let created = self.post("/api/admin/vouchers", &admin, body).await;
        let id = created.expect(201)["voucher"]["id"].as_str().expect("an id").to_owned();
        let path = format!("/api/admin/vouchers/{id}/on-sale");
        self.post(&path, &admin, json!({})).await.expect(200);
        id
    }

    /// The purchase of that user.
    pub(crate) async fn buy(&self, voucher: &str, user: u64) -> Answer {
        let path = format!("/api/vouchers/{voucher}/orders");
        self.call(Method::POST, &path, Some(&token(user, Role::Buyer)), None).await
    }

    /// The audit of a voucher.
    pub(crate) async fn audit(&self, voucher: &str) -> Value {
        let path = format!("/api/admin/vouchers/{voucher}/audit");
        self.get(&path, &token(1, Role::Admin)).await.expect(200)
    }
}

/// Starts the app at that place; the error is what the command line would print.
pub(crate) async fn app(place: &Place, flags: &[&str]) -> anyhow::Result<App> {
    let mut line = vec!["seckill", "serve", "--dev", "--bind", "127.0.0.1:0"];
    let redis_url = place.service_redis_url();
    line.extend(["--database-url", &place.database_url, "--redis-url", &redis_url]);
    if !flags.contains(&"--redis-timeout-ms") {
        line.extend(["--redis-timeout-ms", place.redis_timeout_ms()]);
    }
    line.extend(["--jwt-secret", SECRET, "--drain-delay-ms", "0"]);
    line.extend(flags);
    match Cli::parse_from(line).command {
        Command::Serve(config) => App::start(&config).await,
        _ => unreachable!("the line says serve"),
    }
}

/// A voucher that is on sale from yesterday until tomorrow.
pub(crate) fn voucher_body(stock: u32) -> Value {
    json!({
        "title": "Dinner for two", "description": "Valid on weekdays.",
        "price_cents": 8000, "face_value_cents": 10_000, "stock": stock,
        "starts_at": "2020-01-01T00:00:00Z", "ends_at": "2120-01-01T00:00:00Z",
    })
}

/// A well formed login with that code, of a challenge that does not exist.
pub(crate) fn login_body(code: &str) -> Value {
    json!({"phone": "13800000001", "challenge": "0".repeat(32), "code": code})
}

/// A token for that user; users need not exist to buy.
pub(crate) fn token(user: u64, role: Role) -> String {
    let tokens = Tokens::new(&SECRET.to_owned().into()).expect("a good secret");
    let identity = Identity { user: UserId(user), role };
    tokens.issue(identity, Duration::from_hours(1)).expect("a token").0
}

/// One client for all tests; it gives up after 20 s.
pub(crate) fn client() -> &'static Client {
    static CLIENT: OnceLock<Client> = OnceLock::new();
    CLIENT.get_or_init(|| {
        // Connections are not kept: each test has a runtime of its own, and they would die with it.
        let builder = Client::builder().pool_max_idle_per_host(0).no_proxy();
        builder.timeout(Duration::from_secs(20)).build().expect("a client")
    })
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.expect("the answer's body");
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    /// The body, if the status is that one.
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// The problem's code, if the status is that one and the body is a problem.
    pub(crate) fn problem(&self, status: u16) -> &str {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        self.body["code"].as_str().expect("a code")
    }
}

/// Waits until the condition holds; panics with `what` after 10 s.
pub(crate) async fn eventually(what: &str, holds: impl AsyncFnMut() -> bool) {
    eventually_within(10, what, holds).await;
}

/// Waits until the condition holds; panics with `what` after that many seconds.
pub(crate) async fn eventually_within(seconds: u64, what: &str, holds: impl AsyncFnMut() -> bool) {
    let in_time = within(Duration::from_secs(seconds), holds).await;
    assert!(in_time, "not within {seconds} s: {what}");
}

/// Waits until the condition holds; whether it did in that time.
pub(crate) async fn within(time: Duration, mut holds: impl AsyncFnMut() -> bool) -> bool {
    let deadline = Instant::now() + time;
    while !holds().await {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

//! Many buyers, each of whom asks once, and what must be true of their answers afterwards.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use reqwest::{Client, RequestBuilder};
use seckill::domain::Role;
use sqlx::MySqlPool;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::{Answer, client, eventually, token};

/// Longer than anything a purchase may take.
const PURCHASE_TIMEOUT: Duration = Duration::from_mins(1);
/// Between two purchases of one buyer's place, so that refusals at once do not take up the machine.
const PURCHASE_INTERVAL: Duration = Duration::from_millis(5);

/// A purchase and its answer, or what went wrong on the way.
pub(crate) struct Try {
    pub(crate) user: u64,
    pub(crate) sent: Instant,
    pub(crate) took: Duration,
    pub(crate) answer: Result<Answer, String>,
}

/// What an answer proves.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The order with that id exists.
    Bought(u64),
    /// There is no order, and there will be none.
    Refused,
    /// Nothing.
    Unknown,
}

impl Try {
    /// Whether it was refused for the moment: by a service that is busy, or beside an earlier
    /// purchase that is under way.
    pub(crate) fn asks_for_another(&self) -> bool {
        let words = self.words();
        words.starts_with("503 ") || words == r#"409 "order_in_progress""#
    }

    pub(crate) fn fate(&self) -> Fate {
        let Ok(answer) = &self.answer else { return Fate::Unknown };
        let problem = answer.body["code"].is_string();
        match answer.status.as_u16() {
            201 => Fate::Bought(order_id(answer)),
            400..500 if problem => Fate::Refused,
            503 if answer.body["executed"] == false => Fate::Refused,
            _ => Fate::Unknown,
        }
    }

    /// The status and the code, for messages.
    pub(crate) fn words(&self) -> String {
        match &self.answer {
            Ok(answer) => format!("{} {}", answer.status.as_u16(), answer.body["code"]),
            Err(error) => error.clone(),
        }
    }
}

/// The id in an answer that says 201.
fn order_id(answer: &Answer) -> u64 {
    let id = answer.body["order"]["id"].as_str().and_then(|id| id.parse().ok());
    id.unwrap_or_else(|| panic!("no order id in {}", answer.body))
}

/// The purchase of that user at that address.
pub(crate) async fn buy_at(url: &str, voucher: &str, user: u64) -> Try {
    told(user, purchase(client(), url, voucher, user)).await
}

/// Buys until the answer is definite, for a minute at most: servers may stand still, and a replica
/// that finds them so refuses. An earlier purchase may be under way. All its purchases, in order.
pub(crate) async fn buy_until_told(url: &str, voucher: &str, user: u64) -> Vec<Try> {
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut tries = Vec::new();
    loop {
        let one = buy_at(url, voucher, user).await;
        let told = one.fate() != Fate::Unknown && !one.asks_for_another();
        tries.push(one);
        if told || Instant::now() > deadline {
            return tries;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Buys with an `Idempotency-Key`.
pub(crate) async fn buy_with_key(url: &str, voucher: &str, user: u64, key: &str) -> Try {
    told(user, purchase(client(), url, voucher, user).header("idempotency-key", key)).await
}

fn purchase(client: &Client, url: &str, voucher: &str, user: u64) -> RequestBuilder {
    client
        .post(format!("{url}/api/vouchers/{voucher}/orders"))
        .bearer_auth(token(user, Role::Buyer))
        .timeout(PURCHASE_TIMEOUT)
}

async fn told(user: u64, request: RequestBuilder) -> Try {
    let sent = Instant::now();
    let answer = async {
        let response = request.send().await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await?;
        Ok(Answer { status, headers, body: serde_json::from_str(&text).unwrap_or_default() })
    };
    let answer = answer.await.map_err(|error: reqwest::Error| format!("{error:?}"));
    Try { user, sent, took: sent.elapsed(), answer }
}

/// The purchases of those users, all at once.
pub(crate) async fn buy_together(
    url: &str,
    voucher: &str,
    users: impl IntoIterator<Item = u64>,
) -> Vec<Try> {
    let mut tasks = JoinSet::new();
    for user in users {
        let (url, voucher) = (url.to_owned(), voucher.to_owned());
        tasks.spawn(async move { buy_at(&url, &voucher, user).await });
    }
    tasks.join_all().await
}

/// Buyers that keep coming until they are told to stop; each of their users asks once.
pub(crate) struct Crowd {
    stop: CancellationToken,
    bought: Arc<AtomicU64>,
    tasks: JoinSet<Vec<Try>>,
}

impl Crowd {
    /// Starts buyers, `at_a_time` of them at once; every second one keeps its connection. Their
    /// users begin at a million.
    pub(crate) fn start(url: &str, voucher: &str, at_a_time: u32) -> Self {
        let stop = CancellationToken::new();
        let (next, bought) = (Arc::new(AtomicU64::new(1_000_000)), Arc::<AtomicU64>::default());
        let keeping = Client::builder().no_proxy().build().expect("a client");
        let mut tasks = JoinSet::new();
        for number in 0..at_a_time {
            let (url, voucher) = (url.to_owned(), voucher.to_owned());
            let (stop, next, bought) = (stop.clone(), Arc::clone(&next), Arc::clone(&bought));
            let client = if number % 2 == 0 { client().clone() } else { keeping.clone() };
            tasks.spawn(async move {
                let mut tries = Vec::new();
                while !stop.is_cancelled() {
                    let user = next.fetch_add(1, Ordering::Relaxed);
                    let one = told(user, purchase(&client, &url, &voucher, user)).await;
                    let success = matches!(one.fate(), Fate::Bought(_));
                    bought.fetch_add(u64::from(success), Ordering::Relaxed);
                    tries.push(one);
                    tokio::time::sleep(PURCHASE_INTERVAL).await;
                }
                tries
            });
        }
        Self { stop, bought, tasks }
    }

    /// How many have bought.
    pub(crate) fn bought(&self) -> u64 {
        self.bought.load(Ordering::Relaxed)
    }

    /// Waits until that many more have bought.
    pub(crate) async fn until_bought(&self, more: u64) {
        let wanted = self.bought() + more;
        eventually("the crowd buys", async || self.bought() >= wanted).await;
    }

    /// Stops all buyers; returns what they were told.
    pub(crate) async fn end(self) -> Vec<Try> {
        self.stop.cancel();
        self.tasks.join_all().await.into_iter().flatten().collect()
    }
}

/// The orders and the stock of a voucher, in one consistent read of the database.
pub(crate) struct Books {
    /// User by order.
    pub(crate) orders: HashMap<u64, u64>,
    pub(crate) stock: i64,
}

impl Books {
    pub(crate) async fn read(database_url: &str, voucher: &str) -> Self {
        let pool = MySqlPool::connect(database_url).await.expect("the database");
        let mut tx = pool.begin().await.expect("a transaction");
        let orders =
            sqlx::query_as::<_, (u64, u64)>("SELECT id, user_id FROM orders WHERE voucher_id = ?");
        let orders = orders.bind(voucher).fetch_all(&mut *tx).await.expect("the orders");
        let stock = sqlx::query_scalar::<_, i64>(
            "SELECT CAST(s.stock + COALESCE((SELECT SUM(b.stock) FROM voucher_stock_buckets b \
             WHERE b.voucher_id = s.voucher_id), 0) AS SIGNED) \
             FROM voucher_stock s WHERE s.voucher_id = ?",
        );
        let stock = stock.bind(voucher).fetch_one(&mut *tx).await.expect("the stock");
        tx.rollback().await.expect("a ROLLBACK");
        pool.close().await;
        Self { orders: orders.into_iter().collect(), stock }
    }

    /// The orders of that user.
    pub(crate) fn of(&self, user: u64) -> Vec<u64> {
        self.orders.iter().filter(|(_, u)| **u == user).map(|(id, _)| *id).collect()
    }

    pub(crate) fn add_up_to(&self, initial: i64) {
        let sold = i64::try_from(self.orders.len()).expect("a number of orders");
        assert_eq!(self.stock + sold, initial, "{} left, {sold} sold", self.stock);
    }

    /// Whether they bear out what the buyers were told. Users without a try are passed over.
    pub(crate) fn bear_out(&self, tries: &[Try]) {
        let mut orders = HashMap::<u64, Vec<u64>>::new();
        for (order, user) in &self.orders {
            orders.entry(*user).or_default().push(*order);
        }
        for one in tries {
            let rows = orders.get(&one.user).map_or(&[][..], Vec::as_slice);
            let words = one.words();
            match one.fate() {
                Fate::Bought(order) => assert_eq!(rows, [order], "user {}", one.user),
                Fate::Refused => assert!(rows.is_empty(), "refused with {words}, but has {rows:?}"),
                Fate::Unknown => assert!(rows.len() <= 1, "{words}: {rows:?}"),
            }
        }
    }
}

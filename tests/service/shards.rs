//! Vouchers on two databases: a front whose tables of orders and stock are links to two shards
//! (MariaDB's engine Spider, `deploy/shards/`). Two vouchers are sold at once, one on each shard,
//! while shards and the front are killed and come back. Two shards are made four.
//!
//! `make shard-rounds` has 100 losses; `SHARD_ROUNDS` says how many otherwise.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use reqwest::Url;
use seckill::domain::Role;
use serde_json::json;
use sqlx::{Connection, Executor, MySqlConnection};
use testbed::{Database, ShardedDatabase};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::crowd::{Books, Crowd, Fate, buy_at, buy_with_key};
use crate::support::{Place, Service, eventually, make_admins, servers, token};

/// The name of the database.
const SHOP: &str = "shop";
const STOCK: u32 = 1_000_000;
/// At each voucher.
const CROWD: u32 = 8;

struct Sale {
    group: ShardedDatabase,
    service: Service,
    /// The voucher of each shard.
    vouchers: Vec<String>,
}

impl Sale {
    async fn start(writer: &str, stock: u32) -> Self {
        Self::start_beside(0, writer, stock).await
    }

    /// With that many more shards that the front knows and does not use.
    async fn start_beside(more: usize, writer: &str, stock: u32) -> Self {
        let group =
            block_in_place(|| servers().bed.sharded(2 + more)).expect("Spider is installed");
        let place = make_schema(&group).await;
        let service = Service::start_at(place, &["--writer", writer]).await;
        let mut vouchers = [service.voucher(stock).await, service.voucher(stock).await];
        vouchers.sort_by_key(|id| id.parse::<u64>().expect("a number") % 2);
        Self { group, service, vouchers: vouchers.into() }
    }

    fn crowds(&self) -> Vec<Crowd> {
        let start = |voucher: &String| Crowd::start(&self.service.url, voucher, CROWD);
        self.vouchers.iter().map(start).collect()
    }

    async fn books(&self) -> Vec<Books> {
        let url = self.group.front().url(SHOP);
        let mut all = Vec::new();
        for voucher in &self.vouchers {
            all.push(Books::read(&url, voucher).await);
        }
        all
    }
}

/// The schema of the service, sharded as `deploy/shards/` says.
async fn make_schema(group: &ShardedDatabase) -> Place {
    block_in_place(|| group.create_database(SHOP)).expect("a database");
    for shard in group.shards() {
        let url = shard.url(SHOP);
        seckill::store::migrate(&url, false).await.expect("the schema of a shard");
        run(&url, include_str!("../../deploy/shards/shard.sql")).await;
    }
    let url = group.front().url(SHOP);
    block_in_place(|| make_admins(&url));
    seckill::store::migrate(&url, false).await.expect("the schema of the front");
    run(&url, include_str!("../../deploy/shards/front.sql")).await;
    let redis = block_in_place(Place::fresh);
    Place { database_url: url, ..redis }
}

async fn run(url: &str, script: &'static str) {
    let mut session = MySqlConnection::connect(url).await.expect("the database");
    session.execute(sqlx::raw_sql(script)).await.expect("the script runs");
}

async fn count(server: &Database, sql: &'static str) -> i64 {
    let mut session = MySqlConnection::connect(&server.url(SHOP)).await.expect("the database");
    sqlx::query_scalar(sql).fetch_one(&mut session).await.expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_voucher_has_its_orders_and_its_stock_on_one_shard() {
    let sale = Sale::start("single", 3).await;
    let url = &sale.service.url;
    for voucher in &sale.vouchers {
        let first = buy_with_key(url, voucher, 2, voucher).await.fate();
        let Fate::Bought(order) = first else { panic!("{first:?}") };
        assert_eq!(buy_with_key(url, voucher, 2, voucher).await.fate(), first, "a repeat");
        for user in 3..=4 {
            sale.service.buy(voucher, user).await.expect(201);
        }
        assert_eq!(sale.service.buy(voucher, 2).await.problem(409), "already_ordered");
        assert_eq!(sale.service.buy(voucher, 5).await.problem(409), "sold_out");
        let path = format!("/api/orders/{order}/cancel");
        sale.service.post(&path, &token(2, Role::Buyer), json!({})).await.expect(200);
        // The answer "sold out" is remembered for a second at most.
        let bought = async || sale.service.buy(voucher, 5).await.status == 201;
        eventually("the returned unit is sold", bought).await;
        assert_eq!(sale.service.audit(voucher).await["consistent"], true);
    }
    for (remainder, shard) in sale.group.shards().iter().enumerate() {
        let orders = count(shard, "SELECT COUNT(*) FROM orders").await;
        let odd = count(shard, "SELECT CAST(SUM(voucher_id % 2) AS SIGNED) FROM orders").await;
        let units = count(shard, "SELECT CAST(SUM(units) AS SIGNED) FROM stock_grants").await;
        let left = count(shard, "SELECT CAST(SUM(stock) AS SIGNED) FROM voucher_stock").await;
        let expected = (4, 4 * i64::try_from(remainder).expect("0 or 1"), 3, 0);
        assert_eq!((orders, odd, units, left), expected, "shard {remainder}");
    }
    sale.service.stop().await;
}

/// A client for the command line, at the database of that server.
fn client_at(server: &Database, program: &str) -> Command {
    let url = Url::parse(&server.url(SHOP)).expect("an address");
    let mut client = Command::new(program);
    client.env("MYSQL_PWD", url.password().expect("a password")).arg(SHOP);
    client.args(["--host", url.host_str().expect("a host"), "--user", url.username()]);
    client.args(["--port", &url.port().expect("a port").to_string()]);
    client
}

fn read_all(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.is_empty(), "{command:?}: {said}");
    output.stdout
}

fn run_all(server: &Database, statements: &[u8]) {
    let mut client = client_at(server, "mariadb").stdin(Stdio::piped()).spawn().expect("it starts");
    client.stdin.take().expect("a pipe").write_all(statements).expect("it reads");
    assert!(client.wait().expect("it ends").success());
}

/// Doubles two shards that have rows, as docs/shards.md says.
fn double(group: &ShardedDatabase) {
    let shards = group.shards();
    let links = include_str!("../../deploy/shards/front.sql").lines();
    let links: BTreeSet<_> = links
        .filter_map(|line| line.strip_prefix("ALTER TABLE ")?.split_whitespace().next())
        .collect();
    for new in 2..4 {
        let (from, moving) = (&shards[new - 2], format!("voucher_id MOD 4 = {new}"));
        let mut dump = client_at(from, "mariadb-dump");
        dump.args(&links).args(["--no-create-info", "--where", &moving]);
        run_all(&shards[new], &read_all(&mut dump));
        let delete = links.iter().map(|link| format!("DELETE FROM {link} WHERE {moving};"));
        run_all(from, delete.collect::<String>().as_bytes());
    }
    run_all(group.front(), &read_all(Command::new("deploy/shards/partition.sh").arg("4")));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_shards_that_have_sold_become_four_and_sell_the_rest() {
    let Sale { group, service, mut vouchers } = Sale::start_beside(2, "grouped", 3).await;
    for _ in 0..2 {
        vouchers.push(service.voucher(3).await);
    }
    for voucher in &vouchers {
        service.buy(voucher, 2).await.expect(201);
    }
    let place = service.place.clone();
    service.stop().await;
    block_in_place(|| double(&group));
    let service = Service::start_at(place, &["--writer", "grouped"]).await;
    for voucher in &vouchers {
        assert_eq!(service.buy(voucher, 2).await.problem(409), "already_ordered");
        for user in 3..=4 {
            service.buy(voucher, user).await.expect(201);
        }
        assert_eq!(service.buy(voucher, 5).await.problem(409), "sold_out");
        assert_eq!(service.audit(voucher).await["consistent"], true);
    }
    for (remainder, shard) in group.shards().iter().enumerate() {
        let orders = count(shard, "SELECT COUNT(*) FROM orders").await;
        let of = count(shard, "SELECT CAST(SUM(voucher_id % 4) AS SIGNED) FROM orders").await;
        assert_eq!((orders, of), (3, 3 * i64::try_from(remainder).expect("0 to 3")));
    }
    service.stop().await;
}

/// What a round takes away.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// A shard is killed.
    Killed(usize),
    /// A shard stands still until the service gives its calls up, and is killed then.
    Frozen(usize),
    /// The front is killed.
    Front,
}

impl Loss {
    /// Shards in turns; every fifth loss is the front's, every fifth a frozen shard.
    fn of(round: usize) -> Self {
        match round % 5 {
            3 => Self::Front,
            4 => Self::Frozen(round % 2),
            _ => Self::Killed(round % 2),
        }
    }
}

/// Longer than a call of the service to its database may take.
const FROZEN_FOR: Duration = Duration::from_secs(6);

impl Sale {
    async fn lose(&self, loss: Loss) {
        let server = match loss {
            Loss::Killed(at) | Loss::Frozen(at) => &self.group.shards()[at],
            Loss::Front => self.group.front(),
        };
        if matches!(loss, Loss::Frozen(_)) {
            server.freeze().expect("it stands still");
            sleep(FROZEN_FOR).await;
        }
        server.kill().expect("it is killed");
        block_in_place(|| server.restart()).expect("it comes back");
    }

    /// While a shard is away, the voucher of the other one is sold.
    async fn sells_the_other_voucher(&self, user: u64) {
        let lost = &self.group.shards()[0];
        lost.kill().expect("it is killed");
        let began = Instant::now();
        loop {
            let one = buy_at(&self.service.url, &self.vouchers[1], user).await;
            if matches!(one.fate(), Fate::Bought(_)) {
                break;
            }
            assert!(began.elapsed() < Duration::from_secs(10), "{}", one.words());
            sleep(Duration::from_millis(20)).await;
        }
        block_in_place(|| lost.restart()).expect("it comes back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_order_is_lost_or_doubled_when_a_shard_or_the_front_is_killed() {
    let rounds = std::env::var("SHARD_ROUNDS").ok();
    let rounds: usize = rounds.map_or(5, |rounds| rounds.parse().expect("a number"));
    for writer in ["single", "grouped"] {
        let sale = Sale::start(writer, STOCK).await;
        let crowds = sale.crowds();
        for round in 0..rounds.div_ceil(2) {
            for crowd in &crowds {
                crowd.until_bought(10).await;
            }
            sleep(Duration::from_millis(getrandom::u64().expect("randomness") % 40)).await;
            sale.lose(Loss::of(round)).await;
        }
        for crowd in &crowds {
            crowd.until_bought(10).await;
        }
        sale.sells_the_other_voucher(2).await;
        let mut tries = Vec::new();
        for crowd in crowds {
            tries.push(crowd.end().await);
        }
        let books = sale.books().await;
        for (books, tries) in books.iter().zip(&tries) {
            books.add_up_to(STOCK.into());
            books.bear_out(tries);
        }
        let tries: Vec<_> = tries.into_iter().flatten().collect();
        let told = tries.iter().filter(|one| matches!(one.fate(), Fate::Bought(_))).count();
        let unknown: Vec<_> = tries.iter().filter(|one| one.fate() == Fate::Unknown).collect();
        let words: BTreeSet<_> = unknown.iter().map(|one| one.words()).collect();
        let unknown = unknown.len();
        println!(
            "{writer}: {} losses, {told} acknowledged orders, none lost; {unknown} of {} answers \
             unknown {words:?}",
            rounds.div_ceil(2) + 1,
            tries.len()
        );
        assert!(unknown <= tries.len() / 100, "{unknown} of {} outcomes unknown", tries.len());
        sale.service.stop().await;
    }
}

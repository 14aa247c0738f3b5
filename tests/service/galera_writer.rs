//! Three nodes of Galera behind the proxy that ships for them, which sends all connections to one
//! node at a time. That one is lost in the middle of a sale, again and again, and comes back.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use sqlx::{Connection, MySqlConnection};
use testbed::{Database, Haproxy, Program, Stopwatch};
use tokio::task::block_in_place;
use tokio::time::sleep;

use crate::breakable::blocking;
use crate::crowd::{Books, Crowd, Fate, Try, buy_at, buy_until_told};
use crate::support::{Place, Service, eventually, eventually_within, make_admins, servers};

/// The configuration that ships, and its address for the service.
const PROXY: &str = include_str!("../../deploy/haproxy-galera.cfg");
const BIND: &str = "${GALERA_BIND-127.0.0.1:3306}";
/// The name of the database.
const SHOP: &str = "shop";
const STOCK: u32 = 1_000_000;
const CROWD: u32 = 8;
const ROUNDS: usize = 4;
/// Purchases of the crowd whose answer each loss may take; those in flight.
const MAX_UNKNOWN: usize = ROUNDS * CROWD as usize;
/// After a writer is lost, for a purchase to succeed, in most rounds. The other nodes miss
/// it after 5 s, and take no writes before; the rest is for a busy machine.
const SELLS_WITHIN: Duration = Duration::from_secs(20);
/// After a writer is lost, for a purchase to succeed in each round, even on a machine that stood
/// still.
const SELLS_AT_LAST: Duration = Duration::from_mins(1);
const REFUSAL_INTERVAL: Duration = Duration::from_millis(50);

/// A sale on two replicas whose database is three nodes behind their proxy.
struct Sale {
    nodes: [Database; 3],
    database_proxy: Program,
    database_url: String,
    services: [Service; 2],
    /// In front of the replicas.
    proxy: Haproxy,
    voucher: String,
    crowd: Crowd,
    next_user: u64,
}

/// The proxy that ships, in front of these nodes, and its address.
fn start_proxy(nodes: &[Database; 3]) -> (Program, SocketAddr) {
    let folder = tempfile::tempdir_in(servers().bed.dir()).expect("a folder").keep();
    let file = folder.join("haproxy.cfg");
    // Of the kernel's ports, from which no server of the tests gets one.
    let address = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr();
    let address = address.expect("it is bound");
    let mut config = PROXY.replace(BIND, &address.to_string());
    for (number, node) in (1..).zip(nodes) {
        config = config.replace(&format!("10.0.0.{number}:3306"), &node.addr().to_string());
    }
    std::fs::write(&file, config).expect("it is written");
    let args = ["-db", "-f", file.to_str().expect("text")];
    let program = servers().bed.program("haproxy-galera", Path::new("/usr/sbin/haproxy"), &args);
    (program.expect("HAProxy is installed"), address)
}

impl Sale {
    async fn start() -> Self {
        let (nodes, database_proxy, place) = block_in_place(|| {
            let nodes: [Database; 3] = servers().bed.galera(false).expect("Galera is installed");
            nodes[0].create_database(SHOP).expect("a database");
            nodes[0].execute_in(SHOP, "CREATE USER haproxy@'127.0.0.1'").expect("an account");
            let (database_proxy, address) = start_proxy(&nodes);
            let of_the_first = nodes[0].addr().to_string();
            let database_url = nodes[0].url(SHOP).replace(&of_the_first, &address.to_string());
            (nodes, database_proxy, Place { database_url, ..Place::fresh() })
        });
        let database_url = place.database_url.clone();
        eventually("the proxy has a writer", async || writer(&database_url).await.is_some()).await;
        block_in_place(|| make_admins(&database_url));
        let services = [
            Service::start_at(place.clone(), &["--writer", "grouped"]).await,
            Service::start_at(place, &["--writer", "grouped"]).await,
        ];
        let address = |service: &Service| service.url["http://".len()..].parse();
        let addresses = services.each_ref().map(|service| address(service).expect("an address"));
        let proxy = block_in_place(|| servers().bed.haproxy(&addresses)).expect("a proxy");
        let voucher = services[0].voucher(STOCK).await;
        let crowd = Crowd::start(proxy.url(), &voucher, CROWD);
        let next_user = 2;
        Self { nodes, database_proxy, database_url, services, proxy, voucher, crowd, next_user }
    }

    /// The index of the node that gets connections.
    async fn writer(&self) -> usize {
        let mut port = None;
        eventually_within(60, "a node gets connections", async || {
            port = writer(&self.database_url).await;
            port.is_some()
        })
        .await;
        let is_it = |node: &Database| Some(node.addr().port()) == port;
        self.nodes.iter().position(is_it).expect("it is one of the nodes")
    }

    /// Waits until another node than that one gets connections.
    async fn until_left(&self, lost: usize) {
        let port = self.nodes[lost].addr().port();
        eventually_within(60, "another node gets connections", async || {
            writer(&self.database_url).await.is_some_and(|other| other != port)
        })
        .await;
    }

    /// How often the proxy has said that of each node.
    fn times_told(&self, what: &str) -> [usize; 3] {
        let log = std::fs::read_to_string(self.database_proxy.log_path()).expect("its log");
        [1, 2, 3].map(|number| log.matches(&format!("/node{number} is {what}, reason")).count())
    }

    /// Waits until the proxy has that node come back, which it had that often before.
    async fn until_back(&self, node: usize, times: usize) {
        eventually_within(60, "the proxy takes the node back", async || {
            self.times_told("UP")[node] > times
        })
        .await;
    }

    /// Waits until more of the crowd have bought. A purchase may be looked up for 30 s before.
    async fn until_the_crowd_buys(&self) {
        let before = self.crowd.bought();
        eventually_within(60, "the crowd buys", async || self.crowd.bought() >= before + 20).await;
    }

    /// How long it takes until a purchase succeeds.
    async fn until_it_sells(&mut self) -> Duration {
        let lost = Stopwatch::start();
        loop {
            self.next_user += 1;
            let one = buy_at(self.proxy.url(), &self.voucher, self.next_user).await;
            if matches!(one.fate(), Fate::Bought(_)) {
                return lost.elapsed();
            }
            assert!(lost.elapsed() < SELLS_AT_LAST, "{}", one.words());
            sleep(REFUSAL_INTERVAL).await;
        }
    }

    /// Stops the crowd. All nodes have the same books, which bear out what the buyers were told.
    async fn end(self) -> Vec<Try> {
        let mut tries = self.crowd.end().await;
        let unknown = tries.iter().filter(|one| one.fate() == Fate::Unknown);
        let unknown: Vec<_> = unknown.map(|one| (one.user, one.words())).collect();
        assert!(unknown.len() <= MAX_UNKNOWN, "{unknown:?} of {}", tries.len());
        for (user, _) in unknown {
            let asked = buy_until_told(self.proxy.url(), &self.voucher, user).await;
            let last = asked.last().expect("at least one");
            assert!(!last.asks_for_another(), "an outcome stays unknown: {}", last.words());
            tries.retain(|one| one.user != user);
        }
        let position = |node: &Database| node.last_committed().expect("it answers");
        let positions = || self.nodes.each_ref().map(position);
        eventually_within(60, "all nodes are in step", async || {
            let [one, two, three] = block_in_place(positions);
            one == two && two == three
        })
        .await;
        for node in &self.nodes {
            let books = Books::read(&node.url(SHOP), &self.voucher).await;
            books.add_up_to(STOCK.into());
            books.bear_out(&tries);
        }
        for service in self.services {
            service.stop().await;
        }
        tries
    }
}

/// The port of the node to which the proxy leads.
async fn writer(url: &str) -> Option<u16> {
    let asking = async {
        let mut connection = MySqlConnection::connect(url).await?;
        sqlx::query_scalar("SELECT CAST(@@port AS UNSIGNED)").fetch_one(&mut connection).await
    };
    let port: u64 = tokio::time::timeout(Duration::from_secs(2), asking).await.ok()?.ok()?;
    port.try_into().ok()
}

/// How many sessions of the service a node has.
async fn sessions(node: &Database) -> i64 {
    let mut connection = MySqlConnection::connect(&node.url(SHOP)).await.expect("a connection");
    let count = "SELECT COUNT(*) FROM information_schema.PROCESSLIST \
                 WHERE DB = 'shop' AND ID <> CONNECTION_ID()";
    sqlx::query_scalar(count).fetch_one(&mut connection).await.expect("a count")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_books_are_right_and_purchases_succeed_each_time_the_writing_node_is_lost() {
    let mut sale = Sale::start().await;
    let mut sold_after = Vec::new();
    for round in 0..ROUNDS {
        let lost = sale.writer().await;
        let came_back = sale.times_told("UP")[lost];
        let began = Instant::now();
        // One that is frozen commits after its thaw what it was about to commit.
        let freezes = round % 2 == 1;
        if freezes {
            sale.nodes[lost].freeze().expect("it is frozen");
            sale.until_left(lost).await;
            // One of them stands still until the others have gone on without it.
            if round > 1 {
                let other = &sale.nodes[(lost + 1) % 3];
                eventually_within(60, "two nodes are a majority", async || {
                    block_in_place(|| other.nodes_in_quorum()).expect("it answers") == 2
                })
                .await;
            }
            sale.nodes[lost].thaw().expect("it goes on");
        } else {
            sale.nodes[lost].kill().expect("it is killed");
        }
        sale.until_it_sells().await;
        sold_after.push(began.elapsed());
        let down = sale.times_told("DOWN");
        let next = sale.writer().await;
        let next_was_away = |sale: &Sale| sale.times_told("DOWN")[next] > down[next];
        assert_ne!(next, lost, "round {round}");
        sale.until_the_crowd_buys().await;
        if !freezes {
            blocking(|| sale.nodes[lost].join_again());
        }
        sale.until_back(lost, came_back).await;
        sale.until_the_crowd_buys().await;
        // On a machine that stands still the proxy may find the next one away as well.
        let writer = sale.writer().await;
        let is_right = writer == next || next_was_away(&sale);
        assert!(is_right, "the old writer takes its role back: {writer} instead of {next}");
        // The threads of a node that went on may wait for rows for some seconds.
        eventually_within(60, "the old writer has no session", async || {
            next_was_away(&sale) || sessions(&sale.nodes[lost]).await == 0
        })
        .await;
    }
    let answers = sale.end().await.len();
    sold_after.sort();
    println!("{answers} answers are true; sold again after {sold_after:?}");
    assert!(sold_after[sold_after.len() / 2] < SELLS_WITHIN, "{sold_after:?}");
}

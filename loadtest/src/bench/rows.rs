//! The rows of the bench: what is made of the figures of cells, and their bars.

use loadtest_lab::fleet::JvmTuning;
use loadtest_lab::topology::Topology;
use loadtest_measure::bars::Bar;
use testbed::Flavor;

use super::cells::{CELLS, Cell, Measurement, PLAIN, find_cell};
use super::figure::Figure;

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What `--rows` calls it.
    pub name: &'static str,
    /// What it says.
    pub what: &'static str,
    /// The cell.
    pub cell: &'static str,
    /// What its figure is divided by: the best of these; nothing if there is none.
    pub beside: &'static [&'static str],
    /// Which figure.
    pub figure: Figure,
    /// What it has to reach on MariaDB and on MySQL.
    pub bars: Option<[Bar; 2]>,
    /// The most that one order or answer may cost on MariaDB, in plain answers: the upper end of
    /// what was measured. On MySQL it has not been measured.
    pub most_plain: Option<f64>,
}

impl Row {
    /// What it has to reach on that server.
    pub fn bar(&self, flavor: Flavor) -> Option<Bar> {
        let [mariadb, mysql] = self.bars?;
        Some(if flavor == Flavor::MySql { mysql } else { mariadb })
    }

    /// What one order or answer may cost on that server, in plain answers.
    pub fn plain_bar(&self, flavor: Flavor) -> Option<Bar> {
        self.most_plain.filter(|_| flavor != Flavor::MySql).map(Bar::AtMost)
    }

    /// Whether it is measured only by name: its program needs the feature `otlp`, or a newer Java
    /// than that of the distribution, or many servers take part.
    pub fn is_by_name(&self) -> bool {
        let setup = find_cell(self.cell).and_then(Cell::setup);
        setup.is_some_and(|setup| {
            let has_virtual_threads = setup.fleet.jvm_tuning == JvmTuning::VirtualThreads;
            let has_many_servers = match setup.topology {
                Topology::Single | Topology::SemiSync | Topology::Async => false,
                Topology::Sentinel
                | Topology::RedisCluster
                | Topology::Galera
                | Topology::Sharded
                | Topology::Ensemble
                | Topology::Replicated => true,
            };
            setup.trace_ratio.is_some() || has_virtual_threads || has_many_servers
        })
    }

    /// Whether its figure is a rate, which moves with the host.
    pub fn is_rate(&self) -> bool {
        self.figure == Figure::PerSecond
    }
}

const BARE: &[&str] = &["bare:1", "bare:8", "bare:32"];
const SINGLE_CELL: &[&str] = &["single:64"];
const CONSTANT: &[&str] = &[PLAIN];
const GATHERED: &[&str] = &["grouped:64"];

const fn at_least(mariadb: f64, mysql: f64) -> [Bar; 2] {
    [Bar::AtLeast(mariadb), Bar::AtLeast(mysql)]
}

const fn at_most(bar: f64) -> [Bar; 2] {
    [Bar::AtMost(bar), Bar::AtMost(bar)]
}

const fn row(
    name: &'static str,
    what: &'static str,
    (cell, beside): (&'static str, &'static [&'static str]),
    bars: Option<[Bar; 2]>,
) -> Row {
    Row { name, what, cell, beside, figure: Figure::PerSecond, bars, most_plain: None }
}

const fn of(figure: Figure, row: Row) -> Row {
    Row { figure, ..row }
}

/// A row of which one order or answer may cost at most `most_plain` plain answers.
const fn costing(most_plain: f64, row: Row) -> Row {
    Row { most_plain: Some(most_plain), ..row }
}

/// What traces cost a replica in processor time.
const fn traced(
    name: &'static str,
    what: &'static str,
    cells: (&'static str, &'static [&'static str]),
) -> Row {
    of(Figure::ReplicaTime, row(name, what, cells, Some(at_most(1.03))))
}

/// All rows. A new one needs a line here, and a cell in `cells.rs` unless there is one.
pub const ROWS: [Row; 59] = [
    costing(
        11.0,
        row("grouped-64", "grouped, orders/s", ("grouped:64", BARE), Some(at_least(2.5, 5.0))),
    ),
    costing(
        10.0,
        row(
            "grouped-256",
            "the same, 256 connections",
            ("grouped:256", BARE),
            Some(at_least(2.5, 5.0)),
        ),
    ),
    costing(
        60.0,
        row("single-64", "single, orders/s", ("single:64", BARE), Some(at_least(0.6, 0.6))),
    ),
    row("single-256", "the same, 256 connections", ("single:256", BARE), Some(at_least(0.6, 0.6))),
    row(
        "replicas",
        "3 replicas behind HAProxy",
        ("grouped:64 x3", GATHERED),
        Some(at_least(0.8, 0.8)),
    ),
    row(
        "replicas-256",
        "the same, 256 connections",
        ("grouped:256 x3", &["grouped:256"]),
        Some(at_least(0.8, 0.8)),
    ),
    row(
        "semi-sync",
        "grouped, primary and semi-synchronous replica",
        ("grouped, semi-sync", GATHERED),
        Some(at_least(0.7, 0.7)),
    ),
    row("async", "grouped, primary and asynchronous replica", ("grouped, async", GATHERED), None),
    row("sentinel", "grouped, 2 more Redis and 3 sentinels", ("grouped, sentinel", GATHERED), None),
    row(
        "redis-cluster",
        "grouped, a Redis Cluster of 3 masters",
        ("grouped, redis-cluster", GATHERED),
        None,
    ),
    row("galera", "grouped, 3 nodes of Galera", ("grouped, galera", GATHERED), None),
    row(
        "sharded",
        "grouped, 2 vouchers on 2 shards beside one",
        ("2 vouchers, 2 shards", ONE_SHARD),
        Some(at_least(1.0, 1.0)),
    ),
    of(
        Figure::ServerTime,
        row("sharded-cpu", "the same, processor time", ("2 vouchers, 2 shards", ONE_SHARD), None),
    ),
    row(
        "sharded-front",
        "a front and one shard beside one database",
        ("2 vouchers, 1 shard", &["2 vouchers"]),
        None,
    ),
    // Each has as many as the one.
    row("replicas-two", "2 replicas, 128 connections", ("grouped:128 x2", GATHERED), None),
    row("replicas-each", "3 replicas, 192 connections", ("grouped:192 x3", GATHERED), None),
    costing(
        10.0,
        row("admitted", "queued, admitted/s", ("queued, admitted", BARE), Some(at_least(4.0, 4.0))),
    ),
    row(
        "drained",
        "queued, committed/s of the rest",
        ("queued, drained", BARE),
        Some(at_least(4.0, 4.0)),
    ),
    costing(
        1.4,
        row("sold-out", "sold out, answers/s", ("sold out", CONSTANT), Some(at_least(0.75, 0.75))),
    ),
    row("sold-out-replicas", "the same, 3 behind HAProxy", ("sold out x3", &["sold out"]), None),
    of(
        Figure::P99,
        row(
            "p99",
            "p99 at half of single's rate, grouped",
            ("half grouped", &["half single"]),
            Some(at_most(1.0)),
        ),
    ),
    of(
        Figure::ServerTime,
        row(
            "revocations",
            "processor time of \"sold out\" with 100,000 users revoked",
            ("sold out, revoked", &["sold out"]),
            Some(at_most(1.05)),
        ),
    ),
    of(
        Figure::ServerTime,
        row(
            "cpu",
            "processor time of all servers",
            ("grouped:64", SINGLE_CELL),
            Some(at_most(0.5)),
        ),
    ),
    of(
        Figure::DatabaseTime,
        row(
            "database-cpu-64",
            "processor time of the database, grouped",
            ("grouped:64", BARE),
            Some([Bar::AtMost(1.0 / 2.5), Bar::AtMost(1.0 / 5.0)]),
        ),
    ),
    of(
        Figure::DatabaseTime,
        row(
            "database-cpu-256",
            "the same, 256 connections",
            ("grouped:256", BARE),
            Some([Bar::AtMost(1.0 / 2.5), Bar::AtMost(1.0 / 5.0)]),
        ),
    ),
    of(
        Figure::ServerTime,
        row("replicas-cpu", "processor time: 3 replicas", ("grouped:64 x3", GATHERED), None),
    ),
    of(
        Figure::Memory,
        row("memory", "MiB after a million requests", ("memory", &[]), Some(at_most(30.0))),
    ),
    of(Figure::Ready, row("ready", "ms from exec to ready", ("start", &[]), Some(at_most(100.0)))),
    row(
        "million",
        "orders/s beside 1,000,000 orders",
        ("million orders", GATHERED),
        Some(at_least(0.9, 0.9)),
    ),
    row(
        "vouchers",
        "orders/s of one of 1,000 vouchers",
        ("1000 vouchers", GATHERED),
        Some(at_least(0.9, 0.9)),
    ),
    row("lock-redisson", "single, orders/s: redisson", ("single:64", NONE), None),
    row("lock-local", "local", ("lock local", NONE), None),
    row("lock-mysql-row", "mysql-row", ("lock mysql-row", NONE), None),
    row("lock-zookeeper", "zookeeper", ("lock zookeeper", NONE), None),
    row("lock-etcd", "etcd", ("lock etcd", NONE), None),
    row("lock-nats", "nats", ("lock nats", NONE), None),
    row(
        "zookeeper-ensemble",
        "single, orders/s: 3 ZooKeeper servers beside one",
        ("ensemble zookeeper", &["lock zookeeper"]),
        None,
    ),
    row(
        "etcd-ensemble",
        "single, orders/s: 3 etcd servers beside one",
        ("ensemble etcd", &["lock etcd"]),
        None,
    ),
    row("lock-grouped", "grouped: redisson", ("grouped:64", &["grouped, lock none"]), None),
    of(Figure::ServerTime, row("lock-cpu", "processor time: redisson", ("single:64", NONE), None)),
    row("buckets", "single: stock in 8 buckets", ("single, buckets", SINGLE_CELL), None),
    row(
        "buckets-semi-sync",
        "the same, each on a semi-synchronous primary",
        ("buckets, semi-sync", &["single, semi-sync"]),
        None,
    ),
    row("scope", "single: a lock for the voucher", ("scope voucher", SINGLE_CELL), None),
    row("guards", "single: guards off", ("guards off", SINGLE_CELL), None),
    row("keys", "grouped: with Idempotency-Key", ("grouped, keys", GATHERED), None),
    row("jvm", "a replica in Java, orders/s beside single", ("jvm:64", SINGLE_CELL), None),
    row("jvm-zgc", "the same with ZGC", ("jvm zgc:64", SINGLE_CELL), None),
    row(
        "jvm-virtual-threads",
        "the same with virtual threads (Java 21)",
        ("jvm virtual:64", SINGLE_CELL),
        None,
    ),
    of(Figure::P99, row("jvm-p99", "p99: a replica in Java", ("jvm:64", SINGLE_CELL), None)),
    of(
        Figure::ReplicaTime,
        row("jvm-cpu", "processor time: a replica in Java", ("jvm:64", SINGLE_CELL), None),
    ),
    of(
        Figure::Memory,
        row("jvm-memory", "memory: a replica in Java", ("jvm:64", SINGLE_CELL), None),
    ),
    of(
        Figure::Ready,
        row("jvm-ready", "ms to ready: a replica in Java", ("start jvm", &["start single"]), None),
    ),
    traced("traces", "1 % of the requests traced, single", ("traced single", SINGLE_CELL)),
    row(
        "traces-rate",
        "the same, orders/s",
        ("traced single", SINGLE_CELL),
        Some(at_least(0.97, 0.97)),
    ),
    traced("traces-0", "traces on, 0 %, single", ("untraced single", SINGLE_CELL)),
    traced("traces-grouped", "1 % of the requests traced, grouped", ("traced grouped", GATHERED)),
    row(
        "traces-grouped-rate",
        "the same, orders/s",
        ("traced grouped", GATHERED),
        Some(at_least(0.97, 0.97)),
    ),
    traced("traces-grouped-0", "traces on, 0 %, grouped", ("untraced grouped", GATHERED)),
    row("spread", "grouped: 64 of 1,000 vouchers", ("64 of 1000", GATHERED), None),
];

const ONE_SHARD: &[&str] = &["2 vouchers, 1 shard"];
const NONE: &[&str] = &["lock none"];

/// The cells of these rows, in the order of [`CELLS`].
pub fn cells_of(rows: &[&Row]) -> Vec<&'static Cell> {
    let named = |row: &&Row| [row.cell].into_iter().chain(row.beside.iter().copied());
    let mut wanted: Vec<&str> = rows.iter().flat_map(named).collect();
    if rows.iter().any(|row| row.is_rate()) {
        wanted.push(PLAIN);
    }
    for name in wanted.clone() {
        if let Some(Cell { what: Measurement::AtHalfOf(of, _), .. }) = find_cell(name) {
            wanted.push(of);
        }
    }
    CELLS.iter().filter(|cell| wanted.contains(&cell.name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_names_cells_and_every_cell_is_in_a_row() {
        let rows: Vec<&Row> = ROWS.iter().collect();
        for row in &rows {
            for name in [row.cell].iter().chain(row.beside) {
                assert!(find_cell(name).is_some(), "{}: {name:?}", row.name);
            }
        }
        assert_eq!(cells_of(&rows).len(), CELLS.len(), "a cell is in no row");
    }

    #[test]
    fn a_load_at_half_of_a_rate_adds_the_cell_with_that_rate_and_runs_after_it() {
        let p99: Vec<&Row> = ROWS.iter().filter(|row| row.name == "p99").collect();
        let names: Vec<&str> = cells_of(&p99).iter().map(|cell| cell.name).collect();
        assert_eq!(names, ["single:64", "half single", "half grouped"]);
    }

    #[test]
    fn rows_of_traces_of_virtual_threads_and_of_many_servers_are_measured_only_by_name() {
        let named = ROWS.iter().filter(|row| row.is_by_name()).map(|row| row.name);
        let named: Vec<&str> = named.collect();
        let servers = ["sentinel", "redis-cluster", "galera"];
        let shards = ["sharded", "sharded-cpu", "sharded-front"];
        let ensembles = ["zookeeper-ensemble", "etcd-ensemble"];
        let traces = ["traces", "traces-rate", "traces-0"];
        let grouped = ["traces-grouped", "traces-grouped-rate", "traces-grouped-0"];
        let others = [&ensembles[..], &["jvm-virtual-threads"], &traces, &grouped].concat();
        assert_eq!(named, [&servers[..], &shards, &others].concat());
    }

    #[test]
    fn the_bar_beside_the_bare_transaction_is_higher_on_mysql() {
        let grouped = ROWS[0].bar(Flavor::MySql);
        assert_eq!(grouped, Some(Bar::AtLeast(5.0)));
        assert_eq!(ROWS[0].bar(Flavor::MariaDb), Some(Bar::AtLeast(2.5)));
    }
}

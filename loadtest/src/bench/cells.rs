//! The cells of the bench: what is measured.

use loadtest_lab::fleet::{Fleet, JvmTuning, ReplicasOf};
use loadtest_lab::lock::ExtraServers;
use loadtest_lab::topology::Topology;

/// The cell whose answers are the plain ones.
pub const PLAIN: &str = "constant";

/// A service that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setup {
    /// Flags of `seckill serve`.
    pub flags: &'static [&'static str],
    /// Connections of the generator.
    pub connections: usize,
    /// More than one stand behind the proxy; a single one is spoken to directly.
    pub replicas: u16,
    /// What its lock needs.
    pub needs: ExtraServers,
    /// Orders of another voucher that are in the table already.
    pub filled: u64,
    /// Other users whose tokens are revoked.
    pub revoked: u32,
    /// Whether requests have an `Idempotency-Key`.
    pub with_keys: bool,
    /// Vouchers on sale.
    pub vouchers: usize,
    /// How many of them the buyers want, all alike.
    pub wanted: usize,
    /// Of how many vouchers they want one.
    pub one_of: usize,
    /// Rows that the stock of each is split into.
    pub stock_buckets: u32,
    /// What the replicas are.
    pub fleet: Fleet,
    /// Its servers.
    pub topology: Topology,
    /// The share of the requests whose traces are sent to a collector. The program needs its
    /// feature `otlp` then.
    pub trace_ratio: Option<&'static str>,
}

const SINGLE: Setup = Setup {
    flags: &[],
    connections: 64,
    replicas: 1,
    needs: ExtraServers::Nothing,
    filled: 0,
    revoked: 0,
    with_keys: false,
    vouchers: 1,
    wanted: 1,
    one_of: 1,
    stock_buckets: 1,
    fleet: Fleet::RUST,
    topology: Topology::Single,
    trace_ratio: None,
};
const GROUPED: Setup = Setup { flags: &["--writer=grouped"], ..SINGLE };
const BUCKETS: Setup = Setup { stock_buckets: 8, ..SINGLE };
const TWO_VOUCHERS: Setup = Setup { vouchers: 2, wanted: 2, ..GROUPED };
/// The remainder of a voucher's id says which of the two shards it lies on.
const ON_ONE_SHARD: Setup = Setup { vouchers: 3, one_of: 2, ..TWO_VOUCHERS };
const QUEUED: Setup =
    Setup { flags: &["--mode=queued", "--writer=grouped", "--queue-length=1000000"], ..SINGLE };

/// The textbook replica in Java, once its compilers rest.
const fn jvm(jvm_tuning: JvmTuning) -> Setup {
    let fleet = Fleet { replicas_of: ReplicasOf::Jvm, jvm_tuning, ..Fleet::RUST };
    Setup { fleet, ..SINGLE }
}

/// A part of a round, whose cells are measured side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoundPhase {
    /// In slices, in turn.
    Sliced,
    /// In slices, in turn, at rates that the sliced phase has measured.
    AtRates,
    /// One after the other, because they cannot be measured in slices.
    Sequential,
}

/// The phases of a round, in their order.
pub const PHASES: [RoundPhase; 3] =
    [RoundPhase::Sliced, RoundPhase::AtRates, RoundPhase::Sequential];

/// What a cell measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measurement {
    /// The bare transaction by sysbench, over this many connections.
    Bare(usize),
    /// Orders as fast as they go, each of a new user.
    Orders(Setup),
    /// Orders at half of the rate that the cell of this name had in the same round, whether
    /// answers come or not.
    AtHalfOf(&'static str, Setup),
    /// Admissions in the mode `queued`, as fast as they go.
    Admitted(Setup),
    /// Orders that are written of what was admitted so, when no more is.
    Drained(Setup),
    /// "Sold out" as fast as it goes.
    SoldOut(Setup),
    /// The same requests to a handler that answers a constant, over this many connections.
    Constant(usize),
    /// A replica's memory after a million requests.
    Memory(Setup),
    /// A replica's start.
    Start(Setup),
}

impl Measurement {
    /// In which part of a round it is measured.
    pub fn phase(&self) -> RoundPhase {
        match self {
            Self::Bare(_)
            | Self::Orders(_)
            | Self::Admitted(_)
            | Self::SoldOut(_)
            | Self::Constant(_) => RoundPhase::Sliced,
            Self::AtHalfOf(..) => RoundPhase::AtRates,
            Self::Drained(_) | Self::Memory(_) | Self::Start(_) => RoundPhase::Sequential,
        }
    }
}

/// Something that is measured once a round.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// What reports call it.
    pub name: &'static str,
    /// What it is.
    pub what: Measurement,
}

const fn cell(name: &'static str, what: Measurement) -> Cell {
    Cell { name, what }
}

const fn on(topology: Topology, setup: Setup) -> Measurement {
    Measurement::Orders(Setup { topology, ..setup })
}

const fn locked(flags: &'static [&'static str], needs: ExtraServers) -> Measurement {
    Measurement::Orders(Setup { flags, needs, ..SINGLE })
}

/// A lock by consensus of three.
const fn agreed(flags: &'static [&'static str], needs: ExtraServers) -> Measurement {
    on(Topology::Ensemble, Setup { flags, needs, ..SINGLE })
}

const fn traced(trace_ratio: &'static str, setup: Setup) -> Measurement {
    Measurement::Orders(Setup { trace_ratio: Some(trace_ratio), ..setup })
}

/// All cells; in this order they are measured within their part of a round.
pub const CELLS: [Cell; 56] = [
    cell("bare:1", Measurement::Bare(1)),
    cell("bare:8", Measurement::Bare(8)),
    cell("bare:32", Measurement::Bare(32)),
    cell("single:64", Measurement::Orders(SINGLE)),
    cell("single:256", Measurement::Orders(Setup { connections: 256, ..SINGLE })),
    cell("single, buckets", Measurement::Orders(BUCKETS)),
    cell("single, semi-sync", on(Topology::SemiSync, SINGLE)),
    cell("buckets, semi-sync", on(Topology::SemiSync, BUCKETS)),
    cell("grouped:64", Measurement::Orders(GROUPED)),
    cell("grouped:256", Measurement::Orders(Setup { connections: 256, ..GROUPED })),
    cell("grouped:64 x3", Measurement::Orders(Setup { replicas: 3, ..GROUPED })),
    cell("grouped:128 x2", Measurement::Orders(Setup { connections: 128, replicas: 2, ..GROUPED })),
    cell("grouped:192 x3", Measurement::Orders(Setup { connections: 192, replicas: 3, ..GROUPED })),
    cell("grouped:256 x3", Measurement::Orders(Setup { connections: 256, replicas: 3, ..GROUPED })),
    cell("grouped, semi-sync", on(Topology::SemiSync, GROUPED)),
    cell("grouped, async", on(Topology::Async, GROUPED)),
    cell("grouped, sentinel", on(Topology::Sentinel, GROUPED)),
    cell("grouped, redis-cluster", on(Topology::RedisCluster, GROUPED)),
    cell("grouped, galera", on(Topology::Galera, GROUPED)),
    cell("2 vouchers", Measurement::Orders(TWO_VOUCHERS)),
    cell("2 vouchers, 1 shard", on(Topology::Sharded, ON_ONE_SHARD)),
    cell("2 vouchers, 2 shards", on(Topology::Sharded, TWO_VOUCHERS)),
    cell("queued, admitted", Measurement::Admitted(QUEUED)),
    cell("queued, drained", Measurement::Drained(QUEUED)),
    cell("million orders", Measurement::Orders(Setup { filled: 1_000_000, ..GROUPED })),
    cell("1000 vouchers", Measurement::Orders(Setup { vouchers: 1000, ..GROUPED })),
    cell("half single", Measurement::AtHalfOf("single:64", SINGLE)),
    cell("half grouped", Measurement::AtHalfOf("single:64", GROUPED)),
    cell("grouped, keys", Measurement::Orders(Setup { with_keys: true, ..GROUPED })),
    cell(PLAIN, Measurement::Constant(SINGLE.connections)),
    cell("sold out", Measurement::SoldOut(SINGLE)),
    cell("sold out x3", Measurement::SoldOut(Setup { replicas: 3, ..SINGLE })),
    cell("sold out, revoked", Measurement::SoldOut(Setup { revoked: 100_000, ..SINGLE })),
    cell("memory", Measurement::Memory(GROUPED)),
    cell("start", Measurement::Start(GROUPED)),
    cell("lock none", locked(&["--lock=none"], ExtraServers::Nothing)),
    cell("lock local", locked(&["--lock=local"], ExtraServers::Nothing)),
    cell("lock mysql-row", locked(&["--lock=mysql-row"], ExtraServers::Nothing)),
    cell("lock zookeeper", locked(&["--lock=zookeeper"], ExtraServers::ZooKeeper)),
    cell("lock etcd", locked(&["--lock=etcd"], ExtraServers::Etcd)),
    cell("lock nats", locked(&["--lock=nats"], ExtraServers::Nats)),
    cell("ensemble zookeeper", agreed(&["--lock=zookeeper"], ExtraServers::ZooKeeper)),
    cell("ensemble etcd", agreed(&["--lock=etcd"], ExtraServers::Etcd)),
    cell("grouped, lock none", locked(&["--writer=grouped", "--lock=none"], ExtraServers::Nothing)),
    cell("scope voucher", locked(&["--lock-scope=voucher"], ExtraServers::Nothing)),
    cell("guards off", locked(&["--lab", "--guards=off"], ExtraServers::Nothing)),
    cell("jvm:64", Measurement::Orders(jvm(JvmTuning::G1))),
    cell("jvm zgc:64", Measurement::Orders(jvm(JvmTuning::Zgc))),
    cell("start single", Measurement::Start(SINGLE)),
    cell("jvm virtual:64", Measurement::Orders(jvm(JvmTuning::VirtualThreads))),
    cell("start jvm", Measurement::Start(jvm(JvmTuning::G1))),
    cell("traced single", traced("0.01", SINGLE)),
    cell("untraced single", traced("0", SINGLE)),
    cell("traced grouped", traced("0.01", GROUPED)),
    cell("untraced grouped", traced("0", GROUPED)),
    cell("64 of 1000", Measurement::Orders(Setup { vouchers: 1000, wanted: 64, ..GROUPED })),
];

/// The cell of that name; rows name no others.
pub fn find_cell(name: &str) -> Option<&'static Cell> {
    CELLS.iter().find(|cell| cell.name == name)
}

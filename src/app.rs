//! The composition root: from configuration to a running service.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use distlock::{LockKind, LockOptions, Locks};
use sqlx::MySqlPool;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::config::Serve;
use crate::failpoint;
use crate::http::{self, Api, CodeDelivery, HttpService, Limits, RateLimits, Streams};
use crate::lock::{self, Places, Wanted};
use crate::payment::Payments;
use crate::readiness::Readiness;
use crate::sale::{Guards, Housekeeping, Parts, Path, Plant, QueueParts, Rules, Sale, Seal};
use crate::store::{
    self, Codes, DatabaseOptions, Health, OrderIds, Orders, RedisConnection, Replicas, SaleStream,
    SaleTables, StoreError, Users, Vouchers, Watched,
};
use crate::telemetry;
use crate::token::Tokens;

/// How often a replica shows that it lives and looks at the others.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// Connections for the heartbeat.
const SIDE_CONNECTIONS: u32 = 1;
/// For so long the database keeps what a holder has locked that was cut off from it.
const SILENCE: Duration = Duration::from_secs(30);
/// The same of the path `queued`, where it keeps others from its tickets. A replica that stands
/// still for longer in the middle of a transaction has it undone, and writes those orders again.
const QUEUE_SILENCE: Duration = Duration::from_secs(5);

/// A service that is ready to serve.
pub struct App {
    service: HttpService,
    listener: TcpListener,
    limits: Limits,
    sale: Sale,
    housekeeping: Housekeeping,
    readiness: Readiness,
    surroundings: Surroundings,
    servers: Servers,
    lock_servers: LockServersHealth,
}

impl App {
    /// Connects, migrates and binds. Every error is a sentence about what is missing.
    pub async fn start(config: &Serve) -> anyhow::Result<Self> {
        config.check().map_err(|sentence| anyhow!(sentence))?;
        telemetry::metrics();
        if let Some(failpoints) = &config.laboratory.failpoints {
            failpoint::arm(failpoints).map_err(|why| anyhow!("--failpoints: {why}"))?;
            tracing::warn!(failpoints, "this replica fails where it is told to");
        }
        let secret = config.jwt_secret.clone().unwrap_or_else(http::passing_secret);
        let tokens = Tokens::new(&secret)?;
        let payments = payments(config)?;
        let address = config.address();
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let address = listener.local_addr()?;
        let servers = Servers::open(config).await?;
        let replica = config.replica_name(address);
        telemetry::name_replica(&replica);
        let settings = config.settings(lock::fingerprint(config.lock, &config.lock_servers));
        let surroundings = Surroundings {
            replicas: Replicas::new(servers.side_pool.clone(), replica.clone(), settings.clone()),
            redis: servers.redis.clone(),
            allow_mixed: config.allow_mixed,
            allow_eviction: config.lock_servers.redis.allow_eviction,
        };
        let readiness = Readiness::new(servers.health.clone());
        let unfit = surroundings.look().await;
        readiness.set_unfit(unfit.context("cannot use the schema; `seckill migrate` makes it")?);
        let locks = locks(config, &servers).await?;
        let lock_servers = LockServersHealth {
            locks: locks.clone(),
            watched: lock::has_servers_of_its_own(config.lock, &config.lock_servers),
        };
        servers.health.look_at_locks(lock_servers.clone().ask()).await;
        let queue = (config.path.path == Path::Queued).then(|| {
            let consumer_is_stable = config.replica_id.is_some();
            let unique = || format!("{replica}-{}", Uuid::new_v4());
            QueueParts {
                stream: SaleStream::new(servers.redis.clone(), config.path.queue_length()),
                seal: Seal::new(&secret),
                consumer: if consumer_is_stable { replica.clone() } else { unique() },
                consumer_is_stable,
            }
        });
        let sale = sale(config, &servers, (locks, payments, queue));
        let housekeeping = housekeeping(config, &servers, &sale).await?;
        let api = Api { replica, settings, ..api(config, &servers, tokens, (&sale, &readiness)) };
        Ok(Self {
            service: http::service(api),
            listener,
            limits: Limits {
                connections: config.max_connections as usize,
                drain_delay: millis(config.drain_delay_ms),
                tell_peers: config.limits.rules().need_addresses(),
            },
            sale,
            housekeeping,
            readiness,
            surroundings,
            servers,
            lock_servers,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `end` resolves; then drains, finishes what is under way, and leaves.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Servers { pool, side_pool, redis, health } = self.servers;
        let (surroundings, readiness) = (self.surroundings.clone(), self.readiness.clone());
        let lock_servers = self.lock_servers;
        let locks = move || lock_servers.clone().ask();
        let watched = Watched { pool: pool.clone(), redis, locks };
        let background = [
            tokio::spawn(store::keep_watch(health, watched)),
            tokio::spawn(surroundings.keep_looking(readiness)),
            tokio::spawn(self.housekeeping.clone().run()),
        ];
        if let Some(queue) = self.sale.queue() {
            tokio::spawn(queue.clone().run());
        }
        http::serve(self.listener, self.service, self.limits, self.readiness, end).await;
        self.sale.finish().await;
        for task in background {
            task.abort();
            // What it held is given back when it is dropped, which is so once it is waited for.
            let _aborted = task.await;
        }
        self.housekeeping.finish().await;
        if let Err(error) = self.surroundings.replicas.leave().await {
            tracing::debug!(%error, "this replica is forgotten in a while");
        }
        tokio::join!(pool.close(), side_pool.close());
    }
}

/// How the servers are asked that only the locks need.
#[derive(Clone)]
struct LockServersHealth {
    locks: Locks,
    /// Whether there are any.
    watched: bool,
}

impl LockServersHealth {
    async fn ask(self) -> Result<(), String> {
        if !self.watched {
            return Ok(());
        }
        self.locks.check_servers().await.map_err(|error| format!("locks: {error}"))
    }
}

/// The servers that everything lives on.
struct Servers {
    pool: MySqlPool,
    /// For the heartbeat, which must not queue behind a crowd.
    side_pool: MySqlPool,
    redis: RedisConnection,
    health: Health,
}

impl Servers {
    async fn open(config: &Serve) -> anyhow::Result<Self> {
        // One after the other: a failure of Redis must not break off a migration half way.
        let redis = lock::redis(&config.redis_url, &config.lock_servers.redis).await?;
        let (pool, side_pool) = open_database(config).await?;
        Ok(Self { pool, side_pool, redis, health: Health::default() })
    }
}

async fn open_database(config: &Serve) -> anyhow::Result<(MySqlPool, MySqlPool)> {
    let address = &config.database.database_url;
    let (url, given_as) = (address.expose(), address.given_as());
    if !config.no_migrate {
        let steps = store::migrate(url, config.laboratory.lab)
            .await
            .with_context(|| format!("cannot bring the schema of {given_as} up to date"))?;
        tracing::debug!(steps, "schema is up to date");
    }
    let naive = Guards::from(config.laboratory.guards) == Guards::Off;
    // What a replica that is frozen or cut off has locked keeps others from its queued tickets.
    let is_queued = config.path.path == Path::Queued;
    let silence = is_queued.then(|| QUEUE_SILENCE + millis(config.laboratory.work_ms));
    let pool = |pool_size| {
        store::database(&DatabaseOptions { url: url.to_owned(), pool_size, naive, silence })
            .with_context(|| format!("{given_as} is not usable"))
    };
    Ok((pool(config.db_pool)?, pool(SIDE_CONNECTIONS)?))
}

fn tables(config: &Serve) -> &'static SaleTables {
    match Guards::from(config.laboratory.guards) {
        Guards::On => &SaleTables::GUARDED,
        Guards::Off => &SaleTables::UNGUARDED,
    }
}

async fn locks(config: &Serve, servers: &Servers) -> anyhow::Result<Locks> {
    let places = Places {
        redis: Some(servers.redis.clone()),
        database_url: Some(&config.database.database_url),
        naive: Guards::from(config.laboratory.guards) == Guards::Off,
        // A holder that works is silent for so long, between two statements.
        silence: SILENCE + millis(config.laboratory.work_ms),
        make_tables: false,
        more: &config.lock_servers,
    };
    let wanted = Wanted {
        kind: config.lock,
        lease: config.lease(),
        fenced: config.laboratory.fenced,
        plant: config.laboratory.plant,
    };
    let opened = lock::open(wanted, places).await;
    opened.with_context(|| format!("cannot make the lock {}", config.lock))
}

/// Who takes the money; with `--dev` the secret may be missing, as that of the tokens may.
fn payments(config: &Serve) -> anyhow::Result<Option<Payments>> {
    let secret = match (&config.payment_secret, config.dev) {
        (Some(secret), _) => secret.clone(),
        (None, true) => http::passing_secret(),
        (None, false) => return Ok(None),
    };
    let payments = Payments::mocked(&secret)?;
    tracing::warn!("payments are mocked: an order that is paid has cost nobody anything");
    Ok(Some(payments))
}

async fn housekeeping(
    config: &Serve,
    servers: &Servers,
    sale: &Sale,
) -> anyhow::Result<Housekeeping> {
    let wanted = Wanted {
        kind: LockKind::Redisson,
        lease: LockOptions::WATCHDOG_LEASE,
        fenced: false,
        plant: None,
    };
    let places = Places {
        redis: Some(servers.redis.clone()),
        database_url: None,
        naive: false,
        silence: SILENCE,
        make_tables: false,
        more: &config.lock_servers,
    };
    let locks = lock::open(wanted, places).await.context("cannot make the housekeeper's lock")?;
    let orders = Orders::new(servers.side_pool.clone(), tables(config));
    Ok(sale.housekeeping(orders, locks, config.unpaid_timeout_s))
}

fn sale(
    config: &Serve,
    servers: &Servers,
    (locks, payments, queue): (Locks, Option<Payments>, Option<QueueParts>),
) -> Sale {
    let Servers { pool, redis, health, .. } = servers;
    let lease = locks.guarantees().lease(config.lease());
    let options = LockOptions::new(millis(config.lock_wait_ms), lease);
    let rules = Rules {
        scope: config.lock_scope.into(),
        guards: config.laboratory.guards.into(),
        writer: config.writer,
        groups: config.group_limits(),
        lock_order: config.laboratory.lock_order.into(),
        on_lost: config.laboratory.on_lost,
        lock: LockOptions { fenced: config.laboratory.fenced, ..options },
        work: millis(config.laboratory.work_ms),
        plant: config.laboratory.plant,
        control: config.laboratory.plant_control,
        max_orders: config.max_orders as usize,
    };
    let parts = Parts {
        orders: Orders::new(pool.clone(), tables(config)),
        vouchers: Vouchers::new(pool.clone(), tables(config)),
        ids: OrderIds::new(redis.clone()),
        locks,
        lock_kind: config.lock,
        lock_server: lock::server_name(config.lock),
        health: health.clone(),
        payments,
        pool: pool.clone(),
        queue,
    };
    Sale::new(rules, parts)
}

fn api(
    config: &Serve,
    servers: &Servers,
    tokens: Tokens,
    (sale, readiness): (&Sale, &Readiness),
) -> Api {
    let pool = &servers.pool;
    let delivery = match (&config.login_code_outbox, config.dev) {
        (_, true) => CodeDelivery::InAnswer,
        (Some(path), _) if path.as_os_str() == "-" => CodeDelivery::Stdout,
        (Some(path), _) => CodeDelivery::File(path.clone()),
        (None, _) => {
            tracing::warn!("nobody can log in: LOGIN_CODE_OUTBOX is not set");
            CodeDelivery::Nowhere
        }
    };
    let plant = config.laboratory.plant;
    let lab = [
        config.laboratory.lab.then(|| "lab".to_owned()),
        config.dev.then(|| "dev".to_owned()),
        plant.map(|plant| format!("plant {plant:?}")),
        config.laboratory.failpoints.as_deref().map(failpoint::summary),
    ];
    let lab: Vec<_> = lab.into_iter().flatten().collect();
    Api {
        users: Users::new(pool.clone()),
        codes: Codes::new(servers.redis.clone()),
        limits: RateLimits {
            rules: config.limits.rules(),
            counts: store::Limits::new(servers.redis.clone()),
        },
        delivery,
        tokens,
        token_life: Duration::from_secs(u64::from(config.token_ttl_s)),
        vouchers: Vouchers::new(pool.clone(), tables(config)),
        orders: Orders::new(pool.clone(), tables(config)),
        sale: sale.clone(),
        unpaid_timeout: Some(Duration::from_secs(config.unpaid_timeout_s.into()))
            .filter(|time| !time.is_zero()),
        pool: pool.clone(),
        readiness: readiness.clone(),
        replica: String::new(),
        settings: String::new(),
        lab: (!lab.is_empty()).then(|| lab.join(", ")),
        tells_holds: config.laboratory.lab,
        lying_audit: plant == Some(Plant::LyingAudit),
        max_requests: config.max_requests as usize,
        streams: Streams::default(),
    }
}

/// What may make this replica unfit although its servers answer.
#[derive(Clone)]
struct Surroundings {
    replicas: Replicas,
    redis: RedisConnection,
    allow_mixed: bool,
    allow_eviction: bool,
}

impl Surroundings {
    /// Shows that this replica lives, and tells what speaks against it.
    async fn look(&self) -> Result<Vec<String>, StoreError> {
        let mut reasons = Vec::new();
        if let Some((name, settings)) = self.replicas.heartbeat().await?
            && !self.allow_mixed
        {
            reasons.push(format!("replica {name} locks differently ({settings})"));
        }
        if !self.allow_eviction
            && let Err(StoreError::Unexpected(sentence)) = store::refuse_eviction(&self.redis).await
        {
            reasons.push(sentence);
        }
        Ok(reasons)
    }

    async fn keep_looking(self, readiness: Readiness) {
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            // A server that does not answer is the health watch's affair.
            if let Ok(reasons) = self.look().await {
                readiness.set_unfit(reasons);
            }
        }
    }
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

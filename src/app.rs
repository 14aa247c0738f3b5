//! The composition root: from configuration to a running service.

mod dianping;
mod lock_servers;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use distlock::{DeadlockDetector, LockKind, LockOptions, Locks, OwnerTag};
use sqlx::MySqlPool;
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::config::Serve;
use crate::fitness::FitnessChecks;
use crate::http::{self, Api, HttpService, RateLimits, ServerLimits, SseLimiter};
use crate::lock::{self, LockEndpoints, LockSpec};
use crate::payment::Payments;
use crate::readiness::Readiness;
use crate::revocation::RevocationReader;
use crate::sale::{
    Guards, Housekeeping, InjectedBug, Parts, PurchaseMode, QueueParts, Sale, SaleConfig,
    TicketSigner,
};
use crate::store::{
    self, Codes, DatabaseOptions, Health, OrderIds, Orders, RedisConnection, RedisRights, RedisUse,
    Replicas, SaleStream, SaleTables, Users, Vouchers, WatchedServers,
};
use crate::telemetry;
use crate::token::Tokens;
use crate::{database, failpoint, open_files};
use lock_servers::LockServersHealth;

/// Connections for heartbeat and housekeeping, and for reads of revocations beside them.
const SIDE_CONNECTIONS: u32 = 2;
/// How long a session of the database may be silent before its locks are freed.
const SESSION_SILENCE: Duration = Duration::from_secs(30);
/// How long a session of the queued mode may be silent; its row locks delay other replicas. A
/// replica that pauses for longer loses its transaction, and writes those orders again.
const QUEUED_SESSION_SILENCE: Duration = Duration::from_secs(5);

/// A service that is ready to serve.
pub struct App {
    service: HttpService,
    listener: TcpListener,
    limits: ServerLimits,
    sale: Sale,
    housekeeping: Housekeeping,
    readiness: Readiness,
    checks: FitnessChecks,
    revocation: RevocationReader,
    servers: Servers,
    lock_servers: LockServersHealth,
    deadlocks: DeadlockDetector,
}

impl App {
    /// Connects, migrates and binds. Each error is a sentence that says what is missing.
    pub async fn start(config: &Serve) -> anyhow::Result<Self> {
        config.check().map_err(|sentence| anyhow!(sentence))?;
        telemetry::metrics();
        open_files::raise_limit(config.connections.max_connections);
        if let Some(failpoints) = &config.laboratory.failpoints {
            failpoint::arm(failpoints).map_err(|why| anyhow!("--failpoints: {why}"))?;
            tracing::warn!(failpoints, "failpoints are armed; this replica fails on purpose");
        }
        let outbox = config.login.open_outbox(config.dev)?;
        let secret = config.jwt_secret.clone().unwrap_or_else(http::ephemeral_secret);
        let tokens = Tokens::new(&secret)?.with_max_age(config.tokens.max_age_s());
        let payments = payments(config)?;
        let address = config.address();
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("cannot listen on {address}"))?;
        let servers = Servers::open(config).await?;
        let replica = config.replica_name(listener.local_addr()?);
        telemetry::name_replica(&replica);
        let settings = config.settings(lock::fingerprint(config.lock, &config.lock_servers));
        let checks = FitnessChecks {
            replicas: Replicas::new(servers.side_pool.clone(), replica.clone(), settings.clone()),
            redis: servers.redis.clone(),
            rights: servers.rights.clone(),
            allow_mixed: config.allow_mixed,
            allow_eviction: config.lock_servers.redis.allow_eviction,
        };
        let readiness = Readiness::new(servers.health.clone(), outbox);
        let unfit = checks.run().await;
        readiness.set_unfit(unfit.context("cannot use the schema; `seckill migrate` makes it")?);
        let (pool, rules) = (servers.side_pool.clone(), config.tokens.revocation_rules());
        let revocation = RevocationReader::start(pool, tokens.revocations(), rules).await?;
        let locks = lock_servers::open(config, &servers).await?;
        let lock_servers = LockServersHealth {
            locks: locks.clone(),
            watched: lock::has_servers_of_its_own(config.lock, &config.lock_servers),
        };
        servers.health.look_at_locks(lock_servers.clone().ask()).await;
        let queue = (config.purchase_mode.mode() == PurchaseMode::Queued)
            .then(|| queue_parts(config, &servers, &replica, TicketSigner::new(&secret)));
        let options = lock_options(config, &locks);
        let shared = (&servers.redis, &servers.health);
        let dianping = dianping::open(config, shared, (&locks, options)).await?;
        let sale = sale(config, &servers, (locks, options), payments, queue);
        let housekeeping = housekeeping(config, &servers, &sale).await?;
        let api = Api {
            replica,
            settings,
            ..api(config, &servers, tokens, (&sale, &readiness, &revocation))
        };
        Ok(Self {
            service: http::service(api, dianping),
            listener,
            limits: ServerLimits {
                connections: config.connections.max_connections as usize,
                write_timeout: config.connections.write_timeout(),
                drain_delay: millis(config.drain_delay_ms),
                tell_peers: config.limits.rules(config.login.codes_of_phone()).need_addresses(),
            },
            sale,
            housekeeping,
            readiness,
            checks,
            revocation,
            deadlocks: lock::deadlock_observer(&servers.redis)?,
            servers,
            lock_servers,
        })
    }

    /// The address that the service listens on.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `end` resolves; then drains, and finishes requests in flight.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Servers { pool, side_pool, redis, health, .. } = self.servers;
        let (checks, readiness) = (self.checks.clone(), self.readiness.clone());
        let lock_servers = self.lock_servers;
        let locks = move || lock_servers.clone().ask();
        let watched = WatchedServers { pool: pool.clone(), redis, locks };
        let background = [
            tokio::spawn(store::keep_watch(health, watched)),
            tokio::spawn(readiness.outbox().clone().keep_watch()),
            tokio::spawn(checks.keep_running(readiness)),
            tokio::spawn(self.revocation.run()),
            tokio::spawn(self.housekeeping.clone().run()),
            tokio::spawn(async move { match self.deadlocks.observe().await {} }),
        ];
        if let Some(queue) = self.sale.queue() {
            tokio::spawn(queue.clone().run());
        }
        http::serve(self.listener, self.service, self.limits, self.readiness, end).await;
        self.sale.finish().await;
        for task in background {
            task.abort();
            // Awaiting it makes sure that it is dropped, which releases what it holds.
            let _aborted = task.await;
        }
        self.housekeeping.finish().await;
        if let Err(error) = self.checks.replicas.leave().await {
            tracing::debug!(%error, "cannot remove this replica from the table; its row expires");
        }
        tokio::join!(pool.close(), side_pool.close());
    }
}

/// The database and the Redis of the service.
struct Servers {
    pool: MySqlPool,
    /// For the heartbeat, which must not wait for connections of purchases.
    side_pool: MySqlPool,
    redis: RedisConnection,
    rights: RedisRights,
    health: Health,
}

impl Servers {
    async fn open(config: &Serve) -> anyhow::Result<Self> {
        // One after the other, so that a failure of Redis does not abort a migration.
        let redis = lock::redis(&config.redis_url, &config.lock_servers.redis).await?;
        let rights = RedisRights::new(redis.clone(), redis_use(config));
        let given_as = config.redis_url.given_as();
        let missing = rights.missing(config.lock_servers.redis.start_timeout()).await;
        if let Some(sentence) = missing.with_context(|| format!("cannot use {given_as}"))? {
            bail!("{given_as}: {sentence} (docs/redis.md lists all)");
        }
        let (pool, side_pool) = open_database(config).await?;
        Ok(Self { pool, side_pool, redis, rights, health: Health::default() })
    }
}

fn redis_use(config: &Serve) -> RedisUse {
    let servers = &config.lock_servers;
    RedisUse {
        lock: config.lock.redis_keys(),
        confirmations: servers.lock_replication.confirmations(),
        is_queued: config.purchase_mode.mode() == PurchaseMode::Queued,
        checks_eviction: !servers.redis.allow_eviction,
        dianping: config.dianping.counter(),
    }
}

async fn open_database(config: &Serve) -> anyhow::Result<(MySqlPool, MySqlPool)> {
    let address = &config.database.database_url;
    let (url, given_as) = (address.expose(), address.given_as());
    if !config.no_migrate {
        let country = config.login.phone.phone_country;
        let (_, phones) = database::migrate(address, config.laboratory.lab, country).await?;
        if phones.found > 0 {
            tracing::warn!(
                users = phones.found,
                "some users have no valid phone and cannot log in; `seckill migrate` lists them"
            );
        }
    }
    let naive = config.laboratory.guards == Guards::Off;
    // A frozen replica's row locks keep other replicas from its queued tickets.
    let is_queued = config.purchase_mode.mode() == PurchaseMode::Queued;
    let silence = is_queued.then(|| QUEUED_SESSION_SILENCE + millis(config.laboratory.work_ms));
    let pool = async |pool_size| {
        store::database(&DatabaseOptions { url: url.to_owned(), pool_size, naive, silence })
            .await
            .with_context(|| format!("{given_as} is not usable"))
    };
    Ok((pool(config.db_pool).await?, pool(SIDE_CONNECTIONS).await?))
}

fn tables(config: &Serve) -> &'static SaleTables {
    match config.laboratory.guards {
        Guards::On => &SaleTables::GUARDED,
        Guards::Off => &SaleTables::UNGUARDED,
    }
}

/// The payment provider, if there is one; with `--dev` its secret may be missing.
fn payments(config: &Serve) -> anyhow::Result<Option<Payments>> {
    let secret = match (&config.payment_secret, config.dev) {
        (Some(secret), _) => secret.clone(),
        (None, true) => http::ephemeral_secret(),
        (None, false) => return Ok(None),
    };
    let payments = Payments::mocked(&secret)?;
    tracing::warn!("payments are mocked: paying an order moves no money");
    Ok(Some(payments))
}

async fn housekeeping(
    config: &Serve,
    servers: &Servers,
    sale: &Sale,
) -> anyhow::Result<Housekeeping> {
    let spec = LockSpec {
        kind: LockKind::Redisson,
        lease: LockOptions::WATCHDOG_LEASE,
        fenced: false,
        injected_bug: None,
    };
    let endpoints = LockEndpoints {
        redis: Some(servers.redis.clone()),
        database_url: None,
        naive: false,
        silence: SESSION_SILENCE,
        make_tables: false,
        more: &config.lock_servers,
    };
    let locks = lock::open(spec, endpoints).await.context("cannot make the housekeeper's lock")?;
    let locks = locks.with_owner_tag(OwnerTag::of_this_process("housekeeping"));
    let orders = Orders::new(servers.side_pool.clone(), tables(config));
    Ok(sale.housekeeping(orders, locks, config.unpaid_timeout_s))
}

fn queue_parts(config: &Serve, servers: &Servers, name: &str, signer: TicketSigner) -> QueueParts {
    let consumer_is_stable = config.replica_id.is_some();
    let unique = || format!("{name}-{}", Uuid::new_v4());
    QueueParts {
        stream: SaleStream::new(servers.redis.clone(), config.purchase_mode.queue_length()),
        signer,
        consumer: if consumer_is_stable { name.to_owned() } else { unique() },
        consumer_is_stable,
    }
}

fn lock_options(config: &Serve, locks: &Locks) -> LockOptions {
    let lease = locks.guarantees().lease(config.lease());
    LockOptions::new(millis(config.lock_wait_ms), lease)
}

fn sale(
    config: &Serve,
    servers: &Servers,
    (locks, options): (Locks, LockOptions),
    payments: Option<Payments>,
    queue: Option<QueueParts>,
) -> Sale {
    let Servers { pool, redis, health, .. } = servers;
    let sale_config = SaleConfig {
        scope: config.lock_scope,
        guards: config.laboratory.guards,
        writer: config.writer,
        batches: config.batch_limits(),
        lock_order: config.laboratory.lock_order,
        on_lost: config.laboratory.on_lost,
        lock: LockOptions { fenced: config.laboratory.fenced, ..options },
        work: millis(config.laboratory.work_ms),
        injected_bug: config.laboratory.inject_bug,
        control_bug: config.laboratory.inject_bug_control,
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
    Sale::new(sale_config, parts)
}

fn api(
    config: &Serve,
    servers: &Servers,
    tokens: Tokens,
    (sale, readiness, revocation): (&Sale, &Readiness, &RevocationReader),
) -> Api {
    let pool = &servers.pool;
    let outbox = readiness.outbox().clone();
    if outbox.is_nowhere() {
        tracing::warn!("LOGIN_CODE_OUTBOX is not set; logins are refused");
    }
    let bug = config.laboratory.inject_bug;
    let lab = [
        config.laboratory.lab.then(|| "lab".to_owned()),
        config.dev.then(|| "dev".to_owned()),
        bug.map(|bug| format!("injected bug {bug:?}")),
        config.laboratory.failpoints.as_deref().map(failpoint::summary),
    ];
    let lab: Vec<_> = lab.into_iter().flatten().collect();
    Api {
        users: Users::new(pool.clone()),
        codes: Codes::new(servers.redis.clone(), config.login.code_rules()),
        limits: RateLimits {
            rules: config.limits.rules(config.login.codes_of_phone()),
            counts: store::RateLimiter::new(servers.redis.clone()),
        },
        country: config.login.phone.phone_country,
        outbox,
        tokens,
        token_life: config.tokens.life(),
        revocation: revocation.clone(),
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
        falsifies_audit: bug == Some(InjectedBug::LyingAudit),
        admits_strangers: bug == Some(InjectedBug::AdminWithoutLogin),
        max_requests: config.max_requests as usize,
        streams: SseLimiter::new(
            config.purchase_mode.max_streams,
            config.purchase_mode.stream_leases(servers.redis.clone()),
        ),
    }
}

fn millis(ms: u32) -> Duration {
    Duration::from_millis(u64::from(ms))
}

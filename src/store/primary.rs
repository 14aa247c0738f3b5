//! Which of a database's servers takes writes.
//!
//! An address may name several servers: a primary and its replicas. Only a server whose
//! `read_only` is off is used. A task per pool looks at the primary four times a second. When it
//! is gone and exactly one other server takes writes, new connections lead there, and the old ones
//! are dropped. Two that take writes are never chosen between: which one has the newer orders
//! cannot be seen from here. No pool begins then, and one that has begun logs it within 5 s.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions, Executor, MySqlConnection, MySqlPool};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::session::SERVER_IDENTITY;

/// The most servers that an address may name.
const MAX_SERVERS: usize = 9;
/// How long servers may take to welcome a connection that is made outside the pool.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one of several servers may take: another may be the primary.
const SERVER_TIMEOUT: Duration = Duration::from_secs(2);
/// How often the primary is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// Every twentieth of these looks asks all servers: a second primary may be among them.
const LOOKS_AT_ALL: u32 = 20;
/// How long one look may take. A look that fails changes nothing unless another server takes
/// writes.
const LOOK_TIMEOUT: Duration = Duration::from_millis(500);
/// `MariaDB` 12 says `ON`, others 1.
pub(super) const TAKES_WRITES: &str = "SELECT CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF')";

/// The servers of a database's address, as they are given: `mysql://user:password@a,b:3307/shop`.
#[derive(Clone)]
pub(super) struct DatabaseServers(Vec<MySqlConnectOptions>);

impl DatabaseServers {
    /// Reads an address. No server is asked.
    pub(super) fn parse(url: &str) -> Result<Self, sqlx::Error> {
        let wrong = |what: &str| sqlx::Error::Configuration(what.to_owned().into());
        let Some((scheme @ ("mysql" | "mariadb"), rest)) = url.split_once("://") else {
            return Err(wrong("the database's address must begin with mysql://"));
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (login, hosts) = authority.split_at(authority.rfind('@').map_or(0, |at| at + 1));
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.len() > MAX_SERVERS {
            return Err(wrong("the database's address names more than 9 servers"));
        }
        if hosts.len() > 1 && hosts.contains(&"") {
            return Err(wrong("the database's address has a comma without a server"));
        }
        let server = |host: &&str| {
            let server: MySqlConnectOptions = format!("{scheme}://{login}{host}{path}").parse()?;
            // Without the brackets of a URL, which no resolver knows.
            let host = server.get_host().trim_matches(['[', ']']).to_owned();
            Ok::<_, sqlx::Error>(server.host(&host))
        };
        Ok(Self(hosts.iter().map(server).collect::<Result<_, _>>()?))
    }

    /// Changes the settings of connections to each server.
    #[must_use]
    pub(super) fn map(self, set: impl FnMut(MySqlConnectOptions) -> MySqlConnectOptions) -> Self {
        Self(self.0.into_iter().map(set).collect())
    }

    /// Where a pool begins: the index of the server that takes writes, or 0 if none says so, and
    /// what is stale. Fails if several do.
    pub(super) async fn choose(&self) -> Result<(usize, Stale), sqlx::Error> {
        let stale = Stale::default();
        if !self.is_several() {
            return Ok((0, stale));
        }
        match self.find_primary().await {
            Ok((index, server)) => {
                stale.stay_at(server);
                Ok((index, stale))
            }
            Err(0) => Ok((0, stale)),
            Err(_) => Err(several_take_writes()),
        }
    }

    /// The settings of connections to that server.
    pub(super) fn at(&self, index: usize) -> &MySqlConnectOptions {
        &self.0[index]
    }

    /// Whether there is a choice.
    pub(super) fn is_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Connects to the server that takes writes, within 5 s.
    pub(super) async fn connect(&self) -> Result<MySqlConnection, sqlx::Error> {
        let connecting = timeout(CONNECT_TIMEOUT, self.find_and_connect()).await;
        connecting.unwrap_or_else(|_| Err(silence()))
    }

    /// Connects to the server that takes writes; the caller limits the time.
    pub(super) async fn find_and_connect(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut failure = None;
        let mut connected = Vec::new();
        let limit = if self.is_several() { SERVER_TIMEOUT } else { CONNECT_TIMEOUT };
        let attempts = self.0.iter().map(|server| async move {
            let attempt = timeout(limit, connect_writable(server)).await;
            attempt.unwrap_or_else(|_| Err(silence()))
        });
        for attempt in join_all(attempts).await {
            match attempt {
                Ok(connection) => connected.push(connection),
                // What is said of a login helps most, and a read-only server least.
                Err(error) if is_answer(&error) || failure.is_none() => failure = Some(error),
                Err(_) => {}
            }
        }
        match (connected.len(), failure) {
            (1, _) => Ok(connected.remove(0)),
            (0, Some(error)) => Err(error),
            _ => Err(several_take_writes()),
        }
    }

    /// The only one that takes writes: its index, and how it names itself. `Err` says how many do
    /// otherwise.
    async fn find_primary(&self) -> Result<(usize, String), usize> {
        let looks = self.0.iter().map(|server| timeout(LOOK_TIMEOUT, identity_if_writable(server)));
        let looks = join_all(looks).await.into_iter().enumerate();
        let found: Vec<(usize, String)> =
            looks.filter_map(|(index, look)| Some((index, look.ok()?.ok()?))).collect();
        <[_; 1]>::try_from(found).map(|[only]| only).map_err(|found| found.len())
    }
}

pub(super) fn silence() -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::TimedOut, "the database does not answer"))
}

fn several_take_writes() -> sqlx::Error {
    unavailable("several of the database's servers take writes")
}

fn unavailable(text: &str) -> sqlx::Error {
    sqlx::Error::Io(io::Error::new(io::ErrorKind::NotConnected, text))
}

fn is_answer(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(_))
}

async fn connect_writable(server: &MySqlConnectOptions) -> Result<MySqlConnection, sqlx::Error> {
    let mut connection = server.connect().await?;
    ensure_writable(&mut connection).await?;
    Ok(connection)
}

async fn identity_if_writable(server: &MySqlConnectOptions) -> Result<String, sqlx::Error> {
    identity(&mut connect_writable(server).await?).await
}

/// Fails for a replica, a primary that was demoted, or a node of Galera without a quorum. Such a
/// node answers what names no table, and refuses a ROLLBACK (1047).
pub(super) async fn ensure_writable(connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
    connection.execute(sqlx::raw_sql("ROLLBACK")).await?;
    let writable: i64 = sqlx::query_scalar(TAKES_WRITES).fetch_one(connection).await?;
    if writable == 1 {
        return Ok(());
    }
    Err(unavailable("the database server is read-only: a replica, or no longer the primary"))
}

/// Which of a pool's connections may not be used any more.
#[derive(Clone, Default)]
pub(super) struct Stale(Arc<Mutex<Failover>>);

/// The last change of the primary.
#[derive(Default)]
struct Failover {
    /// Connections that were made before are stale.
    stale_before: Option<Instant>,
    /// The server that is looked at, as it names itself.
    current: Option<String>,
    /// The one that was left for it. A connection that began there before may be welcomed later.
    left: Option<String>,
}

impl Stale {
    fn lock(&self) -> MutexGuard<'_, Failover> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a connection of that age was made since.
    pub(super) fn is_fresh(&self, age: Duration) -> bool {
        self.lock().stale_before.is_none_or(|moment| age < moment.elapsed())
    }

    /// Fails for a new connection to a server that the pool has left. It is the last that a new
    /// connection is asked.
    pub(super) async fn ensure_not_left(
        &self,
        connection: &mut MySqlConnection,
    ) -> Result<(), sqlx::Error> {
        loop {
            let Some(left) = self.lock().left.clone() else { return Ok(()) };
            let is_left = identity(connection).await? == left;
            // Another one may have been left meanwhile.
            if self.lock().left.as_ref() != Some(&left) {
                continue;
            }
            return if is_left {
                Err(unavailable("the database server is no longer the primary"))
            } else {
                Ok(())
            };
        }
    }

    fn set_to_now(&self) {
        self.lock().stale_before = Some(Instant::now());
    }

    fn leave_for(&self, server: Option<String>) {
        let mut failover = self.lock();
        failover.stale_before = Some(Instant::now());
        failover.left = failover.current.take().filter(|left| Some(left) != server.as_ref());
        failover.current = server;
    }

    /// Two servers that name themselves alike cannot be told apart.
    fn stay_at(&self, server: String) {
        let mut failover = self.lock();
        failover.left.take_if(|left| *left == server);
        failover.current = Some(server);
    }
}

async fn identity(connection: &mut MySqlConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar(SERVER_IDENTITY).fetch_one(connection).await
}

/// Has the pool, which begins at one of these servers, follow the primary until it is closed.
pub(super) async fn follow(
    pool: MySqlPool,
    (servers, begin): (DatabaseServers, usize),
    stale: Stale,
) {
    let following = async {
        let mut ticks = interval(LOOK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut current, mut kept, mut writable) = (begin, None, Ok(begin));
        for look_number in (0..LOOKS_AT_ALL).cycle() {
            ticks.tick().await;
            kept = look(&servers.0[current], kept, &stale).await;
            if kept.is_some() && look_number > 0 {
                continue;
            }
            let (found, server) = match servers.find_primary().await {
                // Its own takes writes: others may not have answered in time.
                Ok(_) if kept.is_some() => (Ok(current), None),
                Err(0) if kept.is_some() => (writable, None),
                Ok((index, server)) => (Ok(index), Some(server)),
                Err(count) => (Err(count), None),
            };
            match found {
                Ok(index) if index != current => {
                    current = index;
                    // Before: none that is made there may pass.
                    stale.leave_for(server);
                    pool.set_connect_options(servers.0[index].clone());
                    tracing::warn!(server = index + 1, "the database's primary is another server");
                }
                Err(count) if found != writable => {
                    tracing::error!(count, "not exactly one database server takes writes");
                }
                _ => {}
            }
            writable = found;
        }
    };
    let _closed: Result<(), _> = pool.close_event().do_until(following).await;
}

/// Looks at a server; the connection if it takes writes. If it says that it does not, all that was
/// made before is stale.
async fn look(
    server: &MySqlConnectOptions,
    kept: Option<MySqlConnection>,
    stale: &Stale,
) -> Option<MySqlConnection> {
    let look = async {
        let mut connection = if let Some(connection) = kept {
            connection
        } else {
            let mut connection = server.connect().await?;
            stale.stay_at(identity(&mut connection).await?);
            connection
        };
        let outcome = ensure_writable(&mut connection).await;
        outcome.map(|()| connection)
    };
    match timeout(LOOK_TIMEOUT, look).await {
        Ok(Ok(connection)) => Some(connection),
        Ok(Err(sqlx::Error::Io(error))) if error.kind() == io::ErrorKind::NotConnected => {
            stale.set_to_now();
            None
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::DatabaseServers;

    fn hosts(url: &str) -> Result<Vec<(String, u16)>, String> {
        let servers = DatabaseServers::parse(url).map_err(|error| error.to_string())?;
        let place = |server: &sqlx::mysql::MySqlConnectOptions| {
            (server.get_host().to_owned(), server.get_port())
        };
        assert!(servers.0.iter().all(|server| server.get_database() == Some("shop")));
        Ok(servers.0.iter().map(place).collect())
    }

    #[test]
    fn an_address_names_one_server_or_several_with_one_login() {
        let told = |host: &str, port| (host.to_owned(), port);
        assert_eq!(hosts("mysql://u:a%2Cb@h1/shop").unwrap(), [told("h1", 3306)]);
        let several = "mariadb://u:a,b@h1:3307,h2,[::1]:3308/shop?ssl-mode=disabled";
        assert_eq!(
            hosts(several).unwrap(),
            [told("h1", 3307), told("h2", 3306), told("::1", 3308)]
        );
        for (url, what) in [
            ("redis://h/shop", "mysql://"),
            ("mysql://u@h1,,h2/shop", "comma"),
            ("mysql://u@1,2,3,4,5,6,7,8,9,10/shop", "more than 9"),
            ("mysql://u@h1,h2:port/shop", "port"),
        ] {
            let error = hosts(url).unwrap_err();
            assert!(error.contains(what), "{url}: {error}");
        }
    }
}

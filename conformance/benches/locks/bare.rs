//! The bare pair: the two commands of a lock, sent by the crate `redis` and by nothing else.

use std::time::Duration;

use conformance::Servers;
use distlock::BoxFuture;
use loadtest_measure::error::Result;
use loadtest_measure::processes::NamedProcess;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisError};

use crate::cell::{Cell, Slice, broken, together};
use crate::throughput::{LEASE_MS, name};

/// As [`conformance::Addresses`] has it for the locks.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
pub(crate) const RELEASE: &str = include_str!("../../../lua/lock/release_if_owner.lua");

/// `SET NX PX` and a script that compares and deletes, for each task on a key of its own, over one
/// multiplexed connection. An owner is the number of the task: no names are made up.
pub(crate) struct BareCommands {
    connection: MultiplexedConnection,
    digest: String,
    tasks: usize,
    processes: Vec<NamedProcess>,
}

impl BareCommands {
    pub(crate) async fn connect(servers: &Servers, tasks: usize) -> Result<Self> {
        let redis = servers.redis();
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_TIMEOUT))
            .set_response_timeout(Some(ANSWER_TIMEOUT));
        let client = Client::open(redis.url()).map_err(broken("the bare pair"))?;
        let connection = client.get_multiplexed_async_connection_with_config(&config).await;
        let mut connection = connection.map_err(broken("the bare pair"))?;
        let digest: String = redis::cmd("SCRIPT")
            .arg("LOAD")
            .arg(RELEASE)
            .query_async(&mut connection)
            .await
            .map_err(broken("the bare pair"))?;
        let processes = vec![("us of client", std::process::id()), ("us of redis", redis.pid())];
        Ok(Self { connection, digest, tasks, processes })
    }
}

impl Cell for BareCommands {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let (connection, digest) = (&self.connection, &self.digest);
            together(self.tasks, length, &self.processes, |task, over| {
                let (connection, digest) = (connection.clone(), digest.clone());
                async move {
                    let (key, owner) = (name("bare-pair", task), task.to_string());
                    let mut count = 0;
                    while !over.is_over() {
                        pair(connection.clone(), &digest, &key, &owner)
                            .await
                            .map_err(broken("the bare pair"))?;
                        count += 1;
                    }
                    Ok(count)
                }
            })
            .await
        })
    }
}

async fn pair(
    mut connection: MultiplexedConnection,
    digest: &str,
    key: &str,
    owner: &str,
) -> std::result::Result<(), RedisError> {
    let mut set = redis::cmd("SET");
    set.arg(key).arg(owner).arg("NX").arg("PX").arg(LEASE_MS);
    let granted: Option<String> = set.query_async(&mut connection).await?;
    let mut release = redis::cmd("EVALSHA");
    release.arg(digest).arg(1).arg(key).arg(owner);
    let freed: i64 = release.query_async(&mut connection).await?;
    assert!(granted.is_some() && freed == 1, "{key} is uncontended");
    Ok(())
}

//! One script, sent after a rest: a hand-off by the server cannot take less.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use conformance::Servers;
use distlock::BoxFuture;
use loadtest_measure::error::{Error, Result};
use redis::{Client, Connection, Script};
use tokio::task::block_in_place;

use crate::cell::{Cell, Slice, broken};
use crate::contest::{HAND_OFF, HOLD};
use crate::throughput::name;

/// As for the bare pair.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
const RELEASE: &str = include_str!("../../../lua/lock/release_if_owner.lua");

/// A thread and its connection, without load: it rests for as long as contenders hold their lock,
/// and asks then.
pub(crate) struct Trip {
    connection: Connection,
    script: Script,
}

impl Trip {
    pub(crate) fn connect(servers: &Servers) -> Result<Self> {
        let client = Client::open(servers.redis().url()).map_err(broken("a trip"))?;
        let connection =
            client.get_connection_with_timeout(ANSWER_TIMEOUT).map_err(broken("a trip"))?;
        connection.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(broken("a trip"))?;
        connection.set_write_timeout(Some(ANSWER_TIMEOUT)).map_err(broken("a trip"))?;
        Ok(Self { connection, script: Script::new(RELEASE) })
    }

    fn go(&mut self) -> Result<Duration> {
        thread::sleep(HOLD);
        let asked = Instant::now();
        let mut release = self.script.key(name("trip", 0));
        let freed: i64 = release.arg(0).invoke(&mut self.connection).map_err(broken("a trip"))?;
        match freed {
            -1 => Ok(asked.elapsed()),
            other => Err(Error::Setup(format!("a trip: its lock is free, but {other} came"))),
        }
    }
}

impl Cell for Trip {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let began = Instant::now();
            let mut times = Vec::new();
            block_in_place(|| {
                while began.elapsed() < length {
                    times.push(self.go()?.as_secs_f64() * 1000.0);
                }
                Ok(())
            })?;
            #[allow(clippy::cast_precision_loss)]
            let count = times.len() as f64;
            let (seconds, used) = (began.elapsed().as_secs_f64(), BTreeMap::new());
            Ok(Slice { count, seconds, used, times_ms: BTreeMap::from([(HAND_OFF, times)]) })
        })
    }
}

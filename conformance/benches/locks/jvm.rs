//! The real Redisson, asked for a slice at a time.

use std::collections::BTreeMap;
use std::time::Duration;

use conformance::{Jvm, Servers};
use distlock::BoxFuture;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{NamedProcess, ProcessTimes};
use tokio::task::block_in_place;

use crate::cell::{Cell, Slice};

/// How its locks are called: each as its users do that take many at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    /// `lock()` and `unlock()`, a thread for each task.
    Blocking,
    /// `lockAsync()` and `unlockAsync()`, one after the other for each task.
    Async,
}

/// Redisson's locks, by the number of tasks, each with its own key.
pub(crate) struct Redisson {
    jvm: Jvm,
    processes: Vec<NamedProcess>,
}

impl Redisson {
    pub(crate) fn start(servers: &Servers, api: Api, tasks: usize) -> Self {
        let mode = match api {
            Api::Blocking => "blocking",
            Api::Async => "async",
        };
        let redis = servers.redis();
        let args = [mode, redis.url(), &tasks.to_string()];
        let jvm = Jvm::start(servers, "interop.Bench", &args);
        let processes = vec![("us of client", jvm.pid()), ("us of redis", redis.pid())];
        Self { jvm, processes }
    }
}

impl Cell for Redisson {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move {
            let before = ProcessTimes::of(&self.processes);
            let ms = length.as_millis().to_string();
            let answer = block_in_place(|| self.jvm.ask(&ms, length)).map_err(Error::Setup)?;
            let used = ProcessTimes::of(&self.processes).for_each(&before, 1.0);
            let mut numbers = answer.split(' ').map_while(|number| number.parse::<f64>().ok());
            let (Some(count), Some(ns)) = (numbers.next(), numbers.next()) else {
                return Err(Error::Setup(format!("the JVM answers {answer:?}")));
            };
            Ok(Slice { count, seconds: ns / 1e9, used, times_ms: BTreeMap::new() })
        })
    }

    /// Until its compilers have done most of their work.
    fn warm_up(&self) -> Duration {
        Duration::from_secs(20)
    }
}

//! Commands of many tasks in one packet: how few packets there are, and that each caller gets the
//! answer that a single command would get.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::support::redisson::OwnServer;
use crate::support::{connect, eventually, fresh_name, server};
use distlock::RedisConnection;
use redis::RedisResult;
use redis::aio::ConnectionManagerConfig;
use testbed::Direction;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

const TASKS: usize = 64;
/// For what must come.
const DEADLINE: Duration = Duration::from_secs(10);
/// For those who go to be under way.
const SHORT: Duration = Duration::from_millis(50);

async fn connection() -> RedisConnection {
    connect(server().url()).await.connection()
}

/// The answer to INCR.
async fn count(connection: &RedisConnection, key: &str) -> RedisResult<i64> {
    redis::cmd("INCR").arg(key).query_async(&mut connection.clone()).await
}

/// How many have counted.
async fn counted(connection: &RedisConnection, key: &str) -> usize {
    let count = redis::cmd("GET").arg(key).query_async(&mut connection.clone()).await;
    count.map(Option::unwrap_or_default).expect("an answer")
}

/// All at once, in a runtime of one thread, so that none is sent before all are queued.
fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    runtime: &Runtime,
    command: impl Fn(usize) -> F + Send + 'static,
) -> Vec<T> {
    let all = async move {
        let mut tasks = JoinSet::new();
        for task in 0..TASKS {
            tasks.spawn(command(task));
        }
        timeout(DEADLINE, tasks.join_all()).await.expect("all are told")
    };
    // In the thread of the tasks, not in this one.
    runtime.block_on(runtime.spawn(all)).expect("no panic")
}

fn one_thread() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

/// Polled once, with a waker that does nothing.
fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn commands_that_many_tasks_send_at_once_share_few_packets() {
    let own = OwnServer::start();
    let runtime = one_thread();
    let reads = async |connection: &RedisConnection| -> u64 {
        let text: String =
            redis::cmd("INFO").arg("stats").query_async(&mut connection.clone()).await.expect("it");
        let line = text.lines().find_map(|line| line.strip_prefix("total_reads_processed:"));
        line.and_then(|count| count.parse().ok()).expect("a count")
    };
    let url = own.redis.url().to_owned();
    let connection = runtime.block_on(async { connect(&url).await.connection() });
    let before = runtime.block_on(reads(&connection));
    let shared = connection.clone();
    let answers = at_once(&runtime, move |_| {
        let connection = shared.clone();
        async move { count(&connection, "packets").await.expect("an answer") }
    });
    assert_eq!(answers.len(), TASKS);
    // Of these one is the second look's own.
    let packets = runtime.block_on(reads(&connection)) - before - 1;
    assert!(packets <= 8, "{TASKS} commands in {packets} packets");
}

#[test]
fn each_caller_gets_the_answer_or_the_error_of_its_own_command() {
    let runtime = one_thread();
    let connection = runtime.block_on(connection());
    let name = fresh_name();
    let answers = at_once(&runtime, move |task| {
        let (mut connection, key) = (connection.clone(), name.as_str().to_owned());
        async move {
            let mut command = redis::cmd("ECHO");
            command.arg(task);
            if task % 3 == 0 {
                // A wrong number of arguments.
                command.arg(key);
            }
            (task, command.query_async::<usize>(&mut connection).await)
        }
    });
    for (task, answer) in answers {
        match answer {
            Ok(told) => assert_eq!((told, task % 3 == 0), (task, false)),
            Err(error) => assert!(task % 3 == 0 && error.code() == Some("ERR"), "{task}: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_that_ends_fails_all_its_commands_and_none_is_sent_again() {
    let own = OwnServer::start();
    let url = own.proxy.instead_of(own.redis.addr(), own.redis.url());
    let connection = connect(&url).await.connection();
    let witness = connect(own.redis.url()).await.connection();
    own.proxy.set_swallowing(Direction::ToClient, true);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let connection = connection.clone();
        tasks.spawn(async move { count(&connection, "lost").await });
    }
    let all = async || counted(&witness, "lost").await == TASKS;
    eventually("all of them have arrived", all).await;
    // A caller that sends it again is answered.
    own.proxy.set_swallowing(Direction::ToClient, false);
    own.proxy.cut();
    for answer in timeout(DEADLINE, tasks.join_all()).await.expect("all are told") {
        let error = answer.expect_err("nothing came back");
        assert!(error.code().is_none(), "the server said nothing: {error}");
    }
    let another = async || count(&connection, "another").await.is_ok();
    eventually("another connection is there", another).await;
    assert_eq!(counted(&witness, "lost").await, TASKS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_command_for_a_connection_that_is_not_open_yet_is_dropped_with_its_caller() {
    let own = OwnServer::start();
    let url = own.proxy.instead_of(own.redis.addr(), own.redis.url());
    own.proxy.hold(Direction::ToServer);
    let config = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(DEADLINE))
        .set_response_timeout(Some(DEADLINE));
    let connection = RedisConnection::connect_lazily(url.as_str(), config).expect("an address");
    let (mut stay, mut go) = (JoinSet::new(), JoinSet::new());
    for _ in 0..TASKS / 2 {
        for (tasks, key) in [(&mut stay, "stays"), (&mut go, "goes")] {
            let connection = connection.clone();
            tasks.spawn(async move { count(&connection, key).await });
        }
    }
    sleep(SHORT).await;
    go.shutdown().await;
    own.proxy.release(Direction::ToServer);
    let answers = timeout(DEADLINE, stay.join_all()).await.expect("all are told");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(counted(&connection, "stays").await, TASKS / 2);
    assert_eq!(counted(&connection, "goes").await, 0);
}

#[tokio::test]
async fn a_command_whose_caller_is_dropped_before_it_is_sent_is_not_sent() {
    let connection = connection().await;
    let (first, second, third) = (fresh_name(), fresh_name(), fresh_name());
    let mut alone = pin!(count(&connection, first.as_str()));
    assert!(poll(alone.as_mut()).is_pending());
    let mut beside = pin!(count(&connection, third.as_str()));
    {
        let mut gone = Box::pin(count(&connection, second.as_str()));
        assert!(poll(gone.as_mut()).is_pending());
        assert!(poll(beside.as_mut()).is_pending());
    }
    assert_eq!(alone.await.expect("an answer"), 1);
    assert_eq!(beside.await.expect("an answer"), 1);
    assert_eq!(count(&connection, second.as_str()).await.expect("an answer"), 1);
}

#[test]
fn a_runtime_that_stands_still_or_ends_holds_up_no_other() {
    let still = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (own, lively) = (OwnServer::start(), one_thread());
    let url = own.proxy.instead_of(own.redis.addr(), own.redis.url());
    let connection = lively.block_on(async { connect(&url).await.connection() });
    own.proxy.hold(Direction::ToServer);
    let (first, second, third) = (fresh_name(), fresh_name(), fresh_name());
    let mut alone = Box::pin(count(&connection, first.as_str()));
    let mut waiting = Box::pin(count(&connection, second.as_str()));
    still.block_on(async {
        assert!(poll(alone.as_mut()).is_pending());
        // It waits for a task of this runtime, which runs no further.
        assert!(poll(waiting.as_mut()).is_pending());
    });
    own.proxy.release(Direction::ToServer);
    let other = async { timeout(DEADLINE, count(&connection, third.as_str())).await };
    assert_eq!(lively.block_on(other).expect("it waits for nobody").expect("an answer"), 1);
    drop(still);
    lively.block_on(async {
        let told = timeout(DEADLINE, async { (alone.await, waiting.await) }).await;
        let (alone, waiting) = told.expect("both are told");
        assert_eq!((alone.expect("an answer"), waiting.expect("an answer")), (1, 1));
    });
}

#[test]
fn a_runtime_that_ends_with_a_packet_in_flight_is_an_error_and_the_packet_is_not_sent_again() {
    let ends = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (own, stays) = (OwnServer::start(), one_thread());
    let url = own.proxy.instead_of(own.redis.addr(), own.redis.url());
    let connection = stays.block_on(async { connect(&url).await.connection() });
    let witness = stays.block_on(async { connect(own.redis.url()).await.connection() });
    own.proxy.set_swallowing(Direction::ToClient, true);
    let mut alone = Box::pin(count(&connection, "alone"));
    let mut beside = Box::pin(count(&connection, "beside"));
    ends.block_on(async {
        assert!(poll(alone.as_mut()).is_pending());
        assert!(poll(beside.as_mut()).is_pending());
        let has_arrived = async || counted(&witness, "beside").await == 1;
        eventually("its packet has arrived", has_arrived).await;
    });
    drop(ends);
    let told = async { timeout(DEADLINE, beside).await.expect("it is told") };
    let error = stays.block_on(told).expect_err("nobody knows");
    assert!(error.is_io_error() && !error.is_timeout(), "{error}");
    assert_eq!(stays.block_on(counted(&witness, "beside")), 1);
}

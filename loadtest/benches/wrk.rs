//! The load generator beside `wrk`, on the same trivial endpoint and the same processors.
//!
//! The endpoint is this program again, in a process of its own; it answers every purchase with the
//! same order. Both send the same request over 64 connections, one after the other in each round,
//! and both have two threads. The generator does all it does in a load: it checks, counts and
//! records every request. Compare the two figures of one run, never with another day's.
//!
//! `make bench-load`, or with its own bounds: `make bench-load ARGS="ROUNDS SECONDS"`.

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use loadtest_load::client::Target;
use loadtest_load::cost::THREADS;
use loadtest_load::history_file::HistoryFile;
use loadtest_load::live::LiveFigures;
use loadtest_load::mix::Mix;
use loadtest_load::outcome::Outcome;
use loadtest_load::plan::Plan;
use loadtest_load::{drive, tokens};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

const CONNECTIONS: usize = 64;
/// What the generator is to reach of what wrk does.
const MIN_RATIO: f64 = 0.6;
/// Most growth of memory from the first round to the last, in KiB. Keeping 100 bytes for each of
/// 100,000 requests would exceed it.
const MAX_GROWTH_KIB: i64 = 8 * 1024;
const VOUCHER: &[u8] =
    br#"{"voucher":{"id":"1","title":"Tea","status":"on_sale","phase":"open","stock":1}}"#;
const ORDER: &[u8] = br#"{"order":{"id":"9007199254740993","voucher_id":"1","user_id":"17"}}"#;

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let sold = request.method() == Method::POST;
    let (status, body) = if sold { (201, ORDER) } else { (200, VOUCHER) };
    let response = Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .header("x-replica", "r1")
        .body(Full::new(Bytes::from_static(body)));
    Ok(response.expect("a response"))
}

async fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    println!("{}", listener.local_addr().expect("bound"));
    std::io::stdout().flush().expect("told");
    while let Ok((stream, _)) = listener.accept().await {
        stream.set_nodelay(true).expect("set");
        let http = hyper::server::conn::http1::Builder::new();
        tokio::spawn(http.serve_connection(TokioIo::new(stream), service_fn(answer)));
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(THREADS).enable_all().build().expect("a runtime")
}

/// The endpoint's process; it ends with this value.
struct Endpoint {
    process: Child,
    url: String,
}

impl Endpoint {
    fn start() -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut process =
            Command::new(own).arg("serve").stdout(Stdio::piped()).spawn().expect("started");
        let mut address = String::new();
        let output = process.stdout.take().expect("piped");
        BufReader::new(output).read_line(&mut address).expect("its address");
        Self { process, url: format!("http://{}", address.trim()) }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.process.kill().and_then(|()| self.process.wait()).expect("ended");
    }
}

/// A token as long as those of the service.
fn token() -> String {
    "x".repeat(280)
}

/// What one of the two reached.
struct Throughput {
    requests_per_s: f64,
    /// Microseconds of processor time for each request.
    micros: f64,
}

/// What wrk reaches, as it counts itself.
fn wrk(endpoint: &Endpoint, seconds: u64) -> Throughput {
    let script = tempfile::NamedTempFile::new().expect("a temporary file");
    let text = format!(
        "wrk.method = 'POST'\nwrk.headers['authorization'] = 'Bearer {}'\n\
         wrk.headers['idempotency-key'] = '5f3a7c1e-0000-4000-8000-000000000000'\n\
         wrk.headers['content-length'] = '0'\n",
        token()
    );
    std::fs::write(script.path(), text).expect("written");
    let before = processor_time_of_children();
    let output = Command::new("wrk")
        .args([format!("-t{THREADS}"), format!("-c{CONNECTIONS}"), format!("-d{seconds}s")])
        .arg("-s")
        .arg(script.path())
        .arg(format!("{}/api/vouchers/1/orders", endpoint.url))
        .output()
        .expect("wrk is installed: apt-get install wrk");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("Non-2xx"), "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"));
    let rate = line.and_then(|rate| rate.trim().parse::<f64>().ok());
    let requests_per_s = rate.unwrap_or_else(|| panic!("wrk said: {text}"));
    let used = processor_time_of_children() - before;
    #[allow(clippy::cast_precision_loss)]
    let micros = used * 1e6 / (requests_per_s * seconds as f64);
    Throughput { requests_per_s, micros }
}

/// The most memory that this program, which is the generator, has had so far, in KiB.
fn own_memory() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).expect("known").max_rss()
}

/// Seconds, of the children that have ended: wrk, for the endpoint does not end before this.
fn processor_time_of_children() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("known");
    [usage.user_time(), usage.system_time()]
        .map(|time| {
            Duration::from_micros(u64::try_from(time.num_microseconds()).expect("positive"))
        })
        .iter()
        .map(Duration::as_secs_f64)
        .sum()
}

/// A closed loop of the generator, all of it.
async fn generator(endpoint: &Endpoint, seconds: u64) -> Throughput {
    let user = |id| format!(r#"{{"user_id":"{id}","token":"{}"}}"#, token());
    let users = tokens::parse(&(1..=1000).map(user).collect::<Vec<_>>().join("\n")).expect("good");
    let plan = Plan {
        mix: Mix::AfterSoldOut,
        connections: CONNECTIONS,
        duration: Some(Duration::from_secs(seconds)),
        ..Plan::closed(Target::parse(&endpoint.url).expect("a URL"), 1, users.into(), 1)
    };
    plan.check().expect("a good plan");
    let connections = drive::connect(&plan).await.expect("connected");
    let recorded = HistoryFile::begin(&plan, None, &[None]).expect("a history");
    let live = Arc::new(LiveFigures::new(&plan));
    let figures = drive::run(&plan, connections, recorded.recorder(), &live).await.expect("run");
    recorded.recorder().flush().await;
    assert_eq!(figures.count(Outcome::Bought), figures.requests, "every request was answered");
    let requests_per_s = figures.requests_per_s;
    let micros = figures.cost.cpu_s * 1e6 / (requests_per_s * figures.elapsed_s);
    Throughput { requests_per_s, micros }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "serve") {
        runtime().block_on(serve());
        return ExitCode::SUCCESS;
    }
    let mut numbers = arguments.iter().filter_map(|argument| argument.parse::<u64>().ok());
    let (rounds, seconds) = (numbers.next().unwrap_or(7), numbers.next().unwrap_or(3));
    let (endpoint, runtime) = (Endpoint::start(), runtime());
    let (mut theirs, mut ours, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut memory = Vec::new();
    for round in 1..=rounds {
        let (wrk, own) = (wrk(&endpoint, seconds), runtime.block_on(generator(&endpoint, seconds)));
        let ratio = own.requests_per_s / wrk.requests_per_s;
        println!(
            "round {round}: wrk {:.0}/s with {:.1} us of processor a request, loadtest {:.0}/s \
             with {:.1} us, ratio {ratio:.2}; {} MiB at most so far",
            wrk.requests_per_s,
            wrk.micros,
            own.requests_per_s,
            own.micros,
            own_memory() / 1024,
        );
        memory.push(own_memory());
        theirs.push(wrk.requests_per_s);
        ours.push(own.requests_per_s);
        ratios.push(ratio);
    }
    let ratio = median(ratios);
    let (wrk, own) = (median(theirs), median(ours));
    println!("medians: wrk {wrk:.0}/s, loadtest {own:.0}/s, ratio {ratio:.2} (goal {MIN_RATIO})");
    // Memory is what the generator sends with; what the judge reads afterwards is not part of it.
    let grown = memory.last().zip(memory.first()).map_or(0, |(last, first)| last - first);
    println!("memory: {grown} KiB more than after the first round (at most {MAX_GROWTH_KIB})");
    let is_good = ratio >= MIN_RATIO && grown <= MAX_GROWTH_KIB;
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

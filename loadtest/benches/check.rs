//! How long the judge takes for a history of ten million events, and how much memory: less than a
//! minute and 1 GiB, or the benchmark fails. The history is made up; it is judged by a process of
//! its own, so that the memory is the judge's alone.
//!
//! `cargo bench -p loadtest --bench check`, or with the number of requests: `-- 100000`.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use loadtest_judge::check::Check;
use loadtest_load::history::event::{EffectEvent, Order};
use loadtest_load::history::{Account, Begin, Completion, Event, Offer, Recorder, Source, Written};

#[path = "../tests/check_history/synthetic.rs"]
mod synthetic;

/// Two events each.
const REQUESTS: u32 = 5_000_000;
const MAX_S: f64 = 60.0;
const MAX_MIB: u64 = 1024;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("judge"), Some(file)) => runtime.block_on(judge(Path::new(&file))),
        (Some(requests), None) => runtime.block_on(measure(requests.parse().expect("a number"))),
        _ => runtime.block_on(measure(REQUESTS)),
    }
}

/// The child: judges and says what it took.
async fn judge(file: &Path) -> ExitCode {
    let deadline = Duration::from_mins(10);
    let check = Check { file: file.to_owned(), database: None, deadline };
    let judgement = check.run().await.expect("judged");
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    let kib = peak.trim().trim_end_matches(" kB").to_owned();
    for why in judgement.failed_because {
        eprintln!("{why}");
    }
    println!("{} {} {} {kib}", judgement.ok, judgement.events, judgement.took_s);
    ExitCode::SUCCESS
}

async fn measure(requests: u32) -> ExitCode {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.jsonl.zst");
    let began = Instant::now();
    let written = make_up(&path, requests).await;
    println!(
        "wrote {} events of {} requests, {} MiB, in {:.1} s",
        written.events,
        written.requests,
        written.bytes >> 20,
        began.elapsed().as_secs_f64()
    );
    let program = std::env::current_exe().expect("this program");
    let output = Command::new(program)
        .arg("judge")
        .arg(&path)
        .stderr(Stdio::inherit())
        .output()
        .expect("started");
    let said = String::from_utf8(output.stdout).expect("text");
    let words: Vec<&str> = said.split_whitespace().collect();
    let &[ok, events, took_s, kib] = &words[..] else {
        println!("the judge ended with {}: {}", output.status, said.trim());
        return ExitCode::FAILURE;
    };
    let took_s: f64 = took_s.parse().expect("seconds");
    let mib = kib.parse::<u64>().expect("KiB") >> 10;
    println!("judged {events} events in {took_s:.1} s with {mib} MiB at most: good is {ok}");
    if ok == "true" && took_s < MAX_S && mib < MAX_MIB {
        return ExitCode::SUCCESS;
    }
    println!("it must be good, within {MAX_S} s and {MAX_MIB} MiB");
    ExitCode::FAILURE
}

/// Adds every member that an answer can have: each tells its hold, every second one ends a ticket.
fn with_all(event: Event<'static>) -> Event<'static> {
    let more = |ended: Completion<'static>| {
        let is_of_ticket = ended.n.is_multiple_of(2) && ended.s.is_some_and(|status| status < 500);
        let held = [ended.t.saturating_sub(2000), ended.t.saturating_sub(1000)];
        Completion { s: if is_of_ticket { Some(202) } else { ended.s }, h: Some(held), ..ended }
    };
    match event {
        Event::Ok(ended) => Event::Ok(more(ended)),
        Event::Fail(ended) => Event::Fail(more(ended)),
        event => event,
    }
}

/// A legal sale of one unit to every 25 requests, each under a fencing token of its own.
async fn make_up(path: &Path, requests: u32) -> Written {
    let units = requests / 25;
    let mut sale = synthetic::Sale::new(1, units as usize, requests);
    let users = u64::from(requests / sale.per_user);
    let offers = vec![Offer { id: 1, offered: Some(units.into()) }];
    let begin = Begin::now("http://127.0.0.1:1".to_owned(), 1, users, offers);
    let recorder = Recorder::create(path, &begin).expect("created");
    let (tell, mut told) = tokio::sync::mpsc::channel(10_000);
    let making = tokio::task::spawn_blocking(move || {
        sale.each(|event| tell.blocking_send(with_all(event)).expect("still listening"));
        sale.orders
    });
    while let Some(event) = told.recv().await {
        recorder.record(event).await;
    }
    let orders = making.await.expect("made up");
    for &(o, u) in &orders {
        recorder.record(Event::Order(Order { v: 1, o, u, x: false, k: None })).await;
    }
    for (seq, &(o, u)) in (1..).zip(&orders) {
        let res = format!("redisson:lock:order:{u}").into();
        recorder.record(Event::Effect(EffectEvent { v: 1, res, seq, token: seq, o })).await;
    }
    let (granted, source) = (Some(units.into()), Source::Database);
    let left = granted.map(|units: i64| units - i64::try_from(orders.len()).expect("small"));
    let tables = std::collections::BTreeMap::new();
    let orders = orders.len() as u64;
    recorder.record(Event::Account(Account { v: 1, granted, left, orders, source, tables })).await;
    recorder.finish().await.expect("written")
}

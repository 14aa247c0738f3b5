//! The helper program of this crate's own tests. `serve ADDRESS` is a replica of the service. `own
//! HOW` owns a bed and ends in various ways. `database` takes the database that its environment
//! names. `packet-link` is the process in a namespace of its own.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{self, Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use testbed::{Bed, Flavor, RedisOptions, ReplicaSpec, ZooKeeperOptions};

fn main() -> ExitCode {
    if let Some(code) = testbed::packet_link_main() {
        return code;
    }
    let args: Vec<String> = env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => serve(address),
        // As a server that leaves its group and session and outlives its parent.
        ["serve", address, "--with-stray"] => {
            let stray = Command::new("setsid").args(["sleep", "300"]).spawn();
            let mut stray = stray.expect("setsid is installed");
            serve(address);
            let _ = stray.wait();
        }
        ["own", how] => own_a_bed(how),
        ["database"] => start_a_database(),
        ["redis"] => start_a_redis(),
        _ => return ExitCode::from(2),
    }
    ExitCode::SUCCESS
}

/// Prints which database it is, or why there is none.
fn start_a_database() {
    let bed = Bed::start().expect("a bed");
    match bed.database(Flavor::Any) {
        Ok(database) => println!("{} {}", database.flavor(), database.version()),
        Err(error) => println!("{error}"),
    }
}

/// Prints the path of the Redis that starts, or why there is none.
fn start_a_redis() {
    let bed = Bed::start().expect("a bed");
    match bed.redis(RedisOptions::default()).and_then(|redis| redis.command(&["INFO", "server"])) {
        Ok(info) => println!("{}", info.lines().nth(1).unwrap_or_default().trim()),
        Err(error) => println!("{error}"),
    }
}

/// Answers every request with 200 and, as the body, the request's head as it arrived. Two requests
/// are special: after `/api/drain` it is not ready any more, and `/api/crash` gets no answer.
fn serve(address: &str) {
    let listener = TcpListener::bind(address).unwrap_or_else(|error| {
        eprintln!("Error: cannot listen on {address}: {error}");
        process::exit(1);
    });
    println!("listening on http://{}", listener.local_addr().expect("a bound address"));
    let draining = Arc::new(AtomicBool::new(false));
    for stream in listener.incoming().flatten() {
        let draining = Arc::clone(&draining);
        thread::spawn(move || while answer(&stream, &draining).is_some() {});
    }
}

/// `None` at the end of the connection.
fn answer(mut stream: &TcpStream, draining: &AtomicBool) -> Option<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let mut status = "200 OK";
    match head.split(' ').nth(1)? {
        "/api/crash" => {
            println!("crash");
            return None;
        }
        "/api/drain" => draining.store(true, Ordering::SeqCst),
        "/readyz" if draining.load(Ordering::SeqCst) => status = "503 Service Unavailable",
        _ => {}
    }
    let (length, process) = (head.len(), process::id());
    write!(stream, "HTTP/1.1 {status}\r\nX-Replica: {process}\r\nContent-Length: {length}\r\n\r\n")
        .and_then(|()| stream.write_all(head.as_bytes()))
        .ok()?;
    (!head.to_lowercase().contains("\r\nconnection: close")).then_some(())
}

/// Starts one of everything, prints the folder and the process ids, and ends as its argument says.
fn own_a_bed(how: &str) {
    let bed = Bed::start().expect("a bed");
    let redis = bed.redis(RedisOptions::default()).expect("Redis");
    let database = bed.database(Flavor::Any).expect("a database");
    let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).expect("ZooKeeper");
    let myself = env::current_exe().expect("this program");
    let spec = ReplicaSpec::new("replica", myself).args(["serve", "127.0.0.1:0", "--with-stray"]);
    let replica = bed.replica(spec).expect("a replica");
    let proxy = bed.haproxy(&[replica.addr()]).expect("HAProxy");
    let pids = [redis.pid(), database.pid(), zookeeper.pid(), replica.pid(), proxy.pid()];
    println!("{} {}", bed.dir().display(), pids.map(|pid| pid.to_string()).join(" "));
    match how {
        "return" => {}
        "panic" => panic!("as told"),
        "exit" => process::exit(0),
        "frozen" => {
            database.freeze().expect("frozen");
            redis.freeze().expect("frozen");
            println!("frozen");
            thread::sleep(Duration::from_mins(1));
        }
        _ => thread::sleep(Duration::from_mins(1)),
    }
}

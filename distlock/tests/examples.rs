//! The programs in `examples/`, run as their readers run them, on a real Redis.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use support::server;
#[cfg(feature = "zookeeper")]
use testbed::ZooKeeperOptions;
use testbed::{Bed, Redis, RedisOptions};

/// Those that need a database, and Redis in front of it if the last word is true.
const WITH_DATABASE: [(&str, &str, bool); 4] = [
    ("balance", "200 cents are left", false),
    ("fencing", "refused: token 1 is below 2", true),
    ("outside", "stored: new", true),
    ("stock", "sold 3 of 3 units to ten buyers", false),
];
/// The one that needs ZooKeeper.
const LEADER: &str = "leader";
/// Those that serve until they are ended, and what must be on for them.
const SERVICES: [(&str, bool); 2] = [("axum", true), ("lock_layer", cfg!(feature = "tower"))];
/// Each of the others, and the line that says that it has done what it shows.
const EXAMPLES: [(&str, &str); 9] = [
    ("cache_refill", "refilled 1 time for three readers"),
    ("from_redisson", "all of Redisson's interfaces, by other names"),
    ("guard", "released: Released"),
    ("in_process", "3 lines, one after the other"),
    ("locked", "served 1 of 3 clicks"),
    ("scope", "done, 3 steps"),
    ("try_lock", "first: true, second: false"),
    ("two_resources", "both transfers are done"),
    ("workers", "four workers, at most 2 at a time"),
];

/// Cargo puts test programs into a folder beside that of the examples.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a program knows its path");
    let folder = test.parent().and_then(Path::parent).expect("a test program has a folder");
    let program = folder.join("examples").join(name);
    assert!(program.exists(), "missing: {name}; `cargo build -p distlock --examples` makes it");
    program
}

/// The names of the sources.
fn sources() -> BTreeSet<String> {
    let files = fs::read_dir("examples").expect("tests run in the folder of their package");
    let name = |file: PathBuf| Some(file.file_stem()?.to_str()?.to_owned());
    files.filter_map(|file| name(file.expect("a file").path())).collect()
}

#[test]
fn every_example_does_what_it_shows_and_ends_well() {
    let mut names = BTreeSet::from(EXAMPLES.map(|(name, _)| name.to_owned()));
    names.extend(WITH_DATABASE.map(|(name, ..)| name.to_owned()));
    names.extend(SERVICES.map(|(name, _)| name.to_owned()));
    names.insert(LEADER.to_owned());
    assert_eq!(sources(), names);
    for (name, line) in EXAMPLES {
        does(name, &[server().url()], line);
    }
}

#[test]
fn with_three_servers_the_redisson_example_takes_a_majority_of_them() {
    let bed = Bed::start().expect("a private bed");
    let servers = bed.redis_many(3, RedisOptions::default()).expect("Redis is installed");
    let urls: Vec<&str> = servers.iter().map(Redis::url).collect();
    does("from_redisson", &urls, "a majority of 3");
}

#[cfg(feature = "mysql")]
#[test]
fn every_example_with_a_database_does_what_it_shows() {
    let database = support::mysql::own().url();
    for (name, line, needs_redis) in WITH_DATABASE {
        let urls = if needs_redis { vec![server().url(), &database] } else { vec![&*database] };
        does(name, &urls, line);
    }
}

#[cfg(feature = "zookeeper")]
#[test]
fn the_leaders_of_the_example_lead_one_after_the_other() {
    let bed = Bed::start().expect("a private bed");
    let zookeeper = bed.zookeeper(ZooKeeperOptions::default()).expect("ZooKeeper is installed");
    does(LEADER, &[zookeeper.connect_string()], "both have led, one after the other");
}

/// Ends the program with the test.
struct Service(Child);

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.0.kill().and_then(|()| self.0.wait()));
    }
}

/// The status line that a service answers to a request for that job.
fn post(address: &str, job: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    write!(stream, "POST /jobs/{job} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.lines().next().expect("a status line").to_owned()
}

#[test]
fn each_service_runs_one_job_at_a_time_on_two_replicas() {
    for (service, _) in SERVICES.iter().filter(|(_, is_built)| *is_built) {
        assert_runs_one_job_at_a_time(service);
    }
}

fn assert_runs_one_job_at_a_time(service: &str) {
    let start = || {
        let mut replica = Command::new(program(service))
            .args([server().url(), "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program");
        let mut lines = BufReader::new(replica.stdout.take().expect("a pipe")).lines();
        let line = lines.next().expect("a line").expect("text");
        let address = line.strip_prefix("listening on ").expect("an address").to_owned();
        (Service(replica), address)
    };
    let replicas = [start(), start()];
    let [ran, refused, late] =
        ["HTTP/1.1 200 OK", "HTTP/1.1 409 Conflict", "HTTP/1.1 503 Service Unavailable"];
    // The second of two gets the lock if it asks when the first is nearly done. A busy machine may
    // delay it so much, or be too late with an answer of the server: both are sent again.
    let is_refused = (0..10).any(|_| {
        let asked = Instant::now();
        let mut answers = std::thread::scope(|scope| {
            let posts = replicas.each_ref().map(|(_, address)| scope.spawn(|| post(address, "a")));
            posts.map(|post| post.join().expect("an answer"))
        });
        answers.sort();
        let is_known = |answer: &String| [ran, refused, late].contains(&answer.as_str());
        assert!(answers.iter().all(is_known), "{answers:?}");
        // One after the other: a job takes a second.
        let both_ran = answers == [ran, ran];
        assert!(!both_ran || asked.elapsed() >= Duration::from_secs(2), "two jobs at a time");
        answers == [ran, refused]
    });
    assert!(is_refused, "no request was refused while another one's job ran");
    let mut answers = (0..10).map(|_| post(&replicas[1].1, "a")).skip_while(|said| said == late);
    assert_eq!(answers.next().as_deref(), Some(ran), "the lock is free again");
}

/// With these servers it says that line and ends well.
fn does(name: &str, urls: &[&str], line: &str) {
    let run = Command::new(program(name)).args(urls).output().expect("a program");
    let said = String::from_utf8_lossy(&run.stdout);
    let complained = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{name}: {}\n{said}{complained}", run.status);
    assert!(said.lines().any(|said| said == line), "{name} does not say {line:?}:\n{said}");
}

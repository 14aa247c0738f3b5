//! What cannot be started is named in one sentence, with the log where there is one.

mod support;

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use support::{STAND_IN, processes_with, stand_in};
use testbed::{Bed, Error, Flavor, RedisOptions, ReplicaSpec};

fn one_line(error: &Error) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn a_missing_program_is_one_sentence_that_names_its_package() {
    let nowhere = [PathBuf::from("/nonexistent")];
    let bed = Bed::builder().search_path(nowhere).start().unwrap();
    let errors = [
        bed.redis(RedisOptions::default()).unwrap_err(),
        bed.database(Flavor::Any).unwrap_err(),
        bed.database(Flavor::MariaDb).unwrap_err(),
        bed.database(Flavor::MySql).unwrap_err(),
        bed.haproxy(&[]).unwrap_err(),
    ];
    let sentences = [
        "redis-server was not found in /nonexistent; install redis-server or redis-tools",
        "mariadbd or MySQL's mysqld was not found in /nonexistent; \
         install mariadb-server-core or mysql-server-core",
        "mariadbd was not found in /nonexistent; install mariadb-server-core",
        "MySQL's mysqld was not found in /nonexistent; install mysql-server-core",
        "haproxy was not found in /nonexistent; install haproxy",
    ];
    for (error, sentence) in errors.iter().zip(sentences) {
        assert_eq!(error.to_string(), sentence);
    }
    let error = bed.replica(ReplicaSpec::new("a", "/nonexistent/seckill")).unwrap_err();
    let sentence = "cannot find the program /nonexistent/seckill: No such file or directory";
    assert!(error.to_string().starts_with(sentence), "{error}");
}

#[test]
fn a_server_that_cannot_start_shows_the_line_of_its_log_that_says_why() {
    let bed = Bed::start().unwrap();
    let options = RedisOptions { extra: vec!["no-such-option 1".into()], ..Default::default() };
    let error = bed.redis(options).unwrap_err();
    assert!(one_line(&error).starts_with("redis ended before it was ready (exit status: 1): "));
    assert!(one_line(&error).contains("Bad directive"), "{error}");
    assert!(error.to_string().contains("no-such-option"), "{error}");
}

#[test]
fn a_database_that_cannot_start_again_shows_its_log() {
    let bed = Bed::start().unwrap();
    let database = bed.database(Flavor::Any).unwrap();
    database.kill().unwrap();
    let config = bed.dir().join(format!("{}.cnf", database.name()));
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text + "no-such-option = 1\n").unwrap();
    let error = database.restart().unwrap_err();
    assert!(one_line(&error).contains("unknown variable 'no-such-option=1'"), "{error}");
    assert!(!database.is_running());
}

#[test]
fn a_replica_that_never_gets_ready_is_given_up_at_the_deadline_and_killed() {
    let bed = Bed::builder().ready_within(Duration::from_millis(300)).start().unwrap();
    let spec = ReplicaSpec::new("mute", "/bin/sleep").arg("300");
    let start = Instant::now();
    let error = bed.replica(spec).unwrap_err();
    assert!(start.elapsed() < Duration::from_secs(3), "{:?}", start.elapsed());
    let sentence = "mute was not ready after 300ms: it has not printed `listening on http://...`";
    assert_eq!(one_line(&error), sentence);
    // Only the bed's guard is left, which knows the folder.
    let left = processes_with(bed.dir());
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_replica_whose_port_is_taken_says_so() {
    let bed = Bed::start().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let spec = ReplicaSpec::new("a", STAND_IN).args(["serve".to_owned(), address.to_string()]);
    let error = bed.replica(spec).unwrap_err();
    assert!(one_line(&error).contains("Address already in use"), "{error}");
    assert!(
        one_line(&error).starts_with("a ended before it was ready (exit status: 1)"),
        "{error}"
    );
    bed.replica(stand_in("b")).unwrap();
}

#[test]
fn the_database_that_was_asked_for_is_the_one_that_starts() {
    let bed = Bed::start().unwrap();
    let database = bed.database(Flavor::Any).unwrap();
    assert_ne!(database.flavor(), Flavor::Any);
    let is_mariadb = database.version().contains("MariaDB");
    assert_eq!(database.flavor() == Flavor::MariaDb, is_mariadb);
    for flavor in [Flavor::Any, Flavor::MariaDb, Flavor::MySql] {
        assert_eq!(flavor.to_string().parse::<Flavor>().unwrap(), flavor);
    }
    let error = "oracle".parse::<Flavor>().unwrap_err().to_string();
    assert_eq!(error, "`oracle` is no database: any, mariadb or mysql");
}

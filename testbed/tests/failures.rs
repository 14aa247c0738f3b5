//! What cannot be started is named in one sentence, with the log where there is one.

mod support;

use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::{STAND_IN, processes_with, stand_in};
use testbed::{Bed, Error, Flavor, RedisOptions, ReplicaSpec, ZooKeeperOptions};

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
        bed.zookeeper(ZooKeeperOptions::default()).unwrap_err(),
    ];
    let sentences = [
        "redis-server was not found in /nonexistent; install redis-server or redis-tools",
        "mariadbd or MySQL's mysqld was not found in /nonexistent; \
         install mariadb-server-core or mysql-server-core",
        "mariadbd was not found in /nonexistent; install mariadb-server-core",
        "MySQL's mysqld was not found in /nonexistent; install mysql-server-core",
        "haproxy was not found in /nonexistent; install haproxy",
        "java was not found in /nonexistent; install default-jre-headless",
    ];
    for (error, sentence) in errors.iter().zip(sentences) {
        assert_eq!(error.to_string(), sentence);
    }
    let error = bed.replica(ReplicaSpec::new("a", "/nonexistent/seckill")).unwrap_err();
    let sentence = "cannot find the program /nonexistent/seckill: No such file or directory";
    assert!(error.to_string().starts_with(sentence), "{error}");
}

#[test]
fn a_zookeeper_without_its_jar_names_the_jar_and_its_package() {
    let bed = Bed::start().unwrap();
    let java_only = bed.dir().join("java-only");
    fs::create_dir(&java_only).unwrap();
    symlink("/bin/true", java_only.join("java")).unwrap();
    let without_jar = Bed::builder().search_path([java_only.clone()]).start().unwrap();
    let error = without_jar.zookeeper(ZooKeeperOptions::default()).unwrap_err().to_string();
    let searched = java_only.display();
    let sentence = format!("zookeeper.jar was not found in {searched}; install libzookeeper-java");
    assert_eq!(error, sentence);
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

/// What a program prints that starts any database, told so by its environment.
fn any_database(told: &str, mysqld: &Path) -> String {
    let output = Command::new(STAND_IN)
        .arg("database")
        .env("TESTBED_DATABASE", told)
        .env("MYSQLD", mysqld)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_environment_says_which_database_any_means_and_where_mysql_is() {
    let bed = Bed::start().unwrap();
    let mysqld = bed.dir().join("mysqld");
    // It has a version, and then fails.
    let script = "#!/bin/sh\necho \"mysqld Ver 9.9\"; [ \"$2\" = --version ]\n";
    fs::write(&mysqld, script).unwrap();
    let said = any_database("mysql", &mysqld);
    let sentence = "MySQL's mysqld was not found in MYSQLD=";
    assert!(said.starts_with(sentence), "it is not executable: {said}");
    fs::set_permissions(&mysqld, Permissions::from_mode(0o700)).unwrap();
    let said = any_database("mysql", &mysqld);
    let sentence = "mysql-install ended before it was ready (exit status: 1): mysqld Ver 9.9\n";
    assert!(said.starts_with(sentence), "{said}");
    let said = any_database("oracle", &mysqld);
    assert_eq!(said, "TESTBED_DATABASE: `oracle` is no database: any, mariadb or mysql\n");
    let installed = Bed::start().unwrap().database(Flavor::MariaDb);
    if let Ok(mariadb) = installed {
        let line = format!("mariadb {}\n", mariadb.version());
        assert_eq!(any_database("mariadb", &mysqld), line);
        assert_eq!(any_database("", Path::new("")), line);
    }
}

/// What a program prints that starts a Redis, told by its environment where the server is.
fn a_redis(server: &Path) -> String {
    let output = Command::new(STAND_IN).arg("redis").env("REDIS_SERVER", server).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_environment_says_where_the_redis_server_is() {
    let bed = Bed::start().unwrap();
    let server = bed.dir().join("another-server");
    fs::write(&server, "#!/bin/sh\necho it has begun\nexit 3\n").unwrap();
    let said = a_redis(&server);
    let sentence = "redis-server was not found in REDIS_SERVER=";
    assert!(said.starts_with(sentence), "it is not executable: {said}");
    fs::set_permissions(&server, Permissions::from_mode(0o700)).unwrap();
    let said = a_redis(&server);
    assert!(said.contains("it has begun") && said.contains("exit status: 3"), "{said}");
    let said = a_redis(Path::new(""));
    assert!(said.contains("_version:"), "the installed one starts: {said}");
}

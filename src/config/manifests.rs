//! Compares `docker-compose.yml` and the manifests of `deploy/kubernetes/` with the program that
//! they start, and with each other.

use std::collections::BTreeMap;
use std::path::Path;

use clap::{Arg, ArgAction, CommandFactory, FromArgMatches};

use super::{Cli, Command};

/// The longest time for requests in flight after the drain delay: the server's `SHUTDOWN_TIMEOUT`.
const SHUTDOWN_S: u64 = 40;
/// What the C library or tokio reads, and not the program.
const READ_BY_LIBRARIES: [&str; 1] = ["TOKIO_WORKER_THREADS"];

fn file(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn manifest(name: &str) -> String {
    file(&format!("deploy/kubernetes/base/{name}"))
}

/// The lines `NAME=value` of a file.
fn settings(name: &str) -> BTreeMap<String, String> {
    let text = manifest(name);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The variables of a container: its lines `- name: NAME`.
fn variables(manifest: &str) -> Vec<String> {
    let names = manifest.lines().filter_map(|line| line.trim().strip_prefix("- name: "));
    let is_variable = |name: &&str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    names.filter(is_variable).map(str::to_owned).collect()
}

/// The environment of compose's replicas, each value as it is without `.env`.
fn compose() -> BTreeMap<String, String> {
    let text = file("docker-compose.yml");
    let (_, service) = text.split_once("\n  seckill:\n").expect("the service `seckill`");
    let (_, block) = service.split_once("    environment:\n").expect("its environment");
    let lines = block.lines().take_while(|line| line.starts_with("      "));
    let pairs = lines.map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = pairs.filter_map(|line| line.split_once(':'));
    let plain = |value: &str| {
        let value = value.trim().trim_matches('"');
        let default = value.strip_prefix("${").and_then(|rest| rest.split_once(":-"));
        default.map_or(value, |(_, default)| default.trim_end_matches('}')).to_owned()
    };
    pairs.map(|(name, value)| (name.to_owned(), plain(value))).collect()
}

/// The flags of a command that have a variable, by its name.
fn flags(command: &str) -> BTreeMap<String, Arg> {
    let cli = Cli::command();
    let command = cli.find_subcommand(command).expect("a command");
    let all = cli.get_arguments().chain(command.get_arguments());
    let named = all.filter_map(|arg| Some((arg.get_env()?.to_str()?.to_owned(), arg.clone())));
    named.collect()
}

/// The first whole number after a word.
fn number(text: &str, after: &str) -> u64 {
    let (_, rest) = text.split_once(after).unwrap_or_else(|| panic!("no {after}"));
    let digits: String = rest.trim().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {after}"))
}

#[test]
fn compose_and_the_manifests_set_only_variables_that_the_program_reads() {
    let (serve, migrate) = (flags("serve"), flags("migrate"));
    let of_replicas = [
        ("docker-compose.yml", compose().into_keys().collect()),
        ("seckill.env", settings("seckill.env").into_keys().collect()),
        ("seckill.secret.example", settings("seckill.secret.example").into_keys().collect()),
        ("seckill.yaml", variables(&manifest("seckill.yaml"))),
    ];
    for (file, names) in of_replicas {
        assert!(names.len() > 3, "{file}: {names:?}");
        for name in names {
            let is_read = serve.contains_key(&name) || READ_BY_LIBRARIES.contains(&&*name);
            assert!(is_read, "{file}: `seckill serve` reads no {name}");
        }
    }
    let names = variables(&manifest("migrate.yaml"));
    assert_eq!(names, ["DATABASE_URL"]);
    assert!(names.iter().all(|name| migrate.contains_key(name)), "{names:?}");
}

#[test]
fn serve_accepts_the_settings_of_the_manifests() {
    let mut given = settings("seckill.env");
    given.extend(settings("seckill.secret.example"));
    for secret in ["JWT_SECRET", "PAYMENT_SECRET"] {
        given.insert(secret.to_owned(), "k".repeat(32));
    }
    given.insert("REPLICA_ID".to_owned(), format!("seckill-{}", "a".repeat(55)));
    let flags = flags("serve");
    let mut words = vec!["seckill".to_owned(), "serve".to_owned()];
    for (name, value) in given {
        let flag = flags[&name].get_long().expect("a long name");
        match flags[&name].get_action() {
            ArgAction::SetTrue => {
                assert_eq!(value, "true", "{name}");
                words.push(format!("--{flag}"));
            }
            _ => words.push(format!("--{flag}={value}")),
        }
    }
    let matches = Cli::command().try_get_matches_from(words).unwrap_or_else(|e| panic!("{e}"));
    let cli = Cli::from_arg_matches(&matches).expect("matches of this command");
    let Command::Serve(serve) = cli.command else { panic!("another command") };
    serve.check().expect("settings that go together");
}

#[test]
fn the_manifests_agree_with_compose() {
    let compose_names = compose();
    for (name, value) in settings("seckill.env") {
        let there = compose_names.get(&name).unwrap_or_else(|| panic!("compose has no {name}"));
        assert!(there.is_empty() || *there == value, "{name}: {value}, and {there} in compose");
    }
    let grace_s = number(&manifest("seckill.yaml"), "terminationGracePeriodSeconds:");
    let text = file("docker-compose.yml");
    let (_, service) = text.split_once("\n  seckill:\n").expect("the service `seckill`");
    assert_eq!(grace_s, number(service, "stop_grace_period:"));
    let drain_ms: u64 = settings("seckill.env")["DRAIN_DELAY_MS"].parse().expect("a number");
    assert!(grace_s * 1000 > drain_ms + SHUTDOWN_S * 1000, "{grace_s} s cut a purchase short");
}

#[test]
fn the_proxy_looks_for_as_many_replicas_as_the_autoscaler_and_an_update_make() {
    let manifest = manifest("seckill.yaml");
    let places = number(&file("deploy/haproxy.cfg"), "server-template replica 1-");
    // The one that an update replaces is looked for until it has ended.
    let surge = number(&manifest, "maxSurge:");
    let most = number(&manifest, "maxReplicas:") + surge + surge;
    assert!(most <= places, "{most} replicas, and {places} places");
}

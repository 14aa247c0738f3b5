//! A load of the generator on the path `queued`, and its history judged by the database.

use std::process::{Command, Output};

use serde_json::Value;

use crate::comparison::loadtest;
use crate::fleet::SECKILL;
use crate::queued::buyer::service;
use crate::support::SECRET;

const STOCK: u32 = 150;
const USERS: u64 = 200;
const SAME: &str = "202 same_ticket";

#[tokio::test(flavor = "multi_thread")]
async fn a_load_follows_its_tickets_and_its_history_is_good_by_the_database_as_well() {
    let service = service(&[]).await;
    let voucher = service.voucher(STOCK).await;
    let (url, database) = (service.url.clone(), service.place.database_url.clone());
    let load = tokio::task::spawn_blocking(move || load(&url, &database, &voucher));
    let (said, report, check) = load.await.expect("a load");
    let (figures, verdict) = (&report["load"], &report["vouchers"][0]["verdict"]);
    assert_eq!(figures["requests"], USERS * 3);
    let ended = |code: &str| figures["codes"][code].as_u64().unwrap_or(0);
    let codes = figures["codes"].as_object().expect("codes");
    // The other requests of a user were told of the same ticket.
    let by_ticket = codes.keys().filter(|code| code.starts_with("202") && *code != SAME);
    let admitted: u64 = by_ticket.map(|code| ended(code)).sum();
    assert_eq!(figures["queued"]["admitted"], admitted, "each has ended: {said}");
    let orders = verdict["orders"].as_u64().expect("a count");
    assert!(ended("202") > 0 && ended("202") <= orders && orders <= STOCK.into(), "{said}");
    assert!(said.contains(" admitted/s") && said.contains(" committed/s"), "{said}");
    assert_eq!((&check["ok"], &report["ok"]), (&true.into(), &true.into()), "{said}");
    service.stop().await;
}

/// Users and an administrator by `seckill token`, the load, and its history judged once more by
/// the database: what the load said, and both reports.
fn load(url: &str, database: &str, voucher: &str) -> (String, Value, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (users, admin, history) = (path("users"), path("admin"), path("history"));
    let (json, judgement) = (path("load.json"), path("judgement.json"));
    let count = USERS.to_string();
    for (count, out, more) in [(&*count, &users, &[][..]), ("1", &admin, &["--admin"])] {
        let mut command = Command::new(SECKILL);
        command.args(["token", "--users", count, "--out", out]).args(more);
        done(&command.env("DATABASE_URL", database).env("JWT_SECRET", SECRET).output());
    }
    let run = ["run", "--target", url, "--tokens", &users, "--voucher", voucher];
    let audit = ["--audit-url", url, "--admin-token-file", &admin, "--seed", "5"];
    let files = ["--history", &history, "--json", &json];
    let said = done(&Command::new(loadtest()).args(run).args(audit).args(files).output());
    let check = ["check", &history, "--database", "env", "--json", &judgement];
    done(&Command::new(loadtest()).args(check).env("DATABASE_URL", database).output());
    let read = |path| serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON");
    (said, read(&json), read(&judgement))
}

/// What it said; it ended with exit code 0.
fn done(output: &std::io::Result<Output>) -> String {
    let output = output.as_ref().expect("the program runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}", said.join("\n"));
    said.join("\n")
}

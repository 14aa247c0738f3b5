//! One load on several vouchers of unequal demand, judged voucher by voucher, from the files that a
//! person would use.

use std::process::{Command, Output};

use serde_json::Value;

use crate::comparison::loadtest;
use crate::fleet::SECKILL;
use crate::support::{SECRET, Service};

/// The most wanted has plenty, the least wanted too little.
const STOCKS: [u32; 3] = [1000, 1000, 30];
const USERS: u64 = 660;

#[tokio::test(flavor = "multi_thread")]
async fn several_vouchers_are_wanted_by_their_zipf_shares_and_each_is_judged_by_itself() {
    let service = Service::start(&[]).await;
    let mut vouchers = Vec::new();
    for stock in STOCKS {
        vouchers.push(service.voucher(stock).await);
    }
    let (url, database) = (service.url.clone(), service.place.database_url.clone());
    let load = move || load(&url, &database, &vouchers.join(","));
    let (report, check) = tokio::task::spawn_blocking(load).await.expect("a load");
    let each = report["vouchers"].as_array().expect("vouchers");
    let orders: Vec<u64> =
        each.iter().map(|one| one["verdict"]["orders"].as_u64().expect("a count")).collect();
    // 1 : 1/2 : 1/3 of 660 arrivals are 360, 180 and 120.
    assert!(orders[0].abs_diff(360) < 50 && orders[1].abs_diff(180) < 40, "{orders:?}");
    assert_eq!(orders[2], u64::from(STOCKS[2]), "sold out");
    assert_eq!(report["load"]["requests"], USERS * 3);
    for (one, stock) in each.iter().zip(STOCKS) {
        assert_eq!(one["offered"], stock, "{one}");
        let findings = one["verdict"]["findings"].as_array().expect("findings");
        let held = |name: &str| {
            let finding = findings.iter().find(|finding| finding["rule"] == name);
            finding.expect("a rule")["held"] == true
        };
        for rule in ["orders_within_stock", "one_order_per_user", "stock_adds_up", "audit_agrees"] {
            assert!(held(rule), "{rule}: {one}");
        }
    }
    assert_eq!(check["ok"], true, "{check}");
    let again = check["vouchers"].as_array().expect("vouchers").iter();
    let again: Vec<_> = again.map(|one| one["verdict"]["orders"].as_u64()).collect();
    assert_eq!(again, orders.into_iter().map(Some).collect::<Vec<_>>(), "the database says so");
    service.stop().await;
}

/// Users and an administrator by `seckill token`, the load, and its history judged once more by
/// the database: both reports.
fn load(url: &str, database: &str, vouchers: &str) -> (Value, Value) {
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
    let run = ["run", "--target", url, "--tokens", &users, "--voucher", vouchers, "--zipf", "1"];
    let audit = ["--audit-url", url, "--admin-token-file", &admin, "--seed", "5"];
    let files = ["--history", &history, "--json", &json];
    done(&Command::new(loadtest()).args(run).args(audit).args(files).output());
    let check = ["check", &history, "--database", "env", "--json", &judgement];
    done(&Command::new(loadtest()).args(check).env("DATABASE_URL", database).output());
    let read = |path| serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON");
    (read(&json), read(&judgement))
}

/// It ended with exit code 0.
fn done(output: &std::io::Result<Output>) {
    let output = output.as_ref().expect("the program runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}", said.join("\n"));
}

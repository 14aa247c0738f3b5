//! A load of the generator, judged twice, from the files that a person would use.

use std::process::{Command, Output};

use serde_json::Value;

use crate::comparison::loadtest;
use crate::fleet::SECKILL;
use crate::support::SECRET;

/// What a load said, its report, and what was judged of its history by the database.
pub(crate) struct JudgedLoad {
    pub(crate) said: String,
    pub(crate) report: Value,
    pub(crate) check: Value,
}

/// Creates users and an administrator by `seckill token` and runs their load on the vouchers, with
/// further flags. Then `loadtest check` judges its history.
pub(crate) fn load(
    (url, database): (&str, &str),
    users: u64,
    vouchers: &str,
    more: &[&str],
) -> JudgedLoad {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (tokens, admin, history) = (path("users"), path("admin"), path("history"));
    let (json, judgement) = (path("load.json"), path("judgement.json"));
    let count = users.to_string();
    for (count, out, more) in [(&*count, &tokens, &[][..]), ("1", &admin, &["--admin"])] {
        let mut command = Command::new(SECKILL);
        command.args(["token", "--users", count, "--out", out]).args(more);
        done(&command.env("DATABASE_URL", database).env("JWT_SECRET", SECRET).output());
    }
    let run = ["run", "--target", url, "--tokens", &tokens, "--voucher", vouchers];
    let audit = ["--audit-url", url, "--admin-token-file", &admin, "--seed", "5"];
    let files = ["--history", &history, "--json", &json];
    let said =
        done(&Command::new(loadtest()).args(run).args(more).args(audit).args(files).output());
    let check = ["check", &history, "--database", "env", "--json", &judgement];
    done(&Command::new(loadtest()).args(check).env("DATABASE_URL", database).output());
    let read = |path| serde_json::from_slice(&std::fs::read(path).expect("written")).expect("JSON");
    JudgedLoad { said, report: read(&json), check: read(&judgement) }
}

/// What it said; it ended with exit code 0.
fn done(output: &std::io::Result<Output>) -> String {
    let output = output.as_ref().expect("the program runs");
    let said = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    assert!(output.status.success(), "{}", said.join("\n"));
    said.join("\n")
}

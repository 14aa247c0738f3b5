//! `loadtest run` against a stand-in of the service: honest sales pass, each lie is found.

mod standin;

use std::path::Path;

use loadtest_judge::verdict::Rule;
use serde_json::Value;
use standin::Lie;
use tokio::process::Command;

const USERS: u64 = 30;
/// Rules that only a database shows.
const UNSEEN: [&str; 3] = ["stock_as_ordered", "no_row_without_request", "tokens_rise"];

fn write_tokens(path: &Path, users: std::ops::RangeInclusive<u64>) {
    let line = |user: u64| format!(r#"{{"user_id":"{user}","token":"t{user}"}}"#);
    std::fs::write(path, users.map(line).collect::<Vec<_>>().join("\n")).expect("written");
}

/// What one load on a shop came to.
struct Outcome {
    code: Option<i32>,
    report: Value,
    stdout: String,
    stderr: String,
}

impl Outcome {
    /// Rules that did not hold, and those that could not be judged.
    fn rules(&self, held: &Value) -> Vec<&str> {
        let findings =
            self.report["vouchers"][0]["verdict"]["findings"].as_array().expect("findings");
        let chosen = findings.iter().filter(|finding| &finding["held"] == held);
        chosen.map(|finding| finding["rule"].as_str().expect("a name")).collect()
    }
}

async fn load(lie: Lie, with_audit: bool) -> Outcome {
    load_with(lie, with_audit, &[]).await
}

async fn load_with(lie: Lie, with_audit: bool, flags: &[&str]) -> Outcome {
    let target = standin::open(lie).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str| folder.path().join(name);
    let (tokens, admin, json) = (file("tokens"), file("admin"), file("report.json"));
    write_tokens(&tokens, 1..=USERS);
    write_tokens(&admin, 999..=999);
    let mut command = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    command.args(["run", "--voucher", "1", "--connections", "12", "--target", &target]).args(flags);
    command.arg("--tokens").arg(&tokens).arg("--json").arg(&json);
    if with_audit {
        command.args(["--audit-url", &target]).arg("--admin-token-file").arg(&admin);
    }
    let output = command.output().await.expect("the built program");
    let text = std::fs::read_to_string(&json).unwrap_or_default();
    Outcome {
        code: output.status.code(),
        report: serde_json::from_str(&text).unwrap_or_default(),
        stdout: String::from_utf8(output.stdout).expect("text"),
        stderr: String::from_utf8(output.stderr).expect("text"),
    }
}

#[tokio::test]
async fn an_honest_sale_passes_and_every_figure_is_reported() {
    let outcome = load(Lie::None, true).await;
    assert_eq!(outcome.code, Some(0), "{}{}", outcome.stdout, outcome.stderr);
    let report = &outcome.report;
    assert_eq!(report["ok"], true);
    assert_eq!(report["vouchers"][0]["verdict"]["orders"], standin::STOCK);
    assert_eq!(report["load"]["requests"], USERS * 3);
    let counts = &report["load"]["outcomes"];
    assert_eq!(counts["bought"]["count"], standin::STOCK);
    let all = ["bought", "sold_out", "already_ordered", "refused", "unknown"];
    let sum: u64 = all.iter().filter_map(|name| counts[name]["count"].as_u64()).sum();
    assert_eq!(sum, USERS * 3, "{counts}");
    assert_eq!(report["load"]["replicas"]["standin"]["answers"], USERS * 3);
    assert_eq!(outcome.rules(&Value::Bool(false)), Vec::<&str>::new());
    assert!(outcome.stdout.contains("Verdict: good"), "{}", outcome.stdout);
    assert!(outcome.stderr.is_empty(), "quiet where no terminal is: {}", outcome.stderr);
}

#[tokio::test]
async fn without_the_audit_the_stock_is_judged_and_what_was_not_judged_is_named() {
    let outcome = load(Lie::None, false).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    let not_judged = outcome.rules(&Value::Null);
    let (of_faults, others): (Vec<Rule>, Vec<Rule>) = not_judged
        .iter()
        .map(|name| Rule::parse(name).expect("a rule"))
        .partition(|rule| rule.is_of_faults());
    let others: Vec<String> = others.into_iter().map(Rule::name).collect();
    let unseen = [UNSEEN[0], UNSEEN[1], UNSEEN[2], "one_holder_at_a_time", "audit_agrees"];
    assert_eq!(others, unseen);
    // There was no fault, and nothing is said of those.
    assert_eq!(
        of_faults,
        Rule::ALL.into_iter().filter(|rule| rule.is_of_faults()).collect::<Vec<_>>()
    );
    assert_eq!(outcome.stdout.matches("not judged: ").count(), 5, "{}", outcome.stdout);
    let demanded = outcome.report["vouchers"][0]["demanded"].as_array().expect("names of rules");
    let demanded: Vec<&str> = demanded.iter().filter_map(Value::as_str).collect();
    assert!(demanded.contains(&"stock_adds_up"), "{demanded:?}");
    assert!(!demanded.iter().any(|rule| not_judged.contains(rule)), "{demanded:?}");
    assert_eq!(outcome.report["vouchers"][0]["offered"], standin::STOCK);
    assert_eq!(outcome.report["vouchers"][0]["stock_left"], 0);
}

#[tokio::test]
async fn a_demanded_rule_that_could_not_be_judged_is_no_pass() {
    for with_audit in [false, true] {
        let outcome = load(Lie::HidesStock, with_audit).await;
        assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
        assert!(outcome.rules(&Value::Bool(false)).is_empty(), "{}", outcome.stdout);
        assert!(outcome.rules(&Value::Null).contains(&"stock_adds_up"), "{}", outcome.stdout);
        assert!(outcome.stdout.contains("shows nothing"), "{}", outcome.stdout);
        let reasons = outcome.report["failed_because"].to_string();
        assert!(reasons.contains("stock left + orders"), "{reasons}");
    }
}

#[tokio::test]
async fn more_than_one_percent_of_unknown_outcomes_is_no_pass() {
    let outcome = load(Lie::LosesAnswer, false).await;
    assert_eq!(outcome.report["load"]["outcomes"]["unknown"]["count"], 1);
    assert_eq!(outcome.rules(&Value::Bool(false)), Vec::<&str>::new(), "{}", outcome.stdout);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("few outcomes are unknown"), "{}", outcome.stdout);
    assert!(outcome.report["failed_because"].to_string().contains("1.1 %"), "{}", outcome.report);
}

#[tokio::test]
async fn orders_that_are_still_being_written_are_waited_for() {
    let outcome = load(Lie::WritesLate, true).await;
    assert_eq!(outcome.rules(&Value::Bool(false)), Vec::<&str>::new(), "{}", outcome.stdout);
    assert_eq!(outcome.report["vouchers"][0]["verdict"]["orders"], standin::STOCK);
    let settled = "two looks saw the same orders";
    let conditions = outcome.report["conditions"].as_array().expect("conditions");
    let looked = conditions.iter().find(|one| one["what"] == settled).expect("it had to wait");
    assert_eq!(looked["met"], true, "{looked}");
    let quiet = load(Lie::None, true).await.report["conditions"].to_string();
    assert!(!quiet.contains(settled), "nothing was to be waited for: {quiet}");
}

#[tokio::test]
async fn each_lie_breaks_its_rule_and_ends_with_exit_code_1() {
    for (lie, rule) in [
        (Lie::LosesOne, "acknowledged_exist"),
        (Lie::SellsTwice, "one_order_per_user"),
        (Lie::Oversells, "orders_within_stock"),
        (Lie::SoldOutTooEarly, "sold_out_is_true"),
        (Lie::RefusesAndKeeps, "refusals_left_no_row"),
        (Lie::ShowsTooMuch, "stock_adds_up"),
    ] {
        let outcome = load(lie, false).await;
        let broken = outcome.rules(&Value::Bool(false));
        assert!(broken.contains(&rule), "{lie:?} breaks {broken:?}");
        assert_eq!(outcome.code, Some(1), "{lie:?}");
        assert_eq!(outcome.report["ok"], false, "{lie:?}");
        assert!(outcome.stdout.contains("Verdict: BAD"), "{}", outcome.stdout);
    }
}

#[tokio::test]
async fn an_audit_that_lies_is_found() {
    for lie in [Lie::AuditShort, Lie::AuditRich] {
        let outcome = load(lie, true).await;
        assert_eq!(outcome.code, Some(1), "{lie:?}");
        assert_eq!(outcome.rules(&Value::Bool(false)), ["audit_agrees"], "{lie:?}");
    }
}

#[tokio::test]
async fn a_load_that_never_reached_a_sale_is_no_pass() {
    for lie in [Lie::Draft, Lie::Proxied] {
        let outcome = load(lie, true).await;
        assert_eq!(outcome.code, Some(1), "{lie:?}: {}", outcome.stdout);
        assert!(outcome.stdout.contains("shows nothing"), "{}", outcome.stdout);
        let counts = &outcome.report["load"]["outcomes"];
        let how = if lie == Lie::Draft { "refused" } else { "unknown" };
        assert_eq!(counts[how]["count"], USERS * 3, "{lie:?}");
    }
}

#[tokio::test]
async fn a_token_that_is_not_accepted_stops_the_load_with_one_sentence() {
    let outcome = load(Lie::Locked, false).await;
    assert_eq!(outcome.code, Some(2));
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    assert!(outcome.stderr.contains("line 1"), "{}", outcome.stderr);
    assert_eq!(outcome.report, Value::Null, "no report of a load that was not run");
}

#[tokio::test]
async fn an_open_loop_sends_every_arrival_and_reports_its_cost() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let trace = folder.path().join("trace");
    let lines = (1..=20).map(|user| format!("0.0{user:02} {user} 1"));
    std::fs::write(&trace, lines.collect::<Vec<_>>().join("\n")).expect("written");
    let trace = trace.to_str().expect("text");
    for (flags, requests) in [
        (&["--arrival", "constant", "--rate", "300", "--mix", "once"][..], USERS),
        (&["--arrival", "poisson", "--rate", "300", "--requests-per-user", "2"], 2 * USERS),
        (&["--arrival", "trace", "--trace", trace], 20),
    ] {
        let outcome = load_with(Lie::None, false, flags).await;
        assert_eq!(outcome.code, Some(0), "{flags:?}: {}{}", outcome.stdout, outcome.stderr);
        assert_eq!(outcome.report["load"]["requests"], requests, "{flags:?}");
        let cost = &outcome.report["load"]["cost"];
        assert!(cost["cpu_s"].as_f64().is_some_and(|spent| spent > 0.0), "{cost}");
        assert!(cost["lateness"]["count"].as_u64().is_some_and(|count| count > 0), "{cost}");
        assert!(outcome.stdout.contains("arrivals: p99"), "{}", outcome.stdout);
    }
}

#[tokio::test]
async fn requests_after_the_last_unit_pass_and_too_few_of_them_do_not() {
    let flags = |requests| ["--mix", "sold-out", "--requests", requests];
    let outcome = load_with(Lie::None, false, &flags("500")).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    assert_eq!(outcome.report["load"]["requests"], 500);
    let outcome = load_with(Lie::None, false, &flags("11")).await;
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("✗ most requests came after"), "{}", outcome.stdout);
}

#[tokio::test]
async fn clients_that_hang_up_are_unknown_and_no_fault_of_the_service() {
    let flags = ["--hang-up-share", "0.3", "--seed", "5"];
    let outcome = load_with(Lie::None, false, &flags).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stdout);
    let hung_up = &outcome.report["load"]["codes"]["hung_up"];
    assert!(hung_up.as_u64().is_some_and(|count| count > 5), "{}", outcome.stdout);
    assert_eq!(&outcome.report["load"]["outcomes"]["unknown"]["count"], hung_up);
    assert_eq!(outcome.report["seed"], 5);
    let again = load_with(Lie::None, false, &flags).await;
    assert_eq!(&again.report["load"]["codes"]["hung_up"], hung_up, "the same plan");
}

#[tokio::test]
async fn a_kept_history_is_judged_again_with_the_same_verdict() {
    // Of the lie `Locked` there is no history: no request is sent.
    for (lie, code) in [
        (Lie::None, 0),
        (Lie::LosesOne, 1),
        (Lie::SellsTwice, 1),
        (Lie::Oversells, 1),
        (Lie::SoldOutTooEarly, 1),
        (Lie::RefusesAndKeeps, 1),
        (Lie::AuditShort, 1),
        (Lie::AuditRich, 1),
        (Lie::ShowsTooMuch, 1),
        (Lie::HidesStock, 1),
        (Lie::LosesAnswer, 1),
        (Lie::Draft, 1),
        (Lie::Proxied, 1),
    ] {
        assert_judged_again(lie, code, &[]).await;
    }
    let too_few_late = ["--mix", "sold-out", "--requests", "11"];
    assert_judged_again(Lie::None, 1, &too_few_late).await;
    assert_judged_again(Lie::None, 0, &["--hang-up-share", "0.3", "--seed", "5"]).await;
}

/// Asserts that a load, and the check of its history, end with this code, for the same reasons.
async fn assert_judged_again(lie: Lie, code: i32, flags: &[&str]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (file, json) = (folder.path().join("load.jsonl.zst"), folder.path().join("judgement"));
    let flags = [&["--history", file.to_str().expect("text")], flags].concat();
    let outcome = load_with(lie, true, &flags).await;
    assert_eq!(outcome.code, Some(code), "{lie:?}: {}", outcome.stdout);
    let mut check = Command::new(env!("CARGO_BIN_EXE_loadtest"));
    let check = check.arg("check").arg(&file).arg("--json").arg(&json);
    let check = check.output().await.expect("the built program");
    let said = String::from_utf8_lossy(&check.stdout).into_owned();
    assert_eq!(check.status.code(), Some(code), "{lie:?}: {said}");
    let judgement = std::fs::read_to_string(&json).expect("written");
    let judgement: Value = serde_json::from_str(&judgement).expect("JSON");
    for what in ["ok", "failed_because", "conditions"] {
        assert_eq!(judgement[what], outcome.report[what], "{lie:?}: {what}");
    }
}

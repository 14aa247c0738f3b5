//! The report on one load, for a person.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use comfy_table::{CellAlignment, Table, presets};
use loadtest_judge::check::VoucherJudgement;
use loadtest_judge::verdict::{Rule, Verdict};
use loadtest_load::history::Condition;
use loadtest_load::outcome::Outcome;
use loadtest_load::stats::{Figures, Latency};

use crate::run_report::{RunReport, VoucherReport};

/// All that is printed after a load.
pub fn text(report: &RunReport) -> String {
    let load = &report.load;
    let head = format!(
        "{} requests by {} users on {}, seed {}",
        load.requests, load.users, report.target, report.seed
    );
    let conditions = conditions(&report.conditions);
    let mut parts = vec![head, outcomes(load), details(load), cost(report), conditions];
    parts.extend(report.vouchers.iter().map(|one| voucher(one, &report.target)));
    parts.push(summary(report));
    parts.join("\n\n")
}

/// What must be so for the load to say anything, a line each.
pub(super) fn conditions(all: &[Condition]) -> String {
    let lines = all.iter().map(|one| line(Some(one.met), &one.what, &one.detail));
    lines.collect::<Vec<_>>().join("\n")
}

fn voucher(one: &VoucherReport, target: &str) -> String {
    let VoucherJudgement { voucher, offered, demanded, verdict } = &one.judged;
    let units = offered.map_or("unknown".to_owned(), |units| units.to_string());
    let hint = match offered {
        Some(..=0) => format!(
            "\nNothing was left to sell. `curl -s {target}/api/admin/vouchers/{voucher}/stock \
             -H \"Authorization: Bearer $ADMIN\" --json '{{\"units\":100}}'` adds some; ADMIN is \
             the token of an admin."
        ),
        Some(_) | None => String::new(),
    };
    let findings = findings(verdict, demanded);
    format!("voucher {voucher} ({}), {units} units{hint}\n{findings}", one.title)
}

/// What the generator took, and whether the figures on speed are the service's.
fn cost(report: &RunReport) -> String {
    let cost = &report.load.cost;
    let mut text = format!(
        "generator: {:.2} s of processor time, {:.1} % of the machine; {:.2} s waited for the \
         history",
        cost.cpu_s,
        cost.machine_share * 100.0,
        cost.recorder_wait_s
    );
    // Writing to a string cannot fail.
    if cost.lateness.count > 0 {
        let late = &cost.lateness;
        let _ = write!(
            text,
            "\narrivals: p99 {:.2} ms late, at most {} waited for a connection, {} never sent",
            late.p99_ms, cost.waiting_peak, cost.dropped
        );
    }
    if !report.no_speed_verdict.is_empty() {
        let because = report.no_speed_verdict.join("; ");
        let _ = write!(text, "\nspeed: no verdict, because {because}");
    }
    text
}

fn outcomes(load: &Figures) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).force_no_tty();
    table.set_header(["outcome", "count", "p50 ms", "p90 ms", "p99 ms", "max ms"]);
    let row = |name: &str, latency: &Latency| {
        let millis = [latency.p50_ms, latency.p90_ms, latency.p99_ms, latency.max_ms];
        let mut row = vec![name.replace('_', " "), latency.count.to_string()];
        row.extend(millis.map(|value| format!("{value:.1}")));
        row
    };
    for outcome in Outcome::ALL {
        if let Some(latency) = load.outcomes.get(&outcome).filter(|one| one.count > 0) {
            table.add_row(row(outcome.name(), latency));
        }
    }
    table.add_row(row("all", &load.all));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn details(load: &Figures) -> String {
    let replicas: Vec<String> = load
        .replicas
        .iter()
        .map(|(name, share)| format!("{name} {:.1} %", share.share * 100.0))
        .collect();
    let in_flight = if load.in_flight_mean > 0.0 {
        format!("{:.1} in flight on average while full", load.in_flight_mean)
    } else {
        format!("at most {} in flight, which is not all connections", load.in_flight_peak)
    };
    let mark = if load.bottlenecks().is_empty() { "" } else { " (the generator's limit)" };
    let codes: Vec<String> =
        load.codes.iter().map(|(code, count)| format!("{code}: {count}")).collect();
    let queued = load.queued.as_ref().map_or(String::new(), |queued| {
        format!(
            "{} admitted, {:.0} admitted/s{mark}, p50 {:.1} ms and p99 {:.1} ms to the ticket; \
             {:.0} committed/s until the last order\n",
            queued.admitted,
            queued.admitted_per_s,
            queued.admission.p50_ms,
            queued.admission.p99_ms,
            load.orders_per_s,
        )
    });
    format!(
        "{queued}{:.0} orders/s, {:.0} requests/s{mark} in {:.2} s, {in_flight}\n\
         answers by replica: {}\nanswers by code: {}",
        load.orders_per_s,
        load.requests_per_s,
        load.elapsed_s,
        if replicas.is_empty() { "none named".to_owned() } else { replicas.join(", ") },
        codes.join(", "),
    )
}

/// Every rule, and of each that was broken some of the requests that prove it.
pub(super) fn findings(verdict: &Verdict, demanded: &[Rule]) -> String {
    let mut lines = Vec::new();
    for finding in verdict.findings.iter().filter(|one| one.concerns_run(demanded)) {
        let (words, detail) = (finding.rule.words(), &finding.detail);
        lines.push(if finding.held.is_none() && demanded.contains(&finding.rule) {
            line(Some(false), words, &format!("could not be judged: {detail}"))
        } else {
            line(finding.held, words, detail)
        });
        for proof in &finding.proofs {
            lines.push(format!("    {}", proof.why));
            lines.extend(proof.requests.iter().map(|asked| format!("      {}", asked.text())));
        }
        let more = finding.broken.saturating_sub(finding.proofs.len() as u64);
        if more > 0 && !finding.proofs.is_empty() {
            lines.push(format!("    and {more} more"));
        }
    }
    lines.join("\n")
}

/// One rule: a mark, its words, its figures. Green is only what was judged and held.
fn line(held: Option<bool>, words: &str, detail: &str) -> String {
    let (mark, colour, prefix) = match held {
        Some(true) => ("✓", "32", ""),
        Some(false) => ("✗", "31", ""),
        None => ("–", "33", "not judged: "),
    };
    let mark = if std::io::stdout().is_terminal() {
        format!("\x1b[{colour}m{mark}\x1b[0m")
    } else {
        mark.to_owned()
    };
    format!("{mark} {words:<54} {prefix}{detail}")
}

/// What the findings of a load come to.
#[derive(Default)]
struct Tally {
    demanded: usize,
    broken: usize,
    /// Demanded, and could not be judged.
    open: usize,
    not_judged: usize,
}

impl Tally {
    fn of<'a>(all: impl IntoIterator<Item = &'a VoucherJudgement>) -> Self {
        let mut tally = Self::default();
        for VoucherJudgement { demanded: wanted, verdict, .. } in all {
            tally.demanded += wanted.len();
            for finding in verdict.findings.iter().filter(|one| one.concerns_run(wanted)) {
                match finding.held {
                    Some(true) => {}
                    Some(false) => tally.broken += 1,
                    None if wanted.contains(&finding.rule) => tally.open += 1,
                    None => tally.not_judged += 1,
                }
            }
        }
        tally
    }

    fn good(&self) -> String {
        format!("Verdict: good. All {} demanded rules held.", self.demanded)
    }

    /// How many rules were neither demanded nor judged, if some were, and what would judge them.
    fn unjudged(&self, hint: &str) -> String {
        match self.not_judged {
            0 => String::new(),
            some => format!(" Not judged: {some}{hint}."),
        }
    }
}

/// The verdict on a load that is good, in the words of all judgements.
pub(super) fn good<'a>(all: impl IntoIterator<Item = &'a VoucherJudgement>) -> String {
    let tally = Tally::of(all);
    tally.good() + &tally.unjudged("")
}

fn summary(report: &RunReport) -> String {
    let unmet = report.conditions.iter().filter(|condition| !condition.met).count();
    let tally = Tally::of(report.vouchers.iter().map(|one| &one.judged));
    let faults: Vec<String> = [
        ("rules broken", tally.broken),
        ("conditions not met", unmet),
        ("demanded rules that could not be judged", tally.open),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .map(|(what, count)| format!("{what}: {count}"))
    .collect();
    let mut text = match (tally.broken, faults.len()) {
        (0, 0) => tally.good(),
        (0, _) => format!("Verdict: shows nothing ({}).", faults.join("; ")),
        _ => format!("Verdict: BAD ({}).", faults.join("; ")),
    };
    let audited = report.vouchers.iter().all(|one| one.audit.is_some());
    let hint = "; --audit-url with --admin-token-file judges more of them";
    text.push_str(&tally.unjudged(if audited { "" } else { hint }));
    let unknown = report.load.count(Outcome::Unknown);
    if unknown > 0 {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            " {unknown} requests have no known outcome and may explain as many orders."
        );
    }
    text
}

//! The report as people read it.

use std::fmt::Write as _;

use comfy_table::Table;
use loadtest_measure::bars::{Bar, Outcome, ROUNDS, SECONDS, Verdict, median, spread};
use loadtest_measure::table::{percent, table};

use super::BenchReport;
use super::figure::{DATABASE, Figure, GENERATOR, REPLICAS, Sample};
use super::parts::HTTP;
use super::row_report::RowReport;

/// What serves, in the order of the columns.
const SERVERS: [&str; 7] = [REPLICAS, "redis", DATABASE, "proxy", "zookeeper", "etcd", "nats"];
/// The parts of a purchase, in their order.
const PARTS: [&str; 8] =
    [HTTP, "token", "lock", "queue", "transaction", "release", "purchase", "request"];

/// One cell of one round, while a run continues.
pub fn line(round: usize, cell: &str, sample: &Sample) -> String {
    let mut text = format!("round {round}  {cell:<20}");
    if sample.per_s > 0.0 {
        let generator = sample.generator_share * 100.0;
        let _ = write!(
            text,
            " {:>8.0}/s  p99 {:>6.1} ms  {:>4.0} us a piece in servers, generator {generator:.0} % \
             of the machine",
            sample.per_s,
            sample.p99_ms,
            sample.server_us()
        );
    }
    for (figure, unit) in [(sample.memory_mib, "MiB"), (sample.ready_ms, "ms to ready")] {
        let _ = figure.map(|figure| write!(text, "  {figure:.1} {unit}"));
    }
    for why in &sample.invalid {
        let _ = write!(text, "\n  invalid: {why}");
    }
    text
}

impl BenchReport {
    /// Tables and what to bear in mind.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.rows_table());
        let measured = |part: &dyn Fn(&Sample) -> bool| {
            self.cells.values().any(|samples| samples.iter().any(part))
        };
        if measured(&|sample| sample.per_s > 0.0) {
            let _ = writeln!(text, "\nmedians of the cells:\n{}", self.cells_table());
        }
        if measured(&|sample| !sample.parts_ms.is_empty()) {
            let _ = writeln!(text, "\nmean milliseconds of an order:\n{}", self.parts_table());
        }
        let versions = &self.versions;
        let [_, seckill] = versions.builds();
        let _ = writeln!(
            text,
            "\n{} rounds of {} s; seckill ({seckill}), {}, Redis {}, HAProxy {}{}{}{}{}{}; {}; {} \
             processors: {}",
            self.rounds,
            self.seconds,
            versions.database,
            versions.redis,
            versions.haproxy,
            self.sysbench.as_ref().map_or(String::new(), |version| format!(", sysbench {version}")),
            self.java.as_ref().map_or(String::new(), |version| format!(", Java {version}")),
            versions.zookeeper.as_ref().map_or(String::new(), |of| format!(", ZooKeeper {of}")),
            versions.etcd.as_ref().map_or(String::new(), |of| format!(", etcd {of}")),
            versions.nats.as_ref().map_or(String::new(), |of| format!(", NATS {of}")),
            self.durability,
            self.machine.cpus,
            self.machine.cpu,
        );
        let _ = writeln!(text, "{}", self.host.line());
        for remark in &self.remarks {
            let _ = writeln!(text, "{remark}");
        }
        if !self.long_enough {
            let _ = writeln!(
                text,
                "a bar is met by {ROUNDS} rounds of {SECONDS} s or more only: this run can be no \
                 proof"
            );
        }
        text.push_str(if self.ok { "every bar is met" } else { "not every bar is met" });
        text
    }

    fn rows_table(&self) -> Table {
        let plain = ["plain answers", "bar", "spread"];
        let header = ["row", "", "beside", "figure", "bar", "spread"];
        let header: Vec<&str> = header.into_iter().chain(plain).chain(["verdict"]).collect();
        let mut table = table(&header, 3..9);
        for row in &self.rows {
            let [figure, bar, spread] = figures(row.figure, &row.outcome, row.bar);
            let cost = row.plain_answers.as_ref();
            let [plain, plain_bar, plain_spread] = cost.map_or_else(Default::default, |cost| {
                figures(Figure::ServerTime, &cost.outcome, cost.bar)
            });
            let verdict = self.verdict(row);
            let beside = match row.beside[..] {
                [] => "-".to_owned(),
                [one] => one.to_owned(),
                [..] => "best bare".to_owned(),
            };
            let cells = [row.name, row.what, &beside, &figure, &bar, &spread];
            let cost = [plain.as_str(), &plain_bar, &plain_spread, &verdict];
            table.add_row(cells.into_iter().chain(cost));
        }
        table
    }

    /// The result of a row's figure and of its cost, and why.
    fn verdict(&self, row: &RowReport) -> String {
        let mut text = row.verdict.words().to_owned();
        if let Some(cost) = &row.plain_answers
            && ![Verdict::NoBar, row.verdict].contains(&cost.verdict)
        {
            let _ = write!(text, "; plain answers: {}", cost.verdict.words());
        }
        if !self.host.steady && row.verdict != Verdict::Unsteady {
            let _ = write!(text, "; {}", Verdict::Unsteady.words());
        }
        for why in &row.because {
            let _ = write!(text, "\n{why}");
        }
        text
    }

    fn cells_table(&self) -> Table {
        let mut header = vec!["cell", "/s", "spread", "p99 ms"];
        header.extend(SERVERS);
        header.extend(["us in servers", GENERATOR, "of machine"]);
        let mut table = table(&header, 1..header.len());
        for (name, samples) in &self.cells {
            let middle = |of: &dyn Fn(&Sample) -> f64| {
                let values: Vec<f64> = samples.iter().map(of).collect();
                (median(&values).unwrap_or(0.0), spread(&values))
            };
            let (per_s, scattered) = middle(&|sample| sample.per_s);
            let used = |what: &'static str| {
                let micros = move |sample: &Sample| sample.cpu_us.get(what).copied().unwrap_or(0.0);
                format!("{:.1}", middle(&micros).0)
            };
            let mut row = vec![(*name).to_owned(), format!("{per_s:.0}")];
            row.push(scattered.map_or_else(|| "-".to_owned(), percent));
            row.push(format!("{:.1}", middle(&|sample| sample.p99_ms).0));
            row.extend(SERVERS.map(used));
            row.push(format!("{:.1}", middle(&Sample::server_us).0));
            row.push(used(GENERATOR));
            row.push(percent(middle(&|sample| sample.generator_share).0));
            table.add_row(row);
        }
        table
    }

    fn parts_table(&self) -> Table {
        let header: Vec<&str> = std::iter::once("cell").chain(PARTS).collect();
        let mut table = table(&header, 1..header.len());
        for (name, samples) in &self.cells {
            let middle = |part: &str| {
                let values = samples.iter().filter_map(|sample| sample.parts_ms.get(part).copied());
                median(&values.collect::<Vec<f64>>())
            };
            let parts = PARTS.map(middle);
            if parts.iter().any(Option::is_some) {
                let shown =
                    parts.map(|ms| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.3}")));
                table.add_row(std::iter::once((*name).to_owned()).chain(shown));
            }
        }
        table
    }
}

/// Median, bar and spread, as far as there are any.
fn figures(figure: Figure, outcome: &Outcome, bar: Option<Bar>) -> [String; 3] {
    let digits = if matches!(figure, Figure::Memory | Figure::Ready) { 1 } else { 2 };
    let median = outcome.median.map(|median| format!("{median:.digits$}"));
    let texts = [median, bar.map(|bar| bar.to_string()), outcome.spread.map(percent)];
    texts.map(|text| text.unwrap_or_else(|| "-".to_owned()))
}

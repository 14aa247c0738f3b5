//! The cells as comma-separated values, one line a cell, for spreadsheets and scripts.

use loadtest_lab::cell::CellReport;
use loadtest_lab::faults::FaultKind;
use loadtest_measure::error::{Error, Result};
use serde::Serialize;

use crate::table::{no_verdict_on_speed, problems, verdict};

/// One line; its members name the columns.
#[derive(Serialize)]
struct Line<'a> {
    lock: &'a str,
    scope: &'a str,
    guards: &'a str,
    replicas: u16,
    scenario: &'a str,
    /// Empty if there was none.
    fault: &'a str,
    topology: &'a str,
    predicted: &'a str,
    /// Empty, as all figures that come of a load, if the cell could not be run.
    observed: Option<&'a str>,
    verdict: &'a str,
    requests: Option<u64>,
    stock: u64,
    orders: Option<u64>,
    oversold: Option<u64>,
    duplicate_users: Option<u64>,
    lost: Option<u64>,
    orders_per_s: Option<f64>,
    p50_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// Why these figures on speed are no verdict; empty if they are.
    no_verdict_on_speed: String,
    /// Holds of a lock that another held, by the reports of replicas; empty without reports.
    holds_at_once: Option<u64>,
    /// The longest time for which two held it.
    longest_at_once_ms: Option<f64>,
    /// Overlaps that no delay of an answer explains.
    certainly_at_once: Option<u64>,
    /// Milliseconds from the end of the fault; empty without one, and if it did not come back.
    back_after_ms: Option<u64>,
    seed: u64,
    tries: u32,
    took_s: f64,
    /// Why it was predicted to come out so.
    because: &'a str,
    /// Why it is not in order; empty if it is.
    problems: String,
}

/// The cells as CSV (RFC 4180), with a header.
pub fn csv(cells: &[CellReport]) -> Result<String> {
    let broken = |error: String| Error::Setup(format!("the CSV cannot be written: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    for cell in cells {
        let axes = cell.axes;
        let ran = Some(cell).filter(|cell| cell.load.is_some());
        let line = Line {
            lock: axes.lock.name(),
            scope: axes.scope.name(),
            guards: axes.guards.name(),
            replicas: axes.replicas,
            scenario: cell.scenario.name(),
            fault: cell.fault.map_or("", FaultKind::name),
            topology: cell.topology.name(),
            predicted: cell.predicted.words(),
            observed: ran.map(|cell| cell.observed.words()),
            verdict: verdict(cell).0,
            requests: ran.map(|cell| cell.requests),
            stock: cell.stock,
            orders: ran.map(|cell| cell.orders),
            oversold: ran.map(|cell| cell.oversold),
            duplicate_users: ran.map(|cell| cell.duplicate_users),
            lost: ran.map(|cell| cell.lost),
            orders_per_s: ran.map(|cell| cell.orders_per_s),
            p50_ms: ran.map(|cell| cell.p50_ms),
            p99_ms: ran.map(|cell| cell.p99_ms),
            no_verdict_on_speed: no_verdict_on_speed(cell).join("; "),
            holds_at_once: cell.overlaps.map(|it| it.at_once),
            longest_at_once_ms: cell.overlaps.map(|it| it.longest_ms),
            certainly_at_once: cell.overlaps.map(|it| it.certain),
            back_after_ms: cell.round.as_ref().and_then(|round| round.back_after_ms),
            seed: cell.seed,
            tries: cell.tries,
            took_s: cell.took_s,
            because: &cell.because,
            problems: crate::text::Text::joined("semicolon", problems(cell)).to_string(),
        };
        writer.serialize(line).map_err(|error| broken(error.to_string()))?;
    }
    let bytes = writer.into_inner().map_err(|error| broken(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| broken(error.to_string()))
}

#[cfg(test)]
mod tests {
    use loadtest_judge::holds::HoldOverlaps;

    use super::*;
    use crate::tests::matrix_report;

    #[test]
    fn why_there_is_no_verdict_on_speed_has_a_column() {
        let mut cells = matrix_report().cells;
        cells[1].load.as_mut().expect("figures").cost.machine_share = 0.9;
        let text = csv(&cells).expect("CSV");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headers = reader.headers().expect("a header").clone();
        let column = headers.iter().position(|header| header == "no_verdict_on_speed");
        let lines = reader.records().map(|line| line.expect("a whole line"));
        let why: Vec<String> =
            lines.map(|line| line[column.expect("a column")].to_owned()).collect();
        assert_eq!(why[0], "");
        assert!(why[1].starts_with("the generator took 90 % of the machine"), "{why:?}");
    }

    #[test]
    fn overlapping_holds_have_columns_that_are_empty_without_reports() {
        let mut cells = matrix_report().cells;
        let overlaps =
            HoldOverlaps { holds: 9, at_once: 3, longest_ms: 1.5, certain: 2, resolution_ms: 2.0 };
        cells[0].overlaps = Some(overlaps);
        let text = csv(&cells).expect("CSV");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headers = reader.headers().expect("a header").clone();
        let names = ["holds_at_once", "longest_at_once_ms", "certainly_at_once"];
        let columns = names.map(|name| headers.iter().position(|header| header == name));
        let lines: Vec<csv::StringRecord> =
            reader.records().collect::<std::result::Result<_, _>>().expect("whole lines");
        let of = |line: usize| columns.map(|column| lines[line][column.expect("one")].to_owned());
        assert_eq!(of(0), ["3", "1.5", "2"]);
        assert_eq!(of(1), ["", "", ""]);
    }

    #[test]
    fn of_a_cell_that_never_ran_figures_are_empty() {
        let trial = matrix_report().cells[0].trial();
        let took = std::time::Duration::ZERO;
        let text = csv(&[CellReport::failed(trial, 100, "interrupted".to_owned(), took)]);
        let text = text.expect("CSV");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let headers = reader.headers().expect("a header").clone();
        let line = reader.records().next().expect("a line").expect("whole");
        let figures = ["observed", "requests", "orders", "oversold", "duplicate_users", "lost"];
        for name in figures.into_iter().chain(["orders_per_s", "p50_ms", "p99_ms"]) {
            let column = headers.iter().position(|header| header == name).expect("a column");
            assert_eq!(&line[column], "", "{name}");
        }
    }

    #[test]
    fn there_is_a_header_and_a_line_a_cell_and_commas_stay_inside_their_field() {
        let mut cells = matrix_report().cells;
        cells[1].valid = false;
        cells[1].invalid_because = vec!["a, \"b\"".to_owned()];
        let text = csv(&cells).expect("CSV");
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let column = |name: &str, headers: &csv::StringRecord| {
            headers.iter().position(|header| header == name).expect("a column")
        };
        let headers = reader.headers().expect("a header").clone();
        let lines: Vec<csv::StringRecord> =
            reader.records().collect::<std::result::Result<_, _>>().expect("whole lines");
        assert_eq!(lines.len(), cells.len());
        assert_eq!(&lines[0][column("observed", &headers)], "oversells, duplicates");
        assert_eq!(&lines[0][column("orders_per_s", &headers)], "312.4");
        assert_eq!(&lines[1][column("problems", &headers)], "a, \"b\"");
        assert_eq!(&lines[0][column("problems", &headers)], "", "it is in order");
        assert_eq!(&lines[0][column("because", &headers)], cells[0].because);
        assert!(!cells[0].because.is_empty());
        assert_eq!(&lines[1][column("verdict", &headers)], "INVALID");
        let what = |line: usize, name: &str| lines[line][column(name, &headers)].to_owned();
        let happened = |line| (what(line, "scenario"), what(line, "fault"));
        assert_eq!(happened(0), ("short-work".to_owned(), String::new()));
        assert_eq!(happened(5), ("frozen-unfenced".to_owned(), "freeze".to_owned()));
        assert_eq!((what(5, "back_after_ms"), what(5, "seed")), ("230".to_owned(), "9".to_owned()));
    }
}

//! Cells as JSON. Of one that never ran nothing is known, and `null` stands for what is not known:
//! a 0 would say that nothing was sold too much.

use loadtest_lab::cell::CellReport;
use serde::ser::Error as _;
use serde::{Serialize, Serializer};
use serde_json::Value;

/// Members that come of a load.
const LOAD_MEMBERS: [&str; 9] = [
    "requests",
    "orders",
    "oversold",
    "duplicate_users",
    "lost",
    "observed",
    "orders_per_s",
    "p50_ms",
    "p99_ms",
];

/// The cells, each with what is known of it.
pub fn cells<S: Serializer>(cells: &[CellReport], serializer: S) -> Result<S::Ok, S::Error> {
    let cells: Vec<CellJson<'_>> =
        cells.iter().map(known).collect::<Result<_, _>>().map_err(S::Error::custom)?;
    cells.serialize(serializer)
}

#[derive(Serialize)]
#[serde(untagged)]
enum CellJson<'a> {
    All(&'a CellReport),
    Some(Value),
}

fn known(cell: &CellReport) -> Result<CellJson<'_>, serde_json::Error> {
    if cell.load.is_some() {
        return Ok(CellJson::All(cell));
    }
    let mut known = serde_json::to_value(cell)?;
    for member in LOAD_MEMBERS {
        known[member] = Value::Null;
    }
    Ok(CellJson::Some(known))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use loadtest_lab::fixtures::story;

    use super::*;
    use crate::baseline::Baseline;
    use crate::tests::report;

    #[test]
    fn a_cell_that_never_ran_has_no_figures_in_the_json_and_is_a_baseline_nevertheless() {
        let mut ran = story();
        let trial = ran[0].trial();
        ran[0] = CellReport::failed(trial, 100, "interrupted".to_owned(), Duration::ZERO);
        let json = serde_json::to_value(report(ran)).expect("JSON");
        for member in LOAD_MEMBERS {
            assert!(json["cells"][0][member].is_null(), "{member}");
            assert!(!json["cells"][1][member].is_null(), "{member}");
        }
        let cell = &json["cells"][0];
        assert_eq!((&cell["lock"], &cell["error"]), (&"local".into(), &"interrupted".into()));
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("old.json");
        std::fs::write(&file, json.to_string()).expect("written");
        let changes = Baseline::read(&file).expect("a baseline").compare(&story(), None);
        let [change] = &changes.changed[..] else { panic!("{changes:?}") };
        assert_eq!((change.cell, change.throughput), (trial, None));
        assert_eq!(
            change.verdict.as_ref().map(|(was, _)| was.to_string()).as_deref(),
            Some("invalid")
        );
    }
}

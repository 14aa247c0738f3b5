//! What is finished of a matrix: a line of JSON for each cell, so that a run that was interrupted
//! goes on where it was. A cell counts as finished only with the same versions, settings, load and
//! seed.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::lab::cell::CellReport;

/// All that a cell depends on, as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Key(String);

/// Finished cells.
#[derive(Debug, Default)]
pub(super) struct State {
    file: Option<File>,
    finished: HashMap<Key, CellReport>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    key: Key,
    cell: CellReport,
}

impl Key {
    /// The key of these settings. Members of an object are ordered, so equal ones are equal text.
    pub(super) fn of(settings: &Value) -> Self {
        Self(settings.to_string())
    }
}

impl State {
    /// What is in that file, which is made if need be; without one nothing is remembered. A line
    /// that a killed run has not written to its end, or another version of the program, is passed
    /// over.
    pub(super) fn open(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let wrong =
            |error: std::io::Error| Error::Usage(format!("cannot use {}: {error}", path.display()));
        let text = if path.exists() {
            std::fs::read_to_string(path).map_err(wrong)?
        } else {
            String::new()
        };
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let finished = lines.map(|line| (line.key, line.cell)).collect();
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(wrong)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(wrong)?;
        }
        Ok(Self { file: Some(file), finished })
    }

    /// The report on that cell, if it is finished.
    pub(super) fn finished(&self, key: &Key) -> Option<CellReport> {
        self.finished.get(key).cloned()
    }

    /// Remembers it.
    pub(super) fn remember(&mut self, key: &Key, cell: &CellReport) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(&Line { key: key.clone(), cell: cell.clone() });
        let text = line.map_err(|error| Error::Setup(error.to_string()))? + "\n";
        file.write_all(text.as_bytes())
            .and_then(|()| file.flush())
            .map_err(|error| Error::Setup(format!("a finished cell is not remembered: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::tests::story;

    #[test]
    fn what_was_finished_is_found_again_after_a_run_that_was_killed_in_the_middle_of_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.jsonl");
        let keys = [1, 2, 3].map(|seed| Key::of(&json!({ "seed": seed })));
        let cells = story();
        let as_json = |cell: &CellReport| serde_json::to_value(cell).expect("JSON");
        let found = |state: &State, key: &Key| state.finished(key).as_ref().map(as_json);
        let mut state = State::open(Some(&path)).expect("a new file");
        state.remember(&keys[0], &cells[0]).expect("written");
        let mut text = std::fs::read_to_string(&path).expect("a file");
        text.push_str("{\"key\":\"{");
        std::fs::write(&path, text).expect("broken off");
        let mut state = State::open(Some(&path)).expect("the same file");
        assert_eq!(found(&state, &keys[0]), Some(as_json(&cells[0])));
        assert_eq!(found(&state, &keys[1]), None);
        state.remember(&keys[2], &cells[2]).expect("written");
        let state = State::open(Some(&path)).expect("the same file");
        assert_eq!(found(&state, &keys[2]), Some(as_json(&cells[2])));
    }

    #[test]
    fn without_a_file_nothing_is_remembered() {
        let mut state = State::open(None).expect("nothing");
        let key = Key::of(&json!(1));
        state.remember(&key, &story()[0]).expect("nothing to be written");
        assert!(state.finished(&key).is_none());
    }
}

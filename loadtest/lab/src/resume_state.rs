//! The finished cells and seeds of a matrix, one line of JSON each, so that an interrupted run can
//! resume. A cell counts as finished only with the same executables, flags, load, schedule and
//! seed, on servers of the same versions and settings.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use loadtest_measure::error::{Error, Result};
use loadtest_measure::machine::Versions;
use loadtest_measure::server_settings::ServerSettings;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cell::CellReport;
use crate::injection_results::Attempt;
use crate::runner::Runner;

/// All that a cell depends on, as text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct ResumeKey(String);

/// What is finished.
#[derive(Debug, Default)]
pub struct ResumeState {
    file: Option<File>,
    cells: HashMap<ResumeKey, CellReport>,
    attempts: HashMap<ResumeKey, Attempt>,
}

/// A finished cell, or a finished seed of an injected bug.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CompletedWork {
    Cell(Box<CellReport>),
    #[serde(rename = "bug", alias = "plant")]
    Attempt(Attempt),
}

#[derive(Serialize, Deserialize)]
struct ResumeLine {
    key: ResumeKey,
    finished: CompletedWork,
}

impl ResumeKey {
    /// The key of something that is run there. Members of an object are ordered, so equal ones are
    /// equal text.
    pub(super) fn of(what: &Value, runner: &Runner) -> Self {
        // Those of ZooKeeper, etcd and NATS are not known before they are needed.
        let versions = Versions { zookeeper: None, etcd: None, nats: None, ..runner.versions() };
        Self::made_of(what, &runner.settings(), &versions)
    }

    fn made_of(what: &Value, settings: &ServerSettings, versions: &Versions) -> Self {
        Self::of_all(&json!({ "what": what, "settings": settings, "versions": versions }))
    }

    fn of_all(all: &Value) -> Self {
        Self(all.to_string())
    }
}

impl ResumeState {
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
        let lines = text.lines().filter_map(|line| serde_json::from_str::<ResumeLine>(line).ok());
        let mut state = Self::default();
        for ResumeLine { key, finished } in lines {
            match finished {
                CompletedWork::Cell(cell) => drop(state.cells.insert(key, *cell)),
                CompletedWork::Attempt(attempt) => drop(state.attempts.insert(key, attempt)),
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).open(path).map_err(wrong)?;
        if !text.is_empty() && !text.ends_with('\n') {
            file.write_all(b"\n").map_err(wrong)?;
        }
        Ok(Self { file: Some(file), ..state })
    }

    /// The report on that cell, if it is finished.
    pub(super) fn cell(&self, key: &ResumeKey) -> Option<CellReport> {
        self.cells.get(key).cloned()
    }

    /// What came of that seed of an injected bug, if it is finished.
    pub(super) fn attempt(&self, key: &ResumeKey) -> Option<Attempt> {
        self.attempts.get(key).cloned()
    }

    /// Remembers a cell.
    pub(super) fn remember_cell(&mut self, key: &ResumeKey, cell: &CellReport) -> Result<()> {
        self.remember(key, || CompletedWork::Cell(Box::new(cell.clone())))
    }

    /// Remembers a seed of an injected bug.
    pub(super) fn remember_attempt(&mut self, key: &ResumeKey, attempt: &Attempt) -> Result<()> {
        self.remember(key, || CompletedWork::Attempt(attempt.clone()))
    }

    fn remember(&mut self, key: &ResumeKey, finished: impl Fn() -> CompletedWork) -> Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let line = serde_json::to_string(&ResumeLine { key: key.clone(), finished: finished() });
        let text = line.map_err(|error| Error::Setup(error.to_string()))? + "\n";
        file.write_all(text.as_bytes())
            .and_then(|()| file.flush())
            .map_err(|error| Error::Setup(format!("what is finished is not remembered: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use loadtest_measure::machine::Builds;

    use super::*;
    use crate::cell_axes::Load;
    use crate::cell_plan::{CellPlan, CellRequest};
    use crate::fixtures::{comparison_of, story};
    use crate::injected_bugs::RoundFindings;

    #[test]
    fn what_another_program_did_or_the_same_one_under_other_flags_is_not_taken_for_finished() {
        let report = comparison_of(story());
        let wanted =
            CellRequest { trial: story()[0].trial(), default_load: &Load::DEFAULT, seed: 1 };
        let key = |cell_plan: &CellPlan, builds: Builds| {
            let versions = Versions { builds, ..report.versions.clone() };
            ResumeKey::made_of(&cell_plan.identity(), &report.settings, &versions)
        };
        let builds = |loadtest: &str, seckill: &str| Builds {
            loadtest: loadtest.to_owned(),
            seckill: seckill.to_owned(),
        };
        let cell_plan = CellPlan::of(&wanted);
        let first = key(&cell_plan, builds("1", "2"));
        assert_eq!(key(&CellPlan::of(&wanted), builds("1", "2")), first);
        assert_ne!(key(&cell_plan, builds("1", "3")), first, "another service");
        assert_ne!(key(&cell_plan, builds("3", "2")), first, "another laboratory");
        let mut flagged = cell_plan.clone();
        flagged.flags.push("--fenced".to_owned());
        assert_ne!(key(&flagged, builds("1", "2")), first, "other flags");
        let later = CellPlan::of(&CellRequest { seed: 2, ..wanted });
        assert_ne!(key(&later, builds("1", "2")), first, "another seed");
    }

    #[test]
    fn what_was_finished_is_found_again_after_a_run_that_was_killed_in_the_middle_of_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.jsonl");
        let keys = [1, 2, 3].map(|seed| ResumeKey::of_all(&json!({ "seed": seed })));
        let cells = story();
        let as_json = |cell: &CellReport| serde_json::to_value(cell).expect("JSON");
        let found = |state: &ResumeState, key: &ResumeKey| state.cell(key).as_ref().map(as_json);
        let mut state = ResumeState::open(Some(&path)).expect("a new file");
        state.remember_cell(&keys[0], &cells[0]).expect("written");
        let mut text = std::fs::read_to_string(&path).expect("a file");
        text.push_str("{\"key\":\"{");
        std::fs::write(&path, text).expect("broken off");
        let mut state = ResumeState::open(Some(&path)).expect("the same file");
        assert_eq!(found(&state, &keys[0]), Some(as_json(&cells[0])));
        assert_eq!(found(&state, &keys[1]), None);
        state.remember_cell(&keys[2], &cells[2]).expect("written");
        let state = ResumeState::open(Some(&path)).expect("the same file");
        assert_eq!(found(&state, &keys[2]), Some(as_json(&cells[2])));
    }

    #[test]
    fn a_seed_of_an_injected_bug_is_stored_beside_the_cells() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("state.jsonl");
        let key = ResumeKey::of_all(&json!("a bug"));
        let attempt = Attempt {
            seed: 3,
            rounds: 2,
            caught_by: vec!["a rule".to_owned()],
            missed: vec![RoundFindings {
                witness: vec!["seen".to_owned()],
                ..RoundFindings::default()
            }],
            clean: true,
            without: RoundFindings::default(),
        };
        let mut state = ResumeState::open(Some(&path)).expect("a new file");
        state.remember_attempt(&key, &attempt).expect("written");
        let state = ResumeState::open(Some(&path)).expect("the same file");
        let as_json = |attempt| serde_json::to_value(attempt).expect("JSON");
        assert_eq!(state.attempt(&key).map(as_json), Some(as_json(attempt)));
        assert!(state.cell(&key).is_none());
    }

    #[test]
    fn without_a_file_nothing_is_remembered() {
        let mut state = ResumeState::open(None).expect("nothing");
        let key = ResumeKey::of_all(&json!(1));
        state.remember_cell(&key, &story()[0]).expect("nothing to be written");
        assert!(state.cell(&key).is_none());
    }
}

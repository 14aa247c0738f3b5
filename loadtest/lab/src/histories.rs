//! Which histories of a matrix's cells are kept, so that `loadtest check` can judge a cell again.
//! These are all in a folder that was asked for, or else those of red cells beside the report. Each
//! is written there from the first request on, because only the end shows whether a cell is red.

use std::path::{Path, PathBuf};

use loadtest_measure::error::{Error, Result};

use crate::cell_spec::CellSpec;

/// The folder in that of the report.
const BESIDE_REPORT: &str = "histories";

/// Where histories are, and which of them stay.
#[derive(Debug, Clone)]
pub struct Histories {
    folder: PathBuf,
    all: bool,
}

impl Histories {
    /// All of them in the folder `asked` for, which is made; else those of red cells in that of the
    /// report, which is there only while it has a file. With neither none stays.
    pub fn open(asked: Option<PathBuf>, report: Option<&Path>) -> Result<Option<Self>> {
        let red = report.map(|folder| folder.join(BESIDE_REPORT));
        let all = asked.is_some();
        let Some(folder) = asked.or(red) else { return Ok(None) };
        if all {
            std::fs::create_dir_all(&folder).map_err(|error| {
                Error::Usage(format!("cannot make the folder {}: {error}", folder.display()))
            })?;
        }
        Ok(Some(Self { folder, all }))
    }

    /// The file of that cell under that seed, in a folder that is there.
    pub fn file(&self, trial: CellSpec, seed: u64) -> PathBuf {
        // Creating the file reports the error.
        let _ = std::fs::create_dir_all(&self.folder);
        self.folder.join(format!("{}-{seed}.jsonl.zst", trial.id()))
    }

    /// Removes the file unless it is kept; its path if it is. What cannot be removed does no
    /// harm.
    pub fn keep_or_remove(&self, file: &Path, is_red: bool) -> Option<String> {
        if !self.all && !is_red {
            let _ = std::fs::remove_file(file);
        }
        if !self.all {
            // Only if it is empty.
            let _ = std::fs::remove_dir(&self.folder);
        }
        file.is_file().then(|| file.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::matrix_cells;

    #[test]
    fn of_a_report_only_histories_of_red_cells_stay_and_all_if_they_are_asked_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let open = |asked: Option<PathBuf>| {
            Histories::open(asked, Some(folder.path())).expect("a folder").expect("some")
        };
        let cells = matrix_cells();
        for (histories, green, red) in
            [(open(None), false, true), (open(Some(folder.path().join("asked"))), true, true)]
        {
            for (is_red, stays) in [(false, green), (true, red)] {
                let file = histories.file(cells[0].trial(), 7);
                std::fs::write(&file, "a history").expect("written");
                assert_eq!(
                    histories.keep_or_remove(&file, is_red).is_some(),
                    stays,
                    "{}",
                    file.display()
                );
                assert_eq!(file.is_file(), stays, "{}", file.display());
            }
            assert_eq!(histories.keep_or_remove(&folder.path().join("never"), true), None);
        }
        let beside = folder.path().join(BESIDE_REPORT);
        assert_eq!(std::fs::read_dir(&beside).expect("one is in it").count(), 1);
        let histories = open(None);
        assert!(histories.keep_or_remove(&histories.file(cells[0].trial(), 7), false).is_none());
        assert!(!beside.exists(), "nothing stays, so no folder does");
        assert!(Histories::open(None, None).expect("nothing").is_none());
    }

    #[test]
    fn no_two_cells_or_tries_share_a_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let histories = Histories::open(Some(folder.path().to_owned()), None);
        let histories = histories.expect("a folder").expect("some");
        let mut files = std::collections::BTreeSet::new();
        let cells = matrix_cells();
        for cell in &cells {
            for seed in [1, 2] {
                assert!(files.insert(histories.file(cell.trial(), seed)), "{}", cell.trial());
            }
        }
        assert_eq!(files.len(), 2 * cells.len());
    }
}

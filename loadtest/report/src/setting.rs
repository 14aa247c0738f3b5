//! What the conclusion says first: which settings of a run are not the usual ones.

use loadtest_lab::cell_axes::{InjectedBug, PurchaseMode, Writer};
use loadtest_lab::results::NotApplicable;
use loadtest_lab::results::RunResults;

use crate::conclusion::{Conclusion, conclusion, of_matrix};
use crate::counted;

/// The conclusion of a comparison or of a matrix, with its settings.
pub(super) fn conclusion_of(results: &RunResults) -> Conclusion {
    let RunResults { cells, not_applicable, selection, load, .. } = results;
    let setting = mode_sentence(load.mode);
    match selection {
        None => Conclusion {
            setting: setting + &by_writer(load.writer, not_applicable),
            injected_bug: injected_bug_sentence(load.injected_bug),
            ..conclusion(cells)
        },
        Some(_) => Conclusion { setting, ..of_matrix(cells) },
    }
}

fn mode_sentence(mode: PurchaseMode) -> String {
    match mode {
        PurchaseMode::Direct => String::new(),
        PurchaseMode::Queued => {
            "Purchases ran in the mode queued, and each counts to the end of its ticket. "
                .to_owned()
        }
    }
}

fn by_writer(writer: Writer, not_applicable: &[NotApplicable]) -> String {
    if writer == Writer::Single {
        return String::new();
    }
    let none = if not_applicable.is_empty() {
        String::new()
    } else {
        format!(", and {} are n/a", counted(not_applicable.len(), "cell"))
    };
    format!("Orders were written in groups{none}. ")
}

fn injected_bug_sentence(bug: Option<InjectedBug>) -> String {
    bug.map_or(String::new(), |bug| format!("Every replica had the injected bug {}. ", bug.name()))
}

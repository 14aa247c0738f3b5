//! What the conclusion says first: which settings of a run are not the usual ones.

use loadtest_lab::cell_axes::{InjectedBug, PurchaseMode, Writer};
use loadtest_lab::fleet::{Fleet, ReplicasOf};
use loadtest_lab::results::NotApplicable;
use loadtest_lab::results::RunResults;

use crate::conclusion::{Conclusion, conclusion, of_matrix};
use crate::text::Text;

/// The conclusion of a comparison or of a matrix, with its settings.
pub(super) fn conclusion_of(results: &RunResults) -> Conclusion {
    let RunResults { cells, not_applicable, selection, load, .. } = results;
    let setting: Vec<Text> = fleet_sentences(load.fleet).chain(mode_sentence(load.mode)).collect();
    match selection {
        None => {
            let setting = setting.into_iter().chain(by_writer(load.writer, not_applicable));
            Conclusion {
                setting: Text::sentences(setting),
                injected_bug: injected_bug_sentence(load.injected_bug, load.fleet),
                ..conclusion(cells)
            }
        }
        Some(_) => Conclusion { setting: Text::sentences(setting), ..of_matrix(cells) },
    }
}

fn fleet_sentences(fleet: Fleet) -> impl Iterator<Item = Text> {
    let replicas = match fleet.replicas_of {
        ReplicasOf::Rust => None,
        ReplicasOf::Jvm => Some(Text::of("fleet_jvm")),
        ReplicasOf::Mixed => Some(Text::of("fleet_mixed")),
    };
    let bug = fleet.jvm_bug.map(|bug| Text::of("jvm_bug").with("bug", bug.name()));
    replicas.into_iter().chain(bug)
}

fn mode_sentence(mode: PurchaseMode) -> Option<Text> {
    match mode {
        PurchaseMode::Direct => None,
        PurchaseMode::Queued => Some(Text::of("mode_queued")),
    }
}

fn by_writer(writer: Writer, not_applicable: &[NotApplicable]) -> Option<Text> {
    if writer == Writer::Single {
        None
    } else if not_applicable.is_empty() {
        Some(Text::of("writer_grouped"))
    } else {
        let cells = Text::counted("cells", not_applicable.len());
        Some(Text::of("writer_grouped_without").with("cells", cells))
    }
}

fn injected_bug_sentence(bug: Option<InjectedBug>, fleet: Fleet) -> Text {
    let who = match fleet.replicas_of {
        ReplicasOf::Mixed => "rust_bug",
        ReplicasOf::Rust | ReplicasOf::Jvm => "every_replica_bug",
    };
    bug.map_or_else(Text::default, |bug| Text::of(who).with("bug", bug.name()))
}

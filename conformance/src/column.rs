//! A column of the table "By kind" in `docs/locks/cost.md`, to be copied there.

use distlock::LockKind;

/// A line for each of these kinds, with its figure.
pub fn column(title: &str, figures: &[(LockKind, String)]) -> String {
    let lines = figures.iter().map(|(kind, figure)| format!("{title} | {kind} | {figure}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_has_a_line_for_each_kind_in_its_order() {
        let figures = [(LockKind::Zookeeper, "1.7, 8.5 ms"), (LockKind::Fair, "0.8, 4.9 ms")];
        assert_eq!(
            column("hand-off", &figures.map(|(kind, text)| (kind, text.to_owned()))),
            "hand-off | zookeeper | 1.7, 8.5 ms\nhand-off | fair | 0.8, 4.9 ms"
        );
    }
}

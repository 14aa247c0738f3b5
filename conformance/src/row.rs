//! A row of the table with which `docs/locks.md` begins, to be pasted there.

use distlock::LockKind;

/// Its columns: the databases' kinds, those in Redis, `ZooKeeper`'s.
const COLUMNS: [&[LockKind]; 3] = [
    &[LockKind::MysqlRow, LockKind::MysqlNamed, LockKind::MysqlTable],
    &[LockKind::Redisson, LockKind::Fair, LockKind::LuaRelease],
    &[LockKind::Zookeeper],
];

/// The row of that title, with the figures of those kinds that are in the table.
pub fn row(title: &str, figures: &[(LockKind, String)]) -> String {
    let figure = |kind: LockKind| figures.iter().find(|(of, _)| *of == kind);
    let cell = |kinds: &[LockKind]| {
        let named = kinds.iter().filter_map(|kind| figure(*kind)).map(|(kind, figure)| {
            if kinds.len() > 1 { format!("`{kind}` {figure}") } else { figure.clone() }
        });
        named.collect::<Vec<_>>().join("; ")
    };
    format!("| {title} | {} |", COLUMNS.map(cell).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_figures_of_each_column_in_its_order_and_no_others() {
        let figures = [
            (LockKind::Zookeeper, "1.7, 8.5 ms"),
            (LockKind::Fair, "0.8, 4.9 ms"),
            (LockKind::Redisson, "1.0, 5.0 ms"),
            (LockKind::SetNx, "9 ms"),
        ];
        assert_eq!(
            row("hand-off", &figures.map(|(kind, text)| (kind, text.to_owned()))),
            "| hand-off |  | `redisson` 1.0, 5.0 ms; `fair` 0.8, 4.9 ms | 1.7, 8.5 ms |"
        );
    }
}

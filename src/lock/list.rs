//! `seckill locks`: what each kind guarantees, and its known flaws.

use comfy_table::{Table, TableStyle};
use distlock::{Guarantees, HoldKind, LockKind, Synchronizer, guarantees};
use serde_json::{Value, json};

/// The columns of a kind, with their names.
type Columns = [(&'static str, String); 8];

fn columns(of: &Guarantees) -> Columns {
    let columns = all_columns(of);
    if of.hold != HoldKind::WeakestMember {
        return columns;
    }
    // Everything else depends on the members as well.
    columns.map(|(name, value)| if name == "hold" { (name, value) } else { (name, String::new()) })
}

fn all_columns(of: &Guarantees) -> Columns {
    [
        ("hold", of.hold.to_string()),
        ("renewal", of.renewal.to_string()),
        ("wake", of.wake.to_string()),
        ("owner checked", of.owner_checked.to_string()),
        ("idempotent", of.idempotent.to_string()),
        ("reentrant", of.reentrant.to_string()),
        ("fair", of.fair.to_string()),
        ("fencing", of.fencing.to_string()),
    ]
}

/// All kinds, as text for people or as JSON.
pub fn list(as_json: bool) -> String {
    if as_json { format!("{:#}", as_value()) } else { as_text() }
}

fn as_value() -> Value {
    let locks = LockKind::ALL.map(|kind| {
        let guarantees = guarantees(kind);
        let (what, flaws) = (kind.summary(), guarantees.flaws);
        let mut lock = json!({"kind": kind.as_str(), "what": what, "flaws": flaws});
        for (name, value) in columns(&guarantees) {
            lock[name.replace(' ', "_")] = value.into();
        }
        lock
    });
    let synchronizers = Synchronizer::ALL
        .map(|one| json!({"name": one.as_str(), "what": one.summary(), "flaws": one.flaws()}));
    json!({"locks": locks, "synchronizers": synchronizers})
}

fn as_text() -> String {
    let names = columns(&guarantees(LockKind::ALL[0])).map(|(name, _)| name);
    let mut locks = table();
    locks.set_header(std::iter::once("kind").chain(names));
    let mut flaws = Vec::new();
    for kind in LockKind::ALL {
        let guarantees = guarantees(kind);
        let values = columns(&guarantees).map(|(_, value)| value);
        locks.add_row(std::iter::once(kind.to_string()).chain(values));
        flaws.push((kind.as_str(), guarantees.flaws));
    }
    let mut others = table();
    for one in Synchronizer::ALL {
        others.add_row([one.as_str(), one.summary()]);
        flaws.push((one.as_str(), one.flaws()));
    }
    let mut known = table();
    for (name, flaws) in flaws {
        for (number, flaw) in flaws.iter().enumerate() {
            known.add_row([if number == 0 { name } else { "" }, *flaw]);
        }
    }
    let parts = [text(locks), text(others), "Known flaws:".to_owned(), text(known)];
    parts.join("\n\n")
}

/// A table whose columns have no lines between them.
pub(super) fn table() -> Table {
    let mut table = Table::new();
    table.load_style(TableStyle::new());
    table
}

pub(super) fn text(mut table: Table) -> String {
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

//! `seckill lock ls`: the locks that are held, of one kind or of all.
//!
//! Kinds whose keys have one form cannot be told apart on the server. With `all` they are read once
//! and share a row. A key that is no lock of one form may be one of another: it is damaged only if
//! no form fits.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use distlock::{Backend, LockKind, LockSnapshot, LockState, RedisKeys};
use serde_json::json;

use super::connect::connect_inspector;
use super::failure::{BAD_USAGE, Failure, SERVER_FAILED, ended};
use super::list::{table, text};
use super::snapshot_view as view;
use crate::config::LockLs;

/// The locks of one page: few enough for one answer, enough for few round trips.
const PAGE: usize = 500;

/// Kinds that are read together.
struct KindGroup {
    kinds: Vec<LockKind>,
    /// Whether the lock's name is its key, which other groups of the backend read as well.
    shares_keys: bool,
}

/// What was read.
#[derive(Default)]
struct LockTable {
    /// By name, and by the number of the group.
    rows: BTreeMap<(String, usize), LockSnapshot>,
    /// Kinds that cannot be listed, with the reason.
    unlisted: Vec<(&'static str, String)>,
    failure: Option<Failure>,
}

/// Prints the list. Returns the exit code, and the line for stderr if there is one.
pub async fn list_held(config: &LockLs) -> (u8, Option<String>) {
    ended(print(config).await)
}

async fn print(config: &LockLs) -> Result<u8, Failure> {
    let groups = groups(config)?;
    let mut table = LockTable::default();
    for (number, group) in groups.iter().enumerate() {
        let kind = group.kinds[0];
        if let Err(failure) = read(config, kind, number, &mut table).await {
            if config.kind.0.is_some() {
                return Err(failure);
            }
            if failure.code == BAD_USAGE {
                table.unlisted.push((kind.as_str(), failure.sentence));
            } else {
                table.failure = Some(failure);
            }
        }
    }
    drop_misread(&groups, &mut table.rows);
    let printed = if config.json {
        format!("{:#}", as_json(&groups, &table))
    } else {
        as_text(&groups, &table)
    };
    writeln!(io::stdout(), "{printed}")
        .map_err(|error| Failure::new(SERVER_FAILED, format!("cannot write to stdout: {error}")))?;
    table.failure.map_or(Ok(0), Err)
}

/// The kinds to read, those with one form of keys together.
fn groups(config: &LockLs) -> Result<Vec<KindGroup>, Failure> {
    let refused = |sentence| Failure::new(BAD_USAGE, sentence);
    if let Some(kind) = config.kind.0 {
        config.addresses.check_inspection(kind).map_err(refused)?;
        return Ok(vec![KindGroup { kinds: vec![kind], shares_keys: false }]);
    }
    let mut groups: Vec<(Option<&str>, KindGroup)> = Vec::new();
    for kind in LockKind::ALL.into_iter().filter(|kind| config.addresses.has_servers_of(*kind)) {
        config.addresses.check_inspection(kind).map_err(refused)?;
        let form = match kind.redis_keys() {
            Some(RedisKeys::Set | RedisKeys::SetNx) => Some("string"),
            Some(RedisKeys::Hash) => Some("hash"),
            Some(RedisKeys::Fair | RedisKeys::ReadWrite) | None => None,
        };
        let same = groups.iter_mut().find(|(known, _)| form.is_some() && *known == form);
        if let Some((_, group)) = same {
            group.kinds.push(kind);
        } else {
            let shares_keys = form.is_some() || kind.backend() == Backend::IndependentRedis;
            groups.push((form, KindGroup { kinds: vec![kind], shares_keys }));
        }
    }
    if groups.is_empty() {
        let need = "no server is given: set REDIS_URL, DATABASE_URL, REDLOCK_URLS or ZOOKEEPER_URL";
        return Err(refused(need.to_owned()));
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

async fn read(
    config: &LockLs,
    kind: LockKind,
    number: usize,
    table: &mut LockTable,
) -> Result<(), Failure> {
    let locks = connect_inspector(kind, &config.addresses).await?;
    let mut cursor = None;
    loop {
        let page = locks.list(&config.prefix, cursor, PAGE).await;
        let page = page.map_err(|error| Failure::about(kind, &error))?;
        for lock in page.locks {
            table.rows.insert((lock.name.clone(), number), lock);
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Drops what is damaged as one form and fine as another.
fn drop_misread(groups: &[KindGroup], rows: &mut BTreeMap<(String, usize), LockSnapshot>) {
    let backend = |number: usize| groups[number].kinds[0].backend();
    let is_damaged = |lock: &LockSnapshot| matches!(lock.state, LockState::Damaged(_));
    let mut seen: HashSet<(String, bool)> = HashSet::new();
    for ((name, number), lock) in rows.iter() {
        if groups[*number].shares_keys && !is_damaged(lock) {
            seen.insert((name.clone(), backend(*number) == Backend::Redis));
        }
    }
    rows.retain(|(name, number), lock| {
        if !groups[*number].shares_keys || !is_damaged(lock) {
            return true;
        }
        // Of several damaged rows of one key the first is enough.
        seen.insert((name.clone(), backend(*number) == Backend::Redis))
    });
}

fn kinds(group: &KindGroup) -> Vec<&'static str> {
    group.kinds.iter().map(|kind| kind.as_str()).collect()
}

fn as_json(groups: &[KindGroup], table: &LockTable) -> serde_json::Value {
    let row = |((_, number), lock): (&(String, usize), &LockSnapshot)| {
        view::as_json(lock, &kinds(&groups[*number]))
    };
    let unlisted = table.unlisted.iter().map(|(kind, why)| json!({"kind": kind, "reason": why}));
    json!({
        "locks": table.rows.iter().map(row).collect::<Vec<_>>(),
        "unlisted": unlisted.collect::<Vec<_>>(),
    })
}

fn as_text(groups: &[KindGroup], table_of_locks: &LockTable) -> String {
    let mut rows = table();
    rows.set_header(["name", "kind", "state", "holder", "lease", "waiters"]);
    for ((name, number), lock) in &table_of_locks.rows {
        let holders = lock.state.holders();
        let holder = match holders {
            [] => view::reason(&lock.state).unwrap_or_default().to_owned(),
            [one] => one.owner.clone().unwrap_or_else(|| one.id.clone()),
            more => format!("{} holders", more.len()),
        };
        rows.add_row([
            name.escape_debug().to_string(),
            kinds(&groups[*number]).join("|"),
            view::state(&lock.state).to_owned(),
            holder.escape_debug().to_string(),
            holders.first().map(|one| view::lease(one.lease)).unwrap_or_default(),
            view::waiters(&lock.waiters),
        ]);
    }
    let mut lines = vec![text(rows)];
    for (kind, why) in &table_of_locks.unlisted {
        lines.push(format!("{kind} is not listed: {why}"));
    }
    lines.join("\n")
}

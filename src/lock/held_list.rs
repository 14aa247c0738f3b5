//! `seckill lock ls`: the locks that are held, of one kind or of all.
//!
//! Kinds whose keys have one form cannot be distinguished on the server. With `all` they are read
//! once and share a row. A key that is no lock of one form may be one of another: it is damaged
//! only if no form fits. Kinds that fail leave the list incomplete: the others are printed all the
//! same.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, Write};

use distlock::{
    Backend, LockError, LockKind, LockSnapshot, LockState, Locks, RedisKeys, RemainingLease,
    guarantees,
};
use serde_json::{Value, json};

use super::connect::connect_inspector;
use super::deadlocks::list_deadlocks;
use super::failure::{BAD_USAGE, CANNOT_LIST, Failure, SERVER_FAILED, ended};
use super::list::{table, text};
use super::snapshot_view as view;
use super::watch::watch;
use crate::config::LockLs;

/// The locks of one page: few enough for one answer, enough for few round trips.
const PAGE: usize = 500;

/// The least time in ms since 1970 that is taken for the value of a `getset-timestamp`: in 2001.
const MIN_TIMESTAMP_MS: u64 = 1_000_000_000_000;

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
    unlisted: Vec<(LockKind, String)>,
    /// By the number of the group, why its locks are not all there.
    failures: Vec<(usize, Failure)>,
}

/// Kinds to read, and their connections.
pub(super) struct LockLists<'a> {
    config: &'a LockLs,
    groups: Vec<KindGroup>,
    /// By group, once it was connected to.
    opened: Vec<Option<Locks>>,
}

/// Prints the list. Returns the exit code, and the line for stderr if there is one.
pub async fn list_held(config: &LockLs) -> (u8, Option<String>) {
    ended(match config {
        LockLs { deadlocks: true, .. } => list_deadlocks(config).await,
        LockLs { watch: true, .. } => watch(config).await,
        _ => print(config).await,
    })
}

async fn print(config: &LockLs) -> Result<u8, Failure> {
    let mut lists = LockLists::new(config)?;
    let table = lists.read().await?;
    // An empty table would say that no lock is held.
    if config.json || table.failures.is_empty() || !table.rows.is_empty() {
        let printed = if config.json {
            format!("{:#}", as_json(&lists.groups, &table))
        } else {
            as_text(&lists, &table)
        };
        print_out(&printed)?;
    }
    ending(table.failures)
}

pub(super) fn print_out(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{text}")
        .map_err(|error| Failure::new(SERVER_FAILED, format!("cannot write to stdout: {error}")))
}

impl<'a> LockLists<'a> {
    /// Connects to no server yet.
    pub(super) fn new(config: &'a LockLs) -> Result<Self, Failure> {
        let groups = groups(config)?;
        let opened = groups.iter().map(|_| None).collect();
        Ok(Self { config, groups, opened })
    }

    /// Reads all kinds. Fails only if the one kind that was asked for cannot be listed.
    async fn read(&mut self) -> Result<LockTable, Failure> {
        let mut table = LockTable::default();
        for (number, (group, opened)) in self.groups.iter().zip(&mut self.opened).enumerate() {
            if let Err(failure) = read(self.config, group, opened, (number, &mut table)).await {
                table.failures.push((number, failure));
            }
        }
        if let (Some(kind), Some((_, why))) = (self.config.kind.0, table.unlisted.first()) {
            return Err(Failure::new(CANNOT_LIST, format!("{kind}: {why}")));
        }
        drop_misread(&self.groups, &mut table.rows);
        Ok(table)
    }

    /// Reads all kinds, as text or as JSON in a line, with what failed.
    pub(super) async fn draw(&mut self) -> Result<String, Failure> {
        let table = self.read().await?;
        if self.config.json {
            return Ok(as_json(&self.groups, &table).to_string());
        }
        let text = as_text(self, &table);
        Ok(match ending(table.failures) {
            Ok(_) => text,
            Err(failure) => format!("{text}\nnot complete: {}", failure.sentence),
        })
    }
}

/// The largest code of the failures, with all their sentences.
fn ending(failures: Vec<(usize, Failure)>) -> Result<u8, Failure> {
    let Some(code) = failures.iter().map(|(_, failure)| failure.code).max() else { return Ok(0) };
    let mut sentences: Vec<String> = Vec::new();
    for (_, failure) in failures {
        if !sentences.contains(&failure.sentence) {
            sentences.push(failure.sentence);
        }
    }
    Err(Failure::new(code, sentences.join("; ")))
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
            Some(RedisKeys::Timestamp) => Some("timestamp"),
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
        let need = "no server is given: set REDIS_URL, DATABASE_URL, REDLOCK_URLS, \
                    ZOOKEEPER_URL, ETCD_ENDPOINTS or NATS_URL";
        return Err(refused(need.to_owned()));
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

async fn read(
    config: &LockLs,
    group: &KindGroup,
    opened: &mut Option<Locks>,
    (number, table): (usize, &mut LockTable),
) -> Result<(), Failure> {
    let kind = group.kinds[0];
    let locks = match opened {
        Some(locks) => locks,
        None => opened.insert(connect_inspector(kind, &config.addresses).await?),
    };
    let mut cursor = None;
    loop {
        let page = match locks.list(&config.prefix, cursor, PAGE).await {
            Err(error @ LockError::Unsupported(_)) => {
                table.unlisted.push((kind, error.to_string()));
                return Ok(());
            }
            page => page.map_err(|error| Failure::about(kind, &error))?,
        };
        for lock in page.locks {
            table.rows.insert((lock.name.clone(), number), lock);
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}

/// Whether a string is the value of a `getset-timestamp`: as an owner it would be held for ever.
/// The group of that kind knows whether the time has passed.
fn is_timestamp(group: &KindGroup, lock: &LockSnapshot) -> bool {
    let [holder] = lock.state.holders() else { return false };
    let owner = holder.owner.as_deref().and_then(|owner| owner.parse::<u64>().ok());
    matches!(group.kinds[0].redis_keys(), Some(RedisKeys::Set | RedisKeys::SetNx))
        && holder.lease == RemainingLease::NoExpiry
        && owner.is_some_and(|owner| owner >= MIN_TIMESTAMP_MS)
}

/// Drops what is damaged, or of another meaning, as one form and fine as another.
fn drop_misread(groups: &[KindGroup], rows: &mut BTreeMap<(String, usize), LockSnapshot>) {
    let backend = |number: usize| groups[number].kinds[0].backend();
    let is_damaged = |lock: &LockSnapshot| matches!(lock.state, LockState::Damaged(_));
    let mut seen: HashSet<(String, bool)> = HashSet::new();
    rows.retain(|(name, number), lock| {
        let is_misread = groups[*number].shares_keys && is_timestamp(&groups[*number], lock);
        if is_misread {
            seen.insert((name.clone(), true));
        }
        !is_misread
    });
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

/// A row says how its kinds are renewed, if that is the same for all.
fn row_as_json(group: &KindGroup, lock: &LockSnapshot) -> Value {
    let mut row = view::as_json(lock, &kinds(group));
    if group.kinds.iter().any(|kind| guarantees(*kind).renewal != lock.renewal) {
        row["renewal"] = Value::Null;
    }
    row
}

fn as_json(groups: &[KindGroup], table: &LockTable) -> Value {
    let rows = table.rows.iter().map(|((_, group), lock)| row_as_json(&groups[*group], lock));
    let unlisted =
        table.unlisted.iter().map(|(kind, why)| json!({"kind": kind.as_str(), "reason": why}));
    let failures = table.failures.iter().map(|(group, failure)| {
        let (kinds, reason) = (kinds(&groups[*group]), &failure.sentence);
        json!({"kinds": kinds, "exit_code": failure.code, "reason": reason})
    });
    json!({
        "complete": table.failures.is_empty(),
        "locks": rows.collect::<Vec<_>>(),
        "unlisted": unlisted.collect::<Vec<_>>(),
        "failures": failures.collect::<Vec<_>>(),
    })
}

fn as_text(lists: &LockLists<'_>, table_of_locks: &LockTable) -> String {
    let groups = &lists.groups;
    let mut rows = table();
    rows.set_header(["name", "kind", "state", "holder", "lease", "waiters"]);
    for ((name, number), lock) in &table_of_locks.rows {
        let holders = lock.state.holders();
        let holder = match holders {
            [] => view::reason(&lock.state).unwrap_or_default().to_owned(),
            [one] => view::owner(one),
            more => format!("{} holders", more.len()),
        };
        rows.add_row([
            name.escape_debug().to_string(),
            kinds(&groups[*number]).join("|"),
            view::state(&lock.state).to_owned(),
            holder.escape_debug().to_string(),
            holders.first().map(|one| view::lease(one.lease)).unwrap_or_default(),
            view::waiters(lock),
        ]);
    }
    let mut lines = vec![text(rows)];
    if table_of_locks.rows.is_empty() && table_of_locks.failures.is_empty() {
        lines.push(nothing_listed(&lists.config.prefix));
    }
    for (kind, why) in &table_of_locks.unlisted {
        lines.push(format!("{kind} is not listed: {why}"));
    }
    lines.join("\n")
}

/// Of a list without rows.
fn nothing_listed(prefix: &str) -> String {
    if prefix.is_empty() {
        return "no lock is held".to_owned();
    }
    let prefix = prefix.escape_debug();
    format!("no lock is held whose name begins with `{prefix}`; --prefix '' lists all")
}

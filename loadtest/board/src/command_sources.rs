//! Which line of the repository sends a command. The sources are compiled in as text, so lines are
//! those of the program that runs.

use std::fmt::Write as _;

use serde::Serialize;
use sha1::{Digest as _, Sha1};

use crate::commands::short;

/// A file of the repository with its text.
pub(crate) type SourceFile = (&'static str, &'static str);

macro_rules! files {
    ($($path:literal),+ $(,)?) => {
        [$(($path, include_str!(concat!("../../../", $path)))),+]
    };
}

/// The scripts that locks send.
pub(crate) const SCRIPTS: [SourceFile; 30] = files![
    "lua/lock/exchange_waits.lua",
    "lua/lock/expirable_acquire.lua",
    "lua/lock/expirable_available.lua",
    "lua/lock/expirable_release.lua",
    "lua/lock/expirable_renew.lua",
    "lua/lock/fair_acquire.lua",
    "lua/lock/fair_release.lua",
    "lua/lock/inspect_keys.lua",
    "lua/lock/latch_count_down.lua",
    "lua/lock/redisson_abandon.lua",
    "lua/lock/redisson_acquire.lua",
    "lua/lock/redisson_force_unlock.lua",
    "lua/lock/redisson_release.lua",
    "lua/lock/redlock_acquire.lua",
    "lua/lock/redlock_counts.lua",
    "lua/lock/redlock_has_no_expiry.lua",
    "lua/lock/reentrant_acquire.lua",
    "lua/lock/reentrant_release.lua",
    "lua/lock/release_if_owner.lua",
    "lua/lock/renew.lua",
    "lua/lock/renew_holds.lua",
    "lua/lock/renew_if_owner.lua",
    "lua/lock/rw_read.lua",
    "lua/lock/rw_release.lua",
    "lua/lock/rw_write.lua",
    "lua/lock/semaphore_acquire.lua",
    "lua/lock/semaphore_release.lua",
    "lua/lock/synchronizer_delete.lua",
    "lua/lock/synchronizer_number.lua",
    "lua/lock/synchronizer_set.lua",
];

/// The files whose lines send other commands.
const FILES: [SourceFile; 22] = files![
    "distlock/src/mysql/fence.rs",
    "distlock/src/mysql/named.rs",
    "distlock/src/mysql/named_session.rs",
    "distlock/src/mysql/row.rs",
    "distlock/src/mysql/table_lock.rs",
    "distlock/src/mysql/table_lock_renewer.rs",
    "distlock/src/mysql/token.rs",
    "distlock/src/redis/getset_timestamp.rs",
    "distlock/src/redis/idempotent_call.rs",
    "distlock/src/redis/one_key.rs",
    "distlock/src/redis/owner_check.rs",
    "distlock/src/redis/set_nx.rs",
    "distlock/src/redis/setnx_expire.rs",
    "distlock/src/redis/signal/link.rs",
    "distlock/src/zookeeper/contender.rs",
    "distlock/src/zookeeper/session.rs",
    "src/store/effects.rs",
    "src/store/idempotency.rs",
    "src/store/order_ids.rs",
    "src/store/revocations.rs",
    "src/store/session.rs",
    "src/store/tables.rs",
];

/// The commands that publish, and how scripts call the one that they are given.
const PUBLISHES: [&str; 2] = ["PUBLISH", "SPUBLISH"];
const GIVEN_CALLS: [&str; 2] = ["call(publish", "call(argv["];

/// A row for each form of a command: its begin, the lock that sends it so (`-` for any), the file,
/// and a part of the line.
const FORMS: &str = include_str!("command_forms.tsv");

/// A line of the repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SourceLine {
    /// The path, from the root of the repository.
    path: &'static str,
    /// From 1.
    line: usize,
    text: String,
}

/// A form of a command, with its line.
#[derive(Debug)]
struct CommandForm {
    begin: &'static str,
    source: SourceLine,
}

/// Finds lines for the commands of one kind of lock.
#[derive(Debug)]
pub(crate) struct SourceIndex {
    /// The digests of the scripts, by which they are called.
    digests: Vec<String>,
    forms: Vec<CommandForm>,
}

impl SourceIndex {
    /// The index for lanes with that kind of lock.
    pub(crate) fn new(lock: &str) -> Self {
        let forms = forms().filter(|(_, of, ..)| *of == "-" || *of == lock);
        let forms = forms.filter_map(|(begin, _, path, part)| {
            let source = line_with(path, part)?;
            Some(CommandForm { begin, source })
        });
        let mut forms: Vec<_> = forms.collect();
        // The longest begin says most.
        forms.sort_by_key(|form| std::cmp::Reverse(form.begin.len()));
        Self { digests: SCRIPTS.iter().map(|(_, code)| digest(code)).collect(), forms }
    }

    /// The script of that digest, or of that text.
    pub(crate) fn script(&self, body: &str) -> Option<usize> {
        let of_digest = self.digests.iter().position(|digest| digest == body);
        of_digest.or_else(|| SCRIPTS.iter().position(|(_, code)| *code == body))
    }

    /// The line that sends that command to Redis.
    pub(crate) fn line_of_redis(&self, text: &str) -> Option<SourceLine> {
        self.line_of(&format!("redis {text}"))
    }

    /// The line that sends that statement.
    pub(crate) fn line_of_sql(&self, text: &str) -> Option<SourceLine> {
        self.line_of(&format!("sql {text}"))
    }

    /// The line that sends that request to `ZooKeeper`.
    pub(crate) fn line_of_zookeeper(&self, text: &str) -> Option<SourceLine> {
        self.line_of(&format!("zookeeper {text}"))
    }

    fn line_of(&self, text: &str) -> Option<SourceLine> {
        let begins = |form: &&CommandForm| {
            let start = text.get(..form.begin.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(form.begin))
        };
        self.forms.iter().find(begins).map(|form| form.source.clone())
    }
}

/// The file of that path with its text, if it is one of those that send commands.
pub(crate) fn source_file(path: &str) -> Option<SourceFile> {
    SCRIPTS.into_iter().chain(FILES).find(|(known, _)| *known == path)
}

/// The name of the script's file.
pub(crate) fn script_name(script: usize) -> &'static str {
    let path = SCRIPTS[script].0;
    path.rsplit('/').next().unwrap_or(path)
}

/// The first line of the script that calls a command.
pub(crate) fn script_begin(script: usize) -> SourceLine {
    let (path, code) = SCRIPTS[script];
    let calls = |line: &str| line.contains("call(") && !line.trim_start().starts_with("--");
    let at = code.lines().position(calls).unwrap_or(0);
    source_line(path, code, at)
}

/// The line of the script that calls that command, after that line (from 0) if there is one;
/// with the line's own index.
pub(crate) fn line_of_call(script: usize, after: usize, name: &str) -> Option<(SourceLine, usize)> {
    let (path, code) = SCRIPTS.get(script)?;
    let call = format!("call('{}'", name.to_ascii_lowercase());
    // On a cluster another command publishes, so scripts are given its name.
    let given: &[&str] = if PUBLISHES.contains(&name) { &GIVEN_CALLS } else { &[] };
    let calls_it = |line: &str| {
        let line = line.to_ascii_lowercase();
        line.contains(&call) || given.iter().any(|call| line.contains(call))
    };
    let calls = code.lines().enumerate().filter(|(_, line)| calls_it(line));
    let calls: Vec<usize> = calls.map(|(at, _)| at).collect();
    let next = calls.iter().find(|at| **at > after).or(calls.first())?;
    Some((source_line(path, code, *next), *next))
}

/// The rows of [`FORMS`].
pub(crate) fn forms()
-> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
    FORMS.lines().filter_map(|row| {
        let mut cells = row.split('\t');
        Some((cells.next()?, cells.next()?, cells.next()?, cells.next()?))
    })
}

/// The only line of that file with that part; `None` if there is none, or are several.
pub(crate) fn line_with(path: &str, part: &str) -> Option<SourceLine> {
    let (path, text) = FILES.iter().find(|(known, _)| *known == path)?;
    let mut found = text.lines().enumerate().filter(|(_, line)| line.contains(part));
    let (at, _) = found.next()?;
    found.next().is_none().then(|| source_line(path, text, at))
}

fn source_line(path: &'static str, text: &str, at: usize) -> SourceLine {
    let line = text.lines().nth(at).unwrap_or_default();
    SourceLine { path, line: at + 1, text: short(line.trim()) }
}

/// The digest by which Redis knows a script.
pub(crate) fn digest(code: &str) -> String {
    Sha1::digest(code.as_bytes()).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

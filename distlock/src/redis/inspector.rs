//! Reads the locks of the kinds in Redis, and frees them by force.
//!
//! A lock of one key is read in one step. Those of several keys are read by a pipeline, and the
//! server may carry out other commands in between: a key that was deleted meanwhile is free. What a
//! node of a cluster redirects is read again by commands that follow redirections.
//!
//! A page is read by several pipelines at once, so that the server works on the next ones while the
//! answer to one is understood. Meanwhile the names of the next page are asked for.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join, try_join_all};
use redis::{RedisError, RedisResult, Value};
use uuid::Uuid;

use super::holds::HoldScripts;
use super::inspect::ANY_OWNER;
use super::key_form::{KeyForm, LockReading, MAX_KEYS_OF_CALL, members};
use super::scan::ScanPosition;
use super::script::LuaScript;
use super::signal::WAKE_ONE;
use super::{RedisConnection, publish_command};
use crate::inspector::{CursorPosition, ListCursor, NO_LOCK_NAME};
use crate::kinds::redis::redisson::channel;
use crate::{
    LockError, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState, Owner,
    Request, guarantees,
};

const RELEASE_SCRIPT: &str = include_str!("../../lua/release_if_owner.lua");
const FORCE_UNLOCK_SCRIPT: &str = include_str!("../../lua/redisson_force_unlock.lua");

/// Why a lock of Redisson's `RReadWriteLock` is not freed here.
const READ_WRITE_OF_REDISSON: LockError =
    LockError::Unsupported("Redisson itself to free a lock of its RReadWriteLock (forceUnlock)");

/// Reads the locks of one kind.
pub(crate) struct RedisInspector {
    kind: LockKind,
    connection: RedisConnection,
    form: KeyForm,
    /// The scripts of kinds that name each hold.
    scripts: Option<Arc<HoldScripts>>,
}

impl RedisInspector {
    /// Of a kind whose lock is one key.
    pub(crate) fn of_key(
        kind: LockKind,
        connection: &RedisConnection,
        form: KeyForm,
    ) -> Arc<dyn LockInspector> {
        Arc::new(Self { kind, connection: connection.clone(), form, scripts: None })
    }

    /// Of a kind with holds in sorted sets.
    pub(crate) fn of_holds(
        kind: LockKind,
        connection: &RedisConnection,
        form: KeyForm,
        scripts: &Arc<HoldScripts>,
    ) -> Arc<dyn LockInspector> {
        let scripts = Some(Arc::clone(scripts));
        Arc::new(Self { kind, connection: connection.clone(), form, scripts })
    }

    /// Reads these locks, which that server has, or had.
    async fn read(
        &self,
        connection: RedisConnection,
        names: &[LockName],
    ) -> RedisResult<Vec<LockSnapshot>> {
        let parts = names.chunks(MAX_KEYS_OF_CALL);
        let parts = try_join_all(parts.map(|names| self.read_part(connection.clone(), names)));
        Ok(parts.await?.into_iter().flatten().collect())
    }

    /// Reads them by one pipeline.
    async fn read_part(
        &self,
        mut connection: RedisConnection,
        names: &[LockName],
    ) -> RedisResult<Vec<LockSnapshot>> {
        let mut answers = self.ask(&mut connection, names, false).await?;
        if answers.iter().any(is_unknown_script) {
            answers = self.ask(&mut connection, names, true).await?;
        }
        let mut answers = answers.into_iter();
        let (mut locks, mut redirected) = (Vec::with_capacity(names.len()), Vec::new());
        for names in names.chunks(self.locks_at_once()) {
            let answers: Vec<_> = answers.by_ref().take(self.form.answers()).collect();
            match self.form.read(answers, names.len()) {
                Ok(readings) => {
                    let each = names.iter().zip(readings);
                    locks.extend(each.map(|(name, reading)| self.snapshot(name, reading)));
                }
                Err(error) if must_be_sent_again(&error) => redirected.extend(names),
                Err(error) => return Err(error),
            }
        }
        locks.extend(try_join_all(redirected.into_iter().map(|it| self.read_alone(it))).await?);
        Ok(locks)
    }

    /// The answers to the commands that read them. A script is sent as a whole, or as its digest.
    async fn ask(
        &self,
        connection: &mut RedisConnection,
        names: &[LockName],
        sends_script: bool,
    ) -> RedisResult<Vec<RedisResult<Value>>> {
        let mut pipeline = redis::pipe();
        for (at, names) in names.chunks(self.locks_at_once()).enumerate() {
            for command in self.form.commands(names, sends_script && at == 0) {
                pipeline.add_command(command);
            }
        }
        pipeline.ignore_errors().query_async(connection).await
    }

    fn locks_at_once(&self) -> usize {
        self.form.locks_at_once(self.connection.is_cluster())
    }

    /// Reads a lock by one command after the other, wherever its keys are.
    async fn read_alone(&self, name: &LockName) -> RedisResult<LockSnapshot> {
        let mut answers = Vec::with_capacity(self.form.answers());
        for command in self.form.commands(std::slice::from_ref(name), true) {
            answers.push(command.query_async(&mut self.connection.clone()).await);
        }
        let reading = self.form.read(answers, 1)?.pop().flatten();
        Ok(self.snapshot(name, reading))
    }

    fn snapshot(&self, name: &LockName, reading: Option<LockReading>) -> LockSnapshot {
        let reading = reading.unwrap_or_else(|| damaged("the key is no lock of this kind"));
        self.with(name.as_str().to_owned(), reading)
    }

    fn with(&self, name: String, reading: LockReading) -> LockSnapshot {
        let (kind, renewal) = (self.kind.as_str(), guarantees(self.kind).renewal);
        let LockReading { state, waiters, has_more_waiters } = reading;
        LockSnapshot { kind, name, state, waiters, has_more_waiters, renewal }
    }

    /// The names of locks with these keys, and what is shown of keys that have no name.
    fn names(&self, prefix: &str, keys: Vec<Vec<u8>>) -> (Vec<LockName>, Vec<LockSnapshot>) {
        let (mut names, mut locks) = (Vec::new(), Vec::new());
        for key in keys {
            let text = String::from_utf8_lossy(&key);
            let Some(name) = self.form.name(&text) else { continue };
            if !name.starts_with(prefix) {
                continue;
            }
            match LockName::new(name) {
                Ok(name) if text.as_bytes() == key => names.push(name),
                _ => {
                    let key = key.escape_ascii().to_string();
                    let name = self.form.name(&key).unwrap_or(&key).to_owned();
                    locks.push(self.with(name, damaged(NO_LOCK_NAME)));
                }
            }
        }
        // Two keys of holds of one lock are next to each other only by chance.
        names.dedup();
        (names, locks)
    }

    async fn holds(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        Ok(self.inspect(name).await?.state.holders().iter().any(|holder| holder.id == id))
    }

    async fn release_members(&self, name: &LockName, owner: &str) -> Result<bool, LockError> {
        let Some(scripts) = &self.scripts else { return Ok(false) };
        let mut released = false;
        for key in self.form.hold_keys(name) {
            let mut reading = redis::pipe();
            reading.zrange_withscores(&key, 0, -1).pttl(&key);
            let answers: Vec<Value> = reading.query_async(&mut self.connection.clone()).await?;
            for (member, _) in members(&answers).unwrap_or_default() {
                // What is no such text is no hold of that owner.
                let member = String::from_utf8_lossy(&member);
                let Some((id, whose)) = member.split_once(':') else { continue };
                if whose != owner || id.is_empty() {
                    continue;
                }
                let (stored, owner) = (id.to_owned(), Owner::from_text(owner));
                let (name, id, lease) = (name.clone(), Uuid::nil(), Duration::ZERO);
                let request = Request { name, owner, may_hold: false, id, lease };
                scripts.begin_as(stored, request).abandon().await?;
                released = true;
            }
        }
        Ok(released)
    }
}

fn damaged(why: &str) -> LockReading {
    LockReading { state: LockState::Damaged(why.to_owned()), ..LockReading::default() }
}

/// Whether the server has not carried out a command that it may carry out at another place, or with
/// the text of its script.
fn must_be_sent_again(error: &RedisError) -> bool {
    let codes = ["MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN", "NOSCRIPT"];
    error.code().is_some_and(|code| codes.contains(&code))
}

fn is_unknown_script(answer: &RedisResult<Value>) -> bool {
    answer.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT"))
}

impl LockInspector for RedisInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move {
            let found = self.read(self.connection.clone(), std::slice::from_ref(name)).await;
            let found = found.map_err(|error| self.form.failure(error))?;
            found
                .into_iter()
                .next()
                .ok_or_else(|| LockError::Backend("Redis did not answer".into()))
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            let mut position = match cursor {
                Some(ListCursor(CursorPosition::Scan(position))) => position,
                _ => ScanPosition::start(&self.connection).await?,
            };
            let pattern = self.form.pattern(prefix);
            let Some((server, keys)) = position.next(pattern.as_bytes(), limit).await? else {
                return Ok(LockPage { locks: Vec::new(), next: None });
            };
            let (names, mut locks) = self.names(prefix, keys);
            // What fails is asked for again with the next page.
            let (found, _ahead) =
                join(self.read(server, &names), position.prefetch(pattern.as_bytes(), limit)).await;
            let found = found.map_err(|error| self.form.failure(error))?;
            locks.extend(found.into_iter().filter(|lock| lock.state != LockState::Free));
            let next = (!position.is_over()).then(|| ListCursor(CursorPosition::Scan(position)));
            Ok(LockPage { locks, next })
        })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let mut connection = self.connection.clone();
            match self.form {
                KeyForm::Owner | KeyForm::Deadline => {
                    let script = LuaScript::new(RELEASE_SCRIPT);
                    let freed = script.call::<i64>(&mut connection, &[name.as_str()], id).await;
                    freed.map(|freed| freed == 1).map_err(|error| script.failure(error))
                }
                // That stands for any owner, and no owner is called so.
                KeyForm::Hash if id == ANY_OWNER => Ok(false),
                KeyForm::Hash => {
                    let channel = channel(name);
                    let args = (WAKE_ONE, publish_command(&connection), id);
                    let script = LuaScript::new(FORCE_UNLOCK_SCRIPT);
                    let freed =
                        script.call(&mut connection, &[name.as_str(), &channel], args).await;
                    match freed.map_err(|error| script.failure(error)) {
                        // A hold that is shown and that the script does not know.
                        Err(LockError::HeldByOtherKind) if self.holds(name, id).await? => {
                            Err(READ_WRITE_OF_REDISSON)
                        }
                        freed => freed,
                    }
                }
                KeyForm::Fair | KeyForm::ReadWrite => self.release_members(name, id).await,
            }
        })
    }
}

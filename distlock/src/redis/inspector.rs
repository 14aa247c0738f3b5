//! Reads the locks of the kinds in Redis, and frees them by force.
//!
//! A lock is read by one pipeline, as is a page of locks. The server may carry out other commands
//! in between: a key that was deleted meanwhile is free. What a node of a cluster redirects is read
//! again by commands that follow redirections.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::{RedisError, RedisResult, Value};
use uuid::Uuid;

use super::holds::HoldScripts;
use super::inspect::ANY_OWNER;
use super::key_form::{KeyForm, LockReading, members};
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
        mut connection: RedisConnection,
        names: &[LockName],
    ) -> RedisResult<Vec<LockSnapshot>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let at_once = self.form.locks_at_once(self.connection.is_cluster());
        let mut pipeline = redis::pipe();
        for (at, names) in names.chunks(at_once).enumerate() {
            for command in self.form.commands(names, at == 0) {
                pipeline.add_command(command);
            }
        }
        let answers: Vec<RedisResult<Value>> =
            pipeline.ignore_errors().query_async(&mut connection).await?;
        let each = answers.chunks(self.form.answers()).zip(names.chunks(at_once));
        let each = each.flat_map(|(answers, names)| {
            self.form.split(answers, names.len()).into_iter().zip(names)
        });
        try_join_all(each.map(async |(answers, name)| {
            if answers.iter().filter_map(|answer| answer.as_ref().err()).any(must_be_sent_again) {
                return self.read_alone(name).await;
            }
            self.snapshot(name, &answers)
        }))
        .await
    }

    /// Reads a lock by one command after the other, wherever its keys are.
    async fn read_alone(&self, name: &LockName) -> RedisResult<LockSnapshot> {
        let mut answers = Vec::with_capacity(self.form.answers());
        for command in self.form.commands(std::slice::from_ref(name), true) {
            answers.push(command.query_async(&mut self.connection.clone()).await);
        }
        let answers = self.form.split(&answers, 1);
        self.snapshot(name, answers.first().map(Vec::as_slice).unwrap_or_default())
    }

    fn snapshot(
        &self,
        name: &LockName,
        answers: &[RedisResult<Value>],
    ) -> RedisResult<LockSnapshot> {
        let mut values = Vec::with_capacity(answers.len());
        let mut has_wrong_type = false;
        for answer in answers {
            match answer {
                Ok(value) => values.push(value.clone()),
                Err(error) if error.code() == Some("WRONGTYPE") => has_wrong_type = true,
                Err(error) => return Err(error.clone()),
            }
        }
        let reading = if has_wrong_type { None } else { self.form.read(&values) };
        let reading = reading.unwrap_or_else(|| damaged("the key is no lock of this kind"));
        Ok(self.with(name.to_string(), reading))
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
            let text = String::from_utf8_lossy(&key).into_owned();
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
                let Ok(id) = Uuid::parse_str(id) else { continue };
                if whose != owner {
                    continue;
                }
                let owner = Owner::from_text(owner);
                let (name, lease) = (name.clone(), Duration::ZERO);
                let request = Request { name, owner, may_hold: false, id, lease };
                scripts.begin(request).abandon().await?;
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

#[async_trait]
impl LockInspector for RedisInspector {
    async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        let found = self.read(self.connection.clone(), std::slice::from_ref(name)).await;
        let found = found.map_err(|error| self.form.failure(error))?;
        found.into_iter().next().ok_or_else(|| LockError::Backend("Redis did not answer".into()))
    }

    async fn list(
        &self,
        prefix: &str,
        cursor: Option<ListCursor>,
        limit: usize,
    ) -> Result<LockPage, LockError> {
        let mut position = match cursor {
            Some(ListCursor(CursorPosition::Scan(position))) => position,
            _ => ScanPosition::start(&self.connection).await?,
        };
        let pattern = self.form.pattern(prefix);
        let Some((server, keys)) = position.next(pattern.as_bytes(), limit).await? else {
            return Ok(LockPage { locks: Vec::new(), next: None });
        };
        let (names, mut locks) = self.names(prefix, keys);
        let found = self.read(server, &names).await.map_err(|error| self.form.failure(error))?;
        locks.extend(found.into_iter().filter(|lock| lock.state != LockState::Free));
        let next = (!position.is_over()).then(|| ListCursor(CursorPosition::Scan(position)));
        Ok(LockPage { locks, next })
    }

    async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
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
                let freed = script.call(&mut connection, &[name.as_str(), &channel], args).await;
                freed.map_err(|error| script.failure(error))
            }
            KeyForm::Fair | KeyForm::ReadWrite => self.release_members(name, id).await,
        }
    }
}

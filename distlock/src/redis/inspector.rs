//! Reads the locks of the kinds in Redis, and frees them by force.
//!
//! A lock is read by plain commands in one pipeline, which the server may interleave with others:
//! what has gone in between is free. A page of locks is one pipeline as well.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::{AsyncCommands, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use uuid::Uuid;

use super::holds::HoldScripts;
use super::key_form::KeyForm;
use super::scan::ScanPosition;
use super::script::LuaScript;
use super::signal::WAKE_ONE;
use super::{RedisConnection, publish_command};
use crate::inspector::{CursorPosition, ListCursor};
use crate::kinds::redis::redisson::channel;
use crate::{
    LockError, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState, LockWaiters,
    Owner, Request, guarantees,
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

    /// Reads these locks, which one server has.
    async fn read(
        &self,
        mut connection: RedisConnection,
        names: &[LockName],
    ) -> RedisResult<Vec<LockSnapshot>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for name in names {
            self.form.add_commands(&mut pipeline, &self.form.keys(name));
        }
        let answers: Vec<RedisResult<Value>> =
            pipeline.ignore_errors().query_async(&mut connection).await?;
        let each = answers.chunks(self.form.answers()).zip(names);
        each.map(|(answers, name)| self.snapshot(name, answers)).collect()
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
        let damaged = || LockState::Damaged("the key is no lock of this kind".to_owned());
        let (state, waiters) = reading.unwrap_or_else(|| (damaged(), LockWaiters::Unknown));
        Ok(self.with(name.to_string(), state, waiters))
    }

    fn with(&self, name: String, state: LockState, waiters: LockWaiters) -> LockSnapshot {
        let (kind, renewal) = (self.kind.as_str(), guarantees(self.kind).renewal);
        LockSnapshot { kind, name, state, waiters, renewal }
    }

    /// Reads locks that were found on that server; some may have moved to another one since.
    async fn read_found(
        &self,
        server: RedisConnection,
        names: &[LockName],
    ) -> Result<Vec<LockSnapshot>, LockError> {
        match self.read(server, names).await {
            Err(error) if is_redirection(&error) => {
                try_join_all(names.iter().map(|name| self.inspect(name))).await
            }
            found => Ok(found?),
        }
    }

    /// The names of locks with these keys, and what is shown of keys that have no name.
    fn names(&self, prefix: &str, keys: Vec<Vec<u8>>) -> (Vec<LockName>, Vec<LockSnapshot>) {
        let (mut names, mut damaged) = (Vec::new(), Vec::new());
        for key in keys {
            let text = String::from_utf8_lossy(&key).into_owned();
            let Some(name) = self.form.name(&text) else { continue };
            if !name.starts_with(prefix) {
                continue;
            }
            match LockName::new(name) {
                Ok(name) if text.as_bytes() == key => names.push(name),
                _ => {
                    let why = "its name is no name of a lock".to_owned();
                    let name = name.escape_debug().to_string();
                    damaged.push(self.with(name, LockState::Damaged(why), LockWaiters::Unknown));
                }
            }
        }
        // Two keys of holds of one lock are next to each other only by chance.
        names.dedup();
        (names, damaged)
    }

    async fn release_members(&self, name: &LockName, owner: &str) -> Result<bool, LockError> {
        let Some(scripts) = &self.scripts else { return Ok(false) };
        let mut released = false;
        for key in self.form.hold_keys(name) {
            let members: Vec<String> = self.connection.clone().zrange(key, 0, -1).await?;
            for member in members {
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

fn is_redirection(error: &RedisError) -> bool {
    let redirections = [ServerErrorKind::Moved, ServerErrorKind::Ask, ServerErrorKind::TryAgain];
    redirections.into_iter().any(|kind| error.kind() == ErrorKind::Server(kind))
}

#[async_trait]
impl LockInspector for RedisInspector {
    async fn inspect(&self, name: &LockName) -> Result<LockSnapshot, LockError> {
        let found = self.read(self.connection.clone(), std::slice::from_ref(name)).await?;
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
        let found = self.read_found(server, &names).await?;
        locks.extend(found.into_iter().filter(|lock| lock.state != LockState::Free));
        let next = (!position.is_over()).then(|| ListCursor(CursorPosition::Scan(position)));
        Ok(LockPage { locks, next })
    }

    async fn force_release(&self, name: &LockName, id: &str) -> Result<bool, LockError> {
        let mut connection = self.connection.clone();
        match self.form {
            KeyForm::Owner | KeyForm::Deadline => {
                let script = LuaScript::new(RELEASE_SCRIPT);
                Ok(script.call::<i64>(&mut connection, &[name.as_str()], id).await? == 1)
            }
            KeyForm::Hash => {
                let channel = channel(name);
                let args = (WAKE_ONE, publish_command(&connection), id);
                let script = LuaScript::new(FORCE_UNLOCK_SCRIPT);
                Ok(script.call(&mut connection, &[name.as_str(), &channel], args).await?)
            }
            KeyForm::Fair | KeyForm::ReadWrite => self.release_members(name, id).await,
        }
    }
}

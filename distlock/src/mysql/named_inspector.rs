//! The inspector of `mysql-named`: asks which connection has the lock, and which ones wait for it.

use futures_util::future::BoxFuture;
use sqlx::Row;

use super::MySqlServer;
use super::inspection::connection_holder;
use super::session::{MySqlSession, StatementError};
use crate::inspector::{ListCursor, MAX_WAITERS};
use crate::kinds::mysql::named::hashed_name;
use crate::{
    LockError, LockInspector, LockKind, LockName, LockPage, LockSnapshot, LockState, LockWaiters,
    guarantees,
};

/// The connections that wait for a named lock by a statement with that text; the server's own list
/// has no order. One more than [`MAX_WAITERS`]. Statements of other users are there if this user
/// may see them.
const WAITERS_SQL: &str = "SELECT CAST(ID AS UNSIGNED) FROM information_schema.PROCESSLIST \
     WHERE STATE = 'User lock' AND ID <> CONNECTION_ID() AND LOCATE(?, INFO) > 0 LIMIT 1001";

pub(crate) struct NamedInspector {
    pub(crate) server: MySqlServer,
}

impl NamedInspector {
    async fn read(&self, name: &LockName) -> Result<LockSnapshot, StatementError> {
        let mut session = MySqlSession::open(self.server.pool()).await?;
        let hashed = hashed_name(name);
        // MariaDB has a number with a sign there, and MySQL one without.
        let asked = format!("SELECT CAST(IS_USED_LOCK({hashed}) AS UNSIGNED)");
        let rows = session.raw(&asked).await?;
        let holder: Option<u64> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
        let holder = match holder {
            Some(id) => Some(connection_holder(&mut session, id).await?),
            None => None,
        };
        let waiting = sqlx::query(WAITERS_SQL).bind(&hashed);
        let mut waiters = Vec::new();
        for row in session.fetch_all(waiting).await? {
            waiters.push(format!("connection {}", row.try_get::<u64, _>(0)?).into());
        }
        let has_more_waiters = waiters.len() > MAX_WAITERS;
        waiters.truncate(MAX_WAITERS);
        let kind = LockKind::MysqlNamed;
        Ok(LockSnapshot {
            kind: kind.as_str(),
            name: name.to_string(),
            state: LockState::of(holder.into_iter().collect()),
            waiters: LockWaiters::Unordered(waiters),
            has_more_waiters,
            renewal: guarantees(kind).renewal,
        })
    }
}

impl LockInspector for NamedInspector {
    fn inspect<'a>(&'a self, name: &'a LockName) -> BoxFuture<'a, Result<LockSnapshot, LockError>> {
        Box::pin(async move { Ok(self.read(name).await?) })
    }

    fn list<'a>(
        &'a self,
        _prefix: &'a str,
        _cursor: Option<ListCursor>,
        _limit: usize,
    ) -> BoxFuture<'a, Result<LockPage, LockError>> {
        Box::pin(async move {
            Err(LockError::Unsupported("a name: its server stores hashes of names, and no list"))
        })
    }

    fn force_release<'a>(
        &'a self,
        name: &'a LockName,
        id: &'a str,
    ) -> BoxFuture<'a, Result<bool, LockError>> {
        Box::pin(async move {
            let server = self.server.read_identity().await?;
            let holds = self.read(name).await?.state.holders().iter().any(|holder| holder.id == id);
            match id.parse() {
                Ok(id) if holds => self.server.kill_holder(id, server).await,
                _ => Ok(false),
            }
        })
    }
}

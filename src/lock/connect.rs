//! Connects a command to the servers of its locks.

use distlock::{Backend, LockKind, Locks};

use super::failure::{Failure, code_of_opening};
use super::{LockEndpoints, LockSpec, open, redis};
use crate::config::{INSPECTOR_SESSION, LockAddresses};
use crate::database;

/// Opens the locks; the error says which server fails, and whether a retry may help.
pub(super) async fn connect(
    spec: LockSpec,
    addresses: &LockAddresses,
    make_tables: bool,
) -> Result<Locks, Failure> {
    let opened = async {
        let needs_database = spec.kind.backend() == Backend::MySql || spec.fenced;
        if let Some(url) = addresses.database_url.as_ref().filter(|_| needs_database) {
            database::check_access(url).await?;
        }
        let redis = match &addresses.redis_url {
            Some(url) if spec.kind.backend() == Backend::Redis => {
                Some(redis(url, &addresses.servers.redis).await?)
            }
            _ => None,
        };
        let endpoints = LockEndpoints {
            redis,
            database_url: addresses.database_url.as_ref(),
            naive: false,
            silence: spec.lease,
            make_tables,
            more: &addresses.servers,
        };
        open(spec, endpoints).await
    };
    opened.await.map_err(|error| Failure::new(code_of_opening(&error), format!("{error:#}")))
}

/// Opens locks that are only read or freed; makes no table.
pub(super) async fn connect_inspector(
    kind: LockKind,
    addresses: &LockAddresses,
) -> Result<Locks, Failure> {
    let spec = LockSpec { kind, lease: INSPECTOR_SESSION, fenced: false, injected_bug: None };
    connect(spec, addresses, false).await
}

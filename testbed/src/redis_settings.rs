//! Lines of `redis.conf`, but for addresses and users.

use crate::error::Result;
use crate::ports;
use crate::redis::{RedisMaster, RedisOptions};

/// A node that is dead is noticed soon. The bus has a port of its own, because Redis would add
/// 10000 to the other one, which may be too much.
pub(crate) fn cluster_settings(password: &str, tls: bool) -> Result<String> {
    // Only so do nodes report to clients with TLS where the others listen for it.
    let tls = if tls { "yes" } else { "no" };
    let lines = [
        format!("tls-cluster {tls}"),
        "cluster-enabled yes".to_owned(),
        format!("cluster-port {}", ports::free_address()?.port()),
        "cluster-node-timeout 2000".into(),
        format!("masterauth {password}"),
    ];
    Ok(lines.join("\n") + "\n")
}

/// What a restart and another port leave as it is. Later lines win over earlier ones.
pub(crate) fn settings(options: &RedisOptions) -> String {
    let mut lines = vec![
        "daemonize no".to_owned(),
        "save \"\"".into(),
        // Locks and stock must never be evicted.
        "maxmemory-policy noeviction".into(),
        // A first replica need not wait for a second one.
        "repl-diskless-sync-delay 0".into(),
    ];
    if options.appendonly {
        lines.extend(["appendonly yes".into(), "appendfsync always".into()]);
    }
    if let Some(RedisMaster { addr, password }) = &options.replica_of {
        lines.push(format!("replicaof {} {}", addr.ip(), addr.port()));
        lines.push(format!("masterauth {password}"));
    }
    lines.extend(options.extra.iter().cloned());
    lines.join("\n") + "\n"
}

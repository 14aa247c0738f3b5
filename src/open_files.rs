//! The limit of open files, of which each connection is one.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Files that are no client's connection: those to the servers, and the log.
const OTHER_FILES: u64 = 256;

/// Raises the soft limit to the hard one: many systems start a program with 1,024, and Kubernetes
/// has no field for it. Warns if that is too few for the most connections.
pub fn raise_limit(max_connections: u32) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let raised = soft >= hard || setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let limit = if raised { hard } else { soft };
    if limit < u64::from(max_connections) + OTHER_FILES {
        tracing::warn!(limit, max_connections, "fewer open files are allowed than connections");
    }
}

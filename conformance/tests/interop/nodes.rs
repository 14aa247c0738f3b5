//! What is in `ZooKeeper`, seen by a client of its own.

use std::sync::LazyLock;

use tokio::runtime::{Builder, Runtime};
use zookeeper_client::{Client, Error};

use crate::scene::zookeeper;

struct Eye {
    runtime: Runtime,
    client: Client,
}

static EYE: LazyLock<Eye> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let connected = runtime.block_on(Client::connect(zookeeper().connect_string()));
    Eye { client: connected.expect("a session"), runtime }
});

/// The children of a znode in the order of their sequence; none if it is not there.
pub(crate) fn children(path: &str) -> Vec<String> {
    let mut children = match EYE.runtime.block_on(EYE.client.list_children(path)) {
        Ok(children) => children,
        Err(Error::NoNode) => Vec::new(),
        Err(error) => panic!("{path}: {error}"),
    };
    children.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    children
}

/// What is in a node.
pub(crate) fn data(path: &str) -> Vec<u8> {
    let read = EYE.runtime.block_on(EYE.client.get_data(path));
    read.unwrap_or_else(|error| panic!("{path}: {error}")).0
}

/// Removes a node, whosever it is.
pub(crate) fn remove(path: &str) {
    let removed = EYE.runtime.block_on(EYE.client.delete(path, None));
    removed.unwrap_or_else(|error| panic!("{path}: {error}"));
}

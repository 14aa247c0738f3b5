//! Where a Redis is.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisError, RedisResult,
    TlsCertificates,
};

/// The most nodes that an address of a cluster names.
const MAX_NODES: usize = 64;

/// Where a Redis is.
#[derive(Debug, Clone, Copy)]
pub struct RedisAddress<'a> {
    /// `redis://user:password@host:6379/0`, `rediss://` (TLS) or `redis+unix://`; of a Redis
    /// Cluster some of its nodes, `redis+cluster://user:password@host:6379,host:6379` or
    /// `rediss+cluster://`.
    pub url: &'a str,
    /// The authority, in PEM, that vouches for a server with TLS; the system's do without it.
    pub ca: Option<&'a [u8]>,
}

impl<'a> From<&'a str> for RedisAddress<'a> {
    fn from(url: &'a str) -> Self {
        Self { url, ca: None }
    }
}

impl RedisAddress<'_> {
    /// Which server and which of its databases, without the login; `None` if the URL is none.
    #[must_use]
    pub fn place(self) -> Option<String> {
        let nodes = self.nodes().ok()?;
        let place =
            |node: &ConnectionInfo| format!("{}/{}", node.addr(), node.redis_settings().db());
        Some(nodes.iter().map(place).collect::<Vec<_>>().join(","))
    }

    /// Whether it can be the address of a Redis. No server is asked.
    pub fn check(self) -> RedisResult<()> {
        self.nodes().map(drop)
    }

    /// Whether it is that of a cluster.
    #[must_use]
    pub fn is_cluster(self) -> bool {
        self.scheme().is_some_and(|scheme| scheme.ends_with("+cluster"))
    }

    /// A client for each node that is named; of what is no cluster, one.
    pub(super) fn clients(self) -> RedisResult<Vec<Client>> {
        self.nodes()?.into_iter().map(|node| self.client(node)).collect()
    }

    fn client(self, node: ConnectionInfo) -> RedisResult<Client> {
        match (self.ca, node.addr()) {
            (Some(ca), ConnectionAddr::TcpTls { .. }) => {
                let authority = TlsCertificates { client_tls: None, root_cert: Some(ca.to_vec()) };
                Client::build_with_tls(node, authority)
            }
            _ => Client::open(node),
        }
    }

    fn scheme(self) -> Option<&'static str> {
        ["redis+cluster", "rediss+cluster"].into_iter().find(|scheme| {
            self.url.strip_prefix(scheme).is_some_and(|rest| rest.starts_with("://"))
        })
    }

    fn nodes(self) -> RedisResult<Vec<ConnectionInfo>> {
        let Some(scheme) = self.scheme() else {
            return Ok(vec![self.url.into_connection_info()?]);
        };
        let rest = &self.url[scheme.len() + "://".len()..];
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() && path != "0" {
            return Err(refused("a Redis Cluster has the database 0 only"));
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.len() > MAX_NODES {
            return Err(refused("an address of a Redis Cluster names at most 64 nodes"));
        }
        let scheme = scheme.trim_end_matches("+cluster");
        let node = |host| format!("{scheme}://{login}{host}/0").into_connection_info();
        hosts.into_iter().map(node).collect()
    }
}

fn refused(why: &'static str) -> RedisError {
    RedisError::from((ErrorKind::InvalidClientConfig, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_cluster_names_nodes_with_one_login() {
        let address = RedisAddress::from("redis+cluster://me:a%40b@one:7001,two:7002/0");
        assert!(address.is_cluster());
        let nodes = address.nodes().unwrap();
        let logins: Vec<_> = nodes
            .iter()
            .map(|node| (node.redis_settings().username(), node.redis_settings().password()))
            .collect();
        assert_eq!(logins, [(Some("me"), Some("a@b")); 2]);
        assert_eq!(address.place().unwrap(), "one:7001/0,two:7002/0");
        let tls = RedisAddress::from("rediss+cluster://one:7001").nodes().unwrap();
        assert!(matches!(tls[0].addr(), ConnectionAddr::TcpTls { .. }));
    }

    #[test]
    fn what_is_no_address_of_a_cluster_is_refused() {
        for url in ["redis+cluster://one:7001/3", "redis+cluster://", "redis+cluster://one,,two"] {
            assert!(RedisAddress::from(url).nodes().is_err(), "{url}");
        }
        assert!(!RedisAddress::from("redis://one:7001/3").is_cluster());
        assert_eq!(RedisAddress::from("redis://one:7001/3").place().unwrap(), "one:7001/3");
        assert_eq!(RedisAddress::from("nonsense").place(), None);
    }
}

//! Where a Redis is.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo, RedisConnectionInfo,
    RedisError, RedisResult, TlsCertificates,
};

/// The most nodes that an address of a cluster names.
const MAX_NODES: usize = 64;
/// Where a sentinel listens if the address does not say.
const SENTINEL_PORT: u16 = 26_379;

/// Where a Redis is.
#[derive(Debug, Clone, Copy)]
pub struct RedisAddress<'a> {
    /// `redis://user:password@host:6379/0`, `rediss://` (TLS) or `redis+unix://`; of a Redis
    /// Cluster some of its nodes, `redis+cluster://user:password@host:6379,host:6379` or
    /// `rediss+cluster://`; of Redis Sentinel all sentinels and the service,
    /// `redis+sentinel://user:password@host:26379,host,host/service/0` or `rediss+sentinel://`. The
    /// login is the master's, and a sentinel's if it wants one.
    pub url: &'a str,
    /// The authority, in PEM, that vouches for a server with TLS; the system's do without it.
    pub ca: Option<&'a [u8]>,
}

impl<'a> From<&'a str> for RedisAddress<'a> {
    fn from(url: &'a str) -> Self {
        Self { url, ca: None }
    }
}

/// What an address names.
pub(super) enum Topology {
    Server(Client),
    Sentinel {
        service: String,
        /// Of each sentinel a client without a login, and one with it.
        sentinels: Vec<[Client; 2]>,
        /// Login, database and TLS of the master; the address is a sentinel's.
        master: Client,
    },
    Cluster(Vec<Client>),
}

/// Of an address that names several nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Sentinel,
    Cluster,
}

impl Group {
    fn suffix(self) -> &'static str {
        match self {
            Self::Sentinel => "+sentinel",
            Self::Cluster => "+cluster",
        }
    }
}

impl RedisAddress<'_> {
    /// Which server and which of its databases, without the login; `None` if the URL is none.
    #[must_use]
    pub fn place(self) -> Option<String> {
        let (nodes, service) = self.nodes().ok()?;
        let place = |node: &ConnectionInfo| match service {
            Some(_) => node.addr().to_string(),
            None => format!("{}/{}", node.addr(), node.redis_settings().db()),
        };
        let places = nodes.iter().map(place).collect::<Vec<_>>().join(",");
        let db = nodes.first()?.redis_settings().db();
        Some(service.map_or(places.clone(), |service| format!("{places}/{service}/{db}")))
    }

    /// Whether it can be the address of a Redis. No server is asked.
    pub fn check(self) -> RedisResult<()> {
        self.nodes().map(drop)
    }

    /// Whether it is that of a cluster.
    #[must_use]
    pub fn is_cluster(self) -> bool {
        self.group().is_some_and(|(group, ..)| group == Group::Cluster)
    }

    /// Whether it is that of sentinels.
    #[must_use]
    pub fn is_sentinel(self) -> bool {
        self.group().is_some_and(|(group, ..)| group == Group::Sentinel)
    }

    pub(super) fn topology(self) -> RedisResult<Topology> {
        let (nodes, service) = self.nodes()?;
        if let Some(service) = service {
            let settings = |node: &ConnectionInfo| node.redis_settings().clone();
            let master = self.client(nodes[0].clone())?;
            let sentinel = |node: ConnectionInfo| {
                let with_login = settings(&node).set_db(0);
                let without = node.clone().set_redis_settings(RedisConnectionInfo::default());
                let with_login = node.set_redis_settings(with_login);
                Ok([self.client(without)?, self.client(with_login)?])
            };
            let sentinels = nodes.into_iter().map(sentinel).collect::<RedisResult<_>>()?;
            return Ok(Topology::Sentinel { service: service.to_owned(), sentinels, master });
        }
        let mut clients = nodes.into_iter().map(|node| self.client(node));
        if self.is_cluster() {
            return Ok(Topology::Cluster(clients.collect::<RedisResult<_>>()?));
        }
        clients
            .next()
            .unwrap_or_else(|| Err(refused("the address names no server")))
            .map(Topology::Server)
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
}

impl<'a> RedisAddress<'a> {
    /// What it names several nodes of, the scheme of each, and what follows the scheme.
    fn group(self) -> Option<(Group, &'a str, &'a str)> {
        let (scheme, rest) = self.url.split_once("://")?;
        [Group::Sentinel, Group::Cluster].into_iter().find_map(|group| {
            let scheme = scheme.strip_suffix(group.suffix())?;
            ["redis", "rediss"].contains(&scheme).then_some((group, scheme, rest))
        })
    }

    /// The nodes, each with the login and the database, and the service of sentinels.
    fn nodes(self) -> RedisResult<(Vec<ConnectionInfo>, Option<&'a str>)> {
        let Some((group, scheme, rest)) = self.group() else {
            return Ok((vec![self.url.into_connection_info()?], None));
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (service, database) = match group {
            Group::Cluster if path.is_empty() || path == "0" => (None, "0"),
            Group::Cluster => return Err(refused("a Redis Cluster has the database 0 only")),
            Group::Sentinel => {
                let (service, database) = path.split_once('/').unwrap_or((path, "0"));
                (Some(check_service(service)?), database)
            }
        };
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<_> = hosts.split(',').collect();
        if hosts.len() > MAX_NODES {
            return Err(refused("an address names at most 64 nodes or sentinels"));
        }
        let node = |host: &&str| {
            let url = format!("{scheme}://{login}{host}/{database}");
            let info = url.as_str().into_connection_info()?;
            Ok(if service.is_some() { with_sentinel_port(info, host) } else { info })
        };
        Ok((hosts.iter().map(node).collect::<RedisResult<_>>()?, service))
    }
}

/// A sentinel's port where the address has none.
fn with_sentinel_port(info: ConnectionInfo, host: &str) -> ConnectionInfo {
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    let mut address = info.addr().clone();
    if let ConnectionAddr::Tcp(_, port) | ConnectionAddr::TcpTls { port, .. } = &mut address
        && !after_address.contains(':')
    {
        *port = SENTINEL_PORT;
    }
    info.set_addr(address)
}

/// A name that a sentinel accepts.
fn check_service(service: &str) -> RedisResult<&str> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    if service.bytes().all(is_allowed) && !service.is_empty() {
        return Ok(service);
    }
    Err(refused("an address of sentinels names the service: redis+sentinel://host:26379/service/0"))
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
        let nodes = address.nodes().unwrap().0;
        let logins: Vec<_> = nodes
            .iter()
            .map(|node| (node.redis_settings().username(), node.redis_settings().password()))
            .collect();
        assert_eq!(logins, [(Some("me"), Some("a@b")); 2]);
        assert_eq!(address.place().unwrap(), "one:7001/0,two:7002/0");
        let tls = RedisAddress::from("rediss+cluster://one:7001").nodes().unwrap().0;
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

    #[test]
    fn the_address_of_sentinels_names_them_the_service_and_a_database() {
        let address = RedisAddress::from("redis+sentinel://me:pw@one,two:7002,[::1]/shop/3");
        assert!(address.is_sentinel() && !address.is_cluster());
        assert_eq!(address.place().unwrap(), "one:26379,two:7002,::1:26379/shop/3");
        let Topology::Sentinel { service, sentinels, master } = address.topology().unwrap() else {
            panic!("it is one of sentinels")
        };
        let master = master.get_connection_info().redis_settings();
        assert_eq!((service.as_str(), master.username(), master.db()), ("shop", Some("me"), 3));
        let logins = sentinels[0].each_ref().map(|client| {
            let settings = client.get_connection_info().redis_settings();
            (settings.password().map(str::to_owned), settings.db())
        });
        assert_eq!(logins, [(None, 0), (Some("pw".to_owned()), 0)]);
        let tls = RedisAddress::from("rediss+sentinel://one/shop").nodes().unwrap().0;
        assert!(matches!(tls[0].addr(), ConnectionAddr::TcpTls { port: 26_379, .. }));
    }

    #[test]
    fn what_is_no_address_of_sentinels_is_refused() {
        let hosts = vec!["one"; 65].join(",");
        let many = format!("redis+sentinel://{hosts}/shop");
        for url in [
            "redis+sentinel://one",
            "redis+sentinel://one/",
            "redis+sentinel://one/a b",
            "redis+sentinel://one/shop/x",
            "redis+sentinel:///shop",
            &many,
        ] {
            assert!(RedisAddress::from(url).check().is_err(), "{url}");
        }
    }
}

//! The addresses that the client walks through when its connection is lost.

/// How many addresses the client is given, at the least: each server several times. It doubles its
/// pause after each walk through all addresses, and a single server that was away for 26 s would be
/// tried again 25 s later. With 24 addresses a pause of the first 45 s has 4 s at most.
const MIN_ADDRESSES: usize = 24;

/// Whether the connect string names more than one server.
pub(crate) fn is_ensemble(cluster: &str) -> bool {
    cluster.contains(',')
}

/// The connect string with each server several times, and its path as it was.
pub(crate) fn repeated(cluster: &str) -> String {
    let last = cluster.rfind(',').map_or(0, |comma| comma + 1);
    let host = cluster[last..].find("://").map_or(last, |scheme| last + scheme + 3);
    let path = cluster[host..].find('/').map_or(cluster.len(), |slash| host + slash);
    let (servers, path) = cluster.split_at(path);
    let times = MIN_ADDRESSES.div_ceil(servers.split(',').count());
    vec![servers; times].join(",") + path
}

#[cfg(test)]
mod tests {
    use super::repeated;

    #[test]
    fn each_server_is_repeated_and_the_path_is_not() {
        let times = |part: &str, of: &str| repeated(of).matches(part).count();
        assert_eq!((times("a:1", "a:1,b:2/c/d"), times("/c/d", "a:1,b:2/c/d")), (12, 1));
        let secure = "tcp+tls://a:1,tcp+tls://b:2/c";
        assert_eq!((times("tls://b:2", secure), times("b:2/c", secure)), (12, 1));
        assert!(repeated(secure).ends_with("tcp+tls://a:1,tcp+tls://b:2/c"));
        assert_eq!(times("a", "a"), 24);
    }
}

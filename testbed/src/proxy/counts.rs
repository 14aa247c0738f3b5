//! The witness: what went through a proxy, and what did not.

/// What happened so far. Everything is counted before it can be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that were accepted and not refused.
    pub connections: u64,
    /// Those of them that are there at the moment.
    pub open: u64,
    /// Those of these that have subscribed to a channel.
    pub subscribers: u64,
    /// Connections that speak no known protocol, or speak it in a way that is not understood: no
    /// rule applies to them from then on.
    pub opaque: u64,
    /// Connections refused in an outage, or because there were too many.
    pub refused: u64,
    /// Connections that the server refused.
    pub unreachable: u64,
    /// Connections that were closed or reset by a fault of any kind.
    pub cut: u64,
    /// Connections that were silenced by a rule.
    pub silenced: u64,
    /// Commands that were understood.
    pub commands: u64,
    /// Those of them that matched at least one rule.
    pub matched: u64,
    /// Faults that rules caused.
    pub fired: u64,
    /// Published messages that came by.
    pub messages: u64,
    /// Those of them that were dropped.
    pub messages_dropped: u64,
    /// Bytes that were delivered to the server.
    pub bytes_to_server: u64,
    /// Bytes that were delivered to clients.
    pub bytes_to_client: u64,
    /// Parcels of bytes that came to the server later than they had come to the proxy, by the
    /// latency of the way at least: seen at their delivery.
    pub late_to_server: u64,
    /// The same to clients.
    pub late_to_client: u64,
    /// Bytes to the server that were swallowed.
    pub swallowed_to_server: u64,
    /// Bytes to clients that were swallowed.
    pub swallowed_to_client: u64,
}

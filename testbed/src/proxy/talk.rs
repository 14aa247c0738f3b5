//! What is said on one connection, as far as it is understood.
//!
//! A Redis client speaks first, and its first byte is `*`. So does a client of `ZooKeeper`, with a
//! greeting of known length. A MySQL server speaks first, with a greeting of version 10. Everything
//! else, and whatever makes no sense later, is opaque: it is passed on byte by byte, and no rule
//! applies to it.

use super::mysql::MySql;
use super::resp::Resp;
use super::rules::{Claim, Language};
use super::zookeeper::{ZooKeeperRequests, greets};

/// Bytes that may wait for the end of a command or an answer. It is more than tests need; beyond it
/// a connection becomes opaque.
pub(super) const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// What was read makes no sense in this protocol, or is too long.
#[derive(Debug)]
pub(super) struct Unreadable;

/// Something whole that a client said.
#[derive(Debug)]
pub(super) struct Request {
    /// How much of what was read is used up by it.
    pub(super) length: usize,
    /// What rules look at; nothing if this is no command that they know.
    pub(super) parts: Vec<Vec<u8>>,
}

/// Something that a server said.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// How much of what was read is used up by it.
    pub(super) length: usize,
    /// What to pass on, unless something happens to it.
    pub(super) bytes: Vec<u8>,
    /// What happens to it. Then the bytes are the whole answer to the command.
    pub(super) claim: Option<Claim>,
    /// The channel, if it is a published message.
    pub(super) channel: Option<Vec<u8>>,
}

pub(super) trait Protocol: Send {
    fn language(&self) -> Language;

    /// The next request at the start of what was read, if it is there to its end.
    fn request(&mut self, said: &[u8]) -> Result<Option<Request>, Unreadable>;

    /// The request is passed on: what shall happen to its answer. `said` begins with the request.
    fn expect(&mut self, request: &Request, said: &[u8], claim: Option<Claim>);

    /// The next piece of an answer at the start of what was read.
    fn answer(&mut self, said: &[u8]) -> Result<Option<Answer>, Unreadable>;

    /// Whether the client has ever subscribed to a channel.
    fn has_subscribed(&self) -> bool {
        false
    }

    /// The beginning of an answer that will not be read to its end.
    fn give_up(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

/// Which protocol a connection speaks.
pub(super) enum Talk {
    /// Neither side has said enough yet.
    Unknown,
    Known(Box<dyn Protocol>),
    /// With the beginning of an answer that will not be read to its end.
    Opaque(Vec<u8>),
}

impl Talk {
    /// Learns from the first that a client says.
    pub(super) fn recognize_client(&mut self, said: &[u8]) {
        if matches!(self, Self::Unknown) {
            *self = match said {
                [] => Self::Unknown,
                [b'*', ..] => Self::Known(Box::new(Resp::default())),
                _ if greets(said) => Self::Known(Box::new(ZooKeeperRequests::default())),
                _ => Self::Opaque(vec![]),
            };
        }
    }

    /// Learns from the first that a server says.
    pub(super) fn recognize_server(&mut self, said: &[u8]) {
        if matches!(self, Self::Unknown) {
            *self = match said {
                [_, _, _, 0, 10, ..] => Self::Known(Box::new(MySql::default())),
                _ if said.len() < 5 => Self::Unknown,
                _ => Self::Opaque(vec![]),
            };
        }
    }

    /// Stops interpreting this connection, now and for all that follows.
    pub(super) fn become_opaque(&mut self) {
        *self = Self::Opaque(self.give_up());
    }

    pub(super) fn is_opaque(&self) -> bool {
        matches!(self, Self::Opaque(_))
    }

    pub(super) fn has_subscribed(&self) -> bool {
        matches!(self, Self::Known(protocol) if protocol.has_subscribed())
    }

    /// The beginning of an answer that will not be read to its end.
    pub(super) fn give_up(&mut self) -> Vec<u8> {
        match self {
            Self::Known(protocol) => protocol.give_up(),
            Self::Opaque(left) => std::mem::take(left),
            Self::Unknown => Vec::new(),
        }
    }
}

//! What is wrong with the way as a whole, whatever is said on it.

use std::time::Duration;

use fastrand::Rng;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What clients say.
    ToServer,
    /// What the server says.
    ToClient,
    /// All of it.
    Both,
}

/// Which published messages are dropped on their way to a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageDrop {
    /// None.
    None,
    /// The next messages up to this number, counted over all connections.
    Next(u64),
    /// All, until changed.
    All,
}

/// Faults of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Way {
    pub(super) latency: Duration,
    pub(super) jitter: Duration,
    pub(super) held: bool,
    pub(super) swallowed: bool,
}

/// Faults of both, and of what is not of one direction.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) to_server: Way,
    pub(super) to_client: Way,
    /// Nothing is open, and nothing can be opened.
    pub(super) outage: bool,
    dropping: MessageDrop,
    channel: Vec<u8>,
    rng: Rng,
}

impl Way {
    /// How long something that comes now takes.
    pub(super) fn takes(&self, rng: &mut Rng) -> Duration {
        let Ok(width @ 1..) = u64::try_from(self.jitter.as_nanos()) else { return self.latency };
        self.latency + Duration::from_nanos(rng.u64(..width))
    }
}

impl Faults {
    pub(super) fn none() -> Self {
        Self {
            to_server: Way::default(),
            to_client: Way::default(),
            outage: false,
            dropping: MessageDrop::None,
            channel: Vec::new(),
            rng: Rng::new(),
        }
    }

    /// Changes the faults of these directions.
    pub(super) fn each(&mut self, direction: Direction, mut change: impl FnMut(&mut Way)) {
        if direction != Direction::ToClient {
            change(&mut self.to_server);
        }
        if direction != Direction::ToServer {
            change(&mut self.to_client);
        }
    }

    /// How long something to the server takes, and something to a client.
    pub(super) fn times(&mut self) -> (Duration, Duration) {
        (self.to_server.takes(&mut self.rng), self.to_client.takes(&mut self.rng))
    }

    /// Drops messages of channels whose names contain that.
    pub(super) fn drop_messages(&mut self, channel: &str, dropping: MessageDrop) {
        self.channel = channel.into();
        self.dropping = dropping;
    }

    /// Whether this message has to be dropped; it is counted as such.
    pub(super) fn drops(&mut self, channel: &[u8]) -> bool {
        if !contains(channel, &self.channel) {
            return false;
        }
        match &mut self.dropping {
            MessageDrop::None | MessageDrop::Next(0) => false,
            MessageDrop::Next(left) => {
                *left -= 1;
                true
            }
            MessageDrop::All => true,
        }
    }
}

/// Whether `part` stands somewhere in `whole`. Nothing stands everywhere.
pub(super) fn contains(whole: &[u8], part: &[u8]) -> bool {
    part.is_empty() || whole.windows(part.len()).any(|window| window == part)
}

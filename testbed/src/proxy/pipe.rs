//! What is under way in one direction of one connection, in order and each with its time.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use super::faults::Way;
use super::rules::Claim;

/// With this many bytes under way no more are read: the sender feels it as it would feel a full
/// buffer anywhere on the way.
const CAPACITY: usize = 1024 * 1024;
/// What may lie between two looks at the clock, one of which says when a parcel has come.
const CLOCK_INTERVAL: Duration = Duration::from_millis(1);

pub(super) enum Item {
    Bytes(Vec<u8>),
    /// The sender has ended its side.
    End,
    /// The sender has reset the connection, or has vanished without an end.
    Broken,
    /// Nothing passes before that rule is released.
    Gate(usize),
    /// A rule does what it does to the whole connection.
    Strike(Claim),
}

/// What a delivery means for the whole connection.
pub(super) enum Effect {
    Strike(Claim),
    /// The sender has ended, and so must the receiver.
    Broken,
    /// The receiver has ended.
    Undeliverable,
}

struct Parcel {
    came: Instant,
    due: Instant,
    item: Item,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sender {
    Speaks,
    /// Its end is under way.
    Ends,
    /// Its end has been delivered, or swallowed.
    HasEnded,
}

pub(super) struct Pipe {
    queue: VecDeque<Parcel>,
    /// Of the first item, if it is bytes.
    sent: usize,
    under_way: usize,
    /// The receiver's buffer is full.
    pub(super) blocked: bool,
    /// Nothing will ever be delivered again: a stream that has lost a byte cannot continue.
    pub(super) silent: bool,
    sender: Sender,
    pub(super) delivered: u64,
    pub(super) late: u64,
    pub(super) swallowed: u64,
}

impl Pipe {
    pub(super) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            sent: 0,
            under_way: 0,
            blocked: false,
            silent: false,
            sender: Sender::Speaks,
            delivered: 0,
            late: 0,
            swallowed: 0,
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.sender == Sender::HasEnded
    }

    pub(super) fn wants_more(&self) -> bool {
        self.sender == Sender::Speaks && self.under_way < CAPACITY
    }

    /// Puts something behind all that is under way, so that it waits for that too.
    pub(super) fn push(&mut self, item: Item, due: Instant) {
        if let Item::Bytes(bytes) = &item {
            if bytes.is_empty() {
                return;
            }
            self.under_way += bytes.len();
        }
        self.queue.push_back(Parcel { came: Instant::now(), due, item });
    }

    /// The sender says no more.
    pub(super) fn finish(&mut self, item: Item, due: Instant) {
        if self.sender == Sender::Speaks {
            self.sender = Sender::Ends;
            self.push(item, due);
        }
    }

    /// Opens the gates of this rule.
    pub(super) fn release(&mut self, rule: usize) {
        self.queue.retain(|parcel| !matches!(parcel.item, Item::Gate(of) if of == rule));
    }

    pub(super) fn release_all(&mut self) {
        self.queue.retain(|parcel| !matches!(parcel.item, Item::Gate(_)));
    }

    /// When something is due next, unless that depends on others.
    pub(super) fn next_due(&self, way: &Way) -> Option<Instant> {
        let front = self.queue.front()?;
        let waits = way.held || self.blocked || matches!(front.item, Item::Gate(_));
        (!waits).then_some(front.due)
    }

    /// Delivers what is due, up to something that concerns the whole connection.
    pub(super) fn deliver(&mut self, to: &TcpStream, way: &Way, now: Instant) -> Option<Effect> {
        while self.next_due(way).is_some_and(|due| due <= now) {
            let is_lost = self.silent || way.swallowed;
            let front = self.queue.front()?;
            match &front.item {
                Item::Bytes(bytes) if is_lost => {
                    let left = bytes.len() - self.sent;
                    self.swallow(left);
                    continue;
                }
                Item::Bytes(bytes) => {
                    let (sent, length) = (self.sent, bytes.len());
                    let took = front.came.elapsed() + CLOCK_INTERVAL;
                    let is_late = !way.latency.is_zero() && took >= way.latency;
                    match send(to, &bytes[sent..]) {
                        Ok(count) => {
                            self.late += u64::from(is_late && sent + count == length);
                            self.has_sent(count, length);
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => self.blocked = true,
                        Err(_) => {
                            self.silent = true;
                            return Some(Effect::Undeliverable);
                        }
                    }
                    continue;
                }
                Item::Gate(_) => return None,
                Item::End | Item::Broken | Item::Strike(_) => {}
            }
            match self.queue.pop_front()?.item {
                Item::End => {
                    self.sender = Sender::HasEnded;
                    if !is_lost {
                        // A connection that has ended needs no end.
                        let _gone = to.shutdown(Shutdown::Write);
                    }
                }
                Item::Broken => {
                    self.sender = Sender::HasEnded;
                    if !is_lost {
                        return Some(Effect::Broken);
                    }
                }
                Item::Strike(claim) if !self.silent => return Some(Effect::Strike(claim)),
                Item::Strike(_) | Item::Bytes(_) | Item::Gate(_) => {}
            }
        }
        None
    }

    fn swallow(&mut self, count: usize) {
        self.silent = true;
        self.swallowed += wide(count);
        self.under_way -= count;
        self.sent = 0;
        self.queue.pop_front();
    }

    fn has_sent(&mut self, count: usize, length: usize) {
        self.delivered += wide(count);
        self.under_way -= count;
        self.sent += count;
        if self.sent == length {
            self.sent = 0;
            self.queue.pop_front();
        }
    }
}

fn send(mut to: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    loop {
        match to.write(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn wide(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

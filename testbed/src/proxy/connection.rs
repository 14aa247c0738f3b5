//! One connection: a client, the server, and what is under way between them.

use std::io::{self, ErrorKind, Read as _};
use std::mem;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::counts::Counts;
use super::faults::Faults;
use super::pipe::{Effect, Item, Pipe};
use super::rules::{Action, Claim, Language, Rules};
use super::talk::{Answer, MAX_ANSWER_BYTES, Talk, Unreadable};

/// What all connections share.
pub(super) struct World {
    pub(super) faults: Faults,
    pub(super) rules: Rules,
    pub(super) counts: Counts,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

pub(super) struct Connection {
    client: Arc<TcpStream>,
    server: Arc<TcpStream>,
    to_server: Pipe,
    to_client: Pipe,
    talk: Talk,
    /// What was read and is not whole yet.
    asked: Vec<u8>,
    answered: Vec<u8>,
    is_over: bool,
}

impl World {
    fn claim(&mut self, language: Language, parts: &[Vec<u8>]) -> Option<Claim> {
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let (matched, claim) = self.rules.claim(language, &parts);
        self.counts.commands += 1;
        self.counts.matched += u64::from(matched);
        claim
    }

    fn fired(&mut self, claim: Claim) {
        let rule = self.rules.get(claim.rule);
        rule.fired += 1;
        self.counts.fired += 1;
        self.faults.outage |= rule.with_outage;
    }
}

impl Connection {
    pub(super) fn new(client: TcpStream, server: TcpStream) -> Self {
        Self {
            client: Arc::new(client),
            server: Arc::new(server),
            to_server: Pipe::new(),
            to_client: Pipe::new(),
            talk: Talk::Unknown,
            asked: Vec::new(),
            answered: Vec::new(),
            is_over: false,
        }
    }

    /// Whether there is nothing more to do for it.
    pub(super) fn is_over(&self) -> bool {
        self.is_over || (self.to_server.has_ended() && self.to_client.has_ended())
    }

    pub(super) fn has_subscribed(&self) -> bool {
        self.talk.has_subscribed()
    }

    /// The sockets that have to be waited for, each with whether to read and whether to write.
    pub(super) fn waits_for(&self) -> [(Side, &Arc<TcpStream>, bool, bool); 2] {
        [
            (Side::Client, &self.client, self.to_server.wants_more(), self.to_client.blocked),
            (Side::Server, &self.server, self.to_client.wants_more(), self.to_server.blocked),
        ]
    }

    /// When something is due for delivery next.
    pub(super) fn next_due(&self, faults: &Faults) -> Option<Instant> {
        let to_server = self.to_server.next_due(&faults.to_server);
        to_server.into_iter().chain(self.to_client.next_due(&faults.to_client)).min()
    }

    pub(super) fn release(&mut self, rule: usize) {
        self.to_server.release(rule);
        self.to_client.release(rule);
    }

    pub(super) fn release_all(&mut self) {
        self.to_server.release_all();
        self.to_client.release_all();
    }

    /// Both sides see an end.
    pub(super) fn cut(&mut self, counts: &mut Counts) {
        counts.cut += 1;
        self.is_over = true;
        for socket in [&self.client, &self.server] {
            // A connection that has ended needs no end.
            let _gone = socket.shutdown(Shutdown::Both);
        }
    }

    /// Both sides see a reset, once the sockets are dropped.
    pub(super) fn reset(&mut self, counts: &mut Counts) {
        counts.cut += 1;
        self.is_over = true;
        reset_when_dropped(&self.client);
        reset_when_dropped(&self.server);
    }

    /// Neither side hears anything more.
    fn silence(&mut self, counts: &mut Counts) {
        counts.silenced += 1;
        self.to_server.silent = true;
        self.to_client.silent = true;
    }

    /// The socket of that side can be read or written.
    pub(super) fn wake(&mut self, side: Side, world: &mut World) {
        let (socket, from, to) = match side {
            Side::Client => (&self.client, &self.to_server, &mut self.to_client),
            Side::Server => (&self.server, &self.to_client, &mut self.to_server),
        };
        to.blocked = false;
        if self.is_over || !from.wants_more() {
            return;
        }
        let mut buffer = [0; 16 * 1024];
        let mut socket: &TcpStream = socket;
        let read = socket.read(&mut buffer);
        // Not before: a delay is at least as long as it was set.
        let now = Instant::now();
        match read {
            Ok(0) => self.finish(side, Item::End, world, now),
            Ok(count) => self.hear(side, &buffer[..count], world, now),
            Err(error) if is_passing(&error) => {}
            Err(error) => {
                if side == Side::Server && error.kind() == ErrorKind::ConnectionRefused {
                    world.counts.unreachable += 1;
                }
                self.finish(side, Item::Broken, world, now);
            }
        }
    }

    /// Ends that side of the connection.
    fn finish(&mut self, side: Side, item: Item, world: &mut World, now: Instant) {
        let (to_server, to_client) = world.faults.times();
        match side {
            Side::Client => {
                let rest = mem::take(&mut self.asked);
                self.to_server.push(Item::Bytes(rest), now + to_server);
                self.to_server.finish(item, now + to_server);
            }
            Side::Server => {
                let rest = [self.talk.give_up(), mem::take(&mut self.answered)].concat();
                self.to_client.push(Item::Bytes(rest), now + to_client);
                self.to_client.finish(item, now + to_client);
            }
        }
    }

    fn hear(&mut self, side: Side, bytes: &[u8], world: &mut World, now: Instant) {
        let (to_server, to_client) = world.faults.times();
        let was_opaque = self.talk.is_opaque();
        match side {
            Side::Client => {
                self.asked.extend(bytes);
                self.talk.recognize_client(&self.asked);
                self.understand_client(world, now + to_server);
            }
            Side::Server => {
                self.answered.extend(bytes);
                self.talk.recognize_server(&self.answered);
                self.understand_server(world, now + to_client);
            }
        }
        if self.asked.len().max(self.answered.len()) > MAX_ANSWER_BYTES {
            self.talk.become_opaque();
        }
        if self.talk.is_opaque() {
            world.counts.opaque += u64::from(!was_opaque);
            let asked = mem::take(&mut self.asked);
            self.to_server.push(Item::Bytes(asked), now + to_server);
            let answered = [self.talk.give_up(), mem::take(&mut self.answered)].concat();
            self.to_client.push(Item::Bytes(answered), now + to_client);
        }
    }

    fn understand_client(&mut self, world: &mut World, due: Instant) {
        let asked = mem::take(&mut self.asked);
        let mut rest = asked.as_slice();
        while let Talk::Known(protocol) = &mut self.talk {
            let request = match protocol.request(rest) {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(Unreadable) => {
                    self.talk.become_opaque();
                    break;
                }
            };
            let claim = match &request.parts[..] {
                [] => None,
                parts => world.claim(protocol.language(), parts),
            };
            let is_about_answer = |claim: &Claim| claim.action.is_about_answer();
            protocol.expect(&request, rest, claim.filter(is_about_answer));
            let (bytes, behind) = rest.split_at(request.length);
            rest = behind;
            self.pass_request(bytes.to_vec(), claim, world, due);
        }
        self.asked = rest.to_vec();
    }

    fn pass_request(
        &mut self,
        bytes: Vec<u8>,
        claim: Option<Claim>,
        world: &mut World,
        due: Instant,
    ) {
        let mut delay = Duration::ZERO;
        match claim.map(|claim| (claim.action, claim)) {
            Some((Action::CutRequest | Action::LoseRequest, claim)) => {
                self.to_server.push(Item::Strike(claim), due);
                return;
            }
            Some((Action::DelayRequest(time), claim)) => {
                world.fired(claim);
                delay = time;
            }
            Some((Action::HoldRequest, claim)) => {
                world.fired(claim);
                self.to_server.push(Item::Gate(claim.rule), due);
            }
            _ => {}
        }
        self.to_server.push(Item::Bytes(bytes), due + delay);
        if let Some(claim) = claim.filter(|claim| claim.action == Action::CutBoth) {
            self.to_server.push(Item::Strike(claim), due);
        }
    }

    fn understand_server(&mut self, world: &mut World, due: Instant) {
        let answered = mem::take(&mut self.answered);
        let mut rest = answered.as_slice();
        while let Talk::Known(protocol) = &mut self.talk {
            match protocol.answer(rest) {
                Ok(Some(answer)) => {
                    rest = &rest[answer.length..];
                    self.pass_answer(answer, world, due);
                }
                Ok(None) => break,
                Err(Unreadable) => self.talk.become_opaque(),
            }
        }
        self.answered = rest.to_vec();
    }

    fn pass_answer(&mut self, answer: Answer, world: &mut World, due: Instant) {
        if let Some(channel) = &answer.channel {
            world.counts.messages += 1;
            if world.faults.drops(channel) {
                world.counts.messages_dropped += 1;
                return;
            }
        }
        let mut delay = Duration::ZERO;
        match answer.claim.map(|claim| (claim.action, claim)) {
            None => {}
            Some((Action::DelayAnswer(time), claim)) => {
                world.fired(claim);
                delay = time;
            }
            Some((Action::HoldAnswer, claim)) => {
                world.fired(claim);
                self.to_client.push(Item::Gate(claim.rule), due);
            }
            Some((_, claim)) => return self.to_client.push(Item::Strike(claim), due),
        }
        self.to_client.push(Item::Bytes(answer.bytes), due + delay);
    }

    /// Delivers what is due.
    pub(super) fn deliver(&mut self, world: &mut World, now: Instant) {
        for side in [Side::Server, Side::Client] {
            while !self.is_over {
                let effect = match side {
                    Side::Server => {
                        self.to_server.deliver(&self.server, &world.faults.to_server, now)
                    }
                    Side::Client => {
                        self.to_client.deliver(&self.client, &world.faults.to_client, now)
                    }
                };
                match effect {
                    None => break,
                    Some(Effect::Strike(claim)) => self.strike(claim, world),
                    Some(Effect::Broken) => {
                        reset_when_dropped(&self.client);
                        reset_when_dropped(&self.server);
                        self.is_over = true;
                    }
                    // It is as if the receiver had reset the connection.
                    Some(Effect::Undeliverable) => self.finish(side, Item::Broken, world, now),
                }
            }
        }
        let counts = &mut world.counts;
        counts.bytes_to_server += mem::take(&mut self.to_server.delivered);
        counts.bytes_to_client += mem::take(&mut self.to_client.delivered);
        counts.late_to_server += mem::take(&mut self.to_server.late);
        counts.late_to_client += mem::take(&mut self.to_client.late);
        counts.swallowed_to_server += mem::take(&mut self.to_server.swallowed);
        counts.swallowed_to_client += mem::take(&mut self.to_client.swallowed);
    }

    fn strike(&mut self, claim: Claim, world: &mut World) {
        world.fired(claim);
        match claim.action {
            Action::CutAnswer | Action::CutRequest | Action::CutBoth => {
                self.cut(&mut world.counts);
            }
            Action::ResetAnswer => self.reset(&mut world.counts),
            Action::LoseAnswer | Action::LoseRequest => self.silence(&mut world.counts),
            Action::DelayRequest(_)
            | Action::HoldRequest
            | Action::DelayAnswer(_)
            | Action::HoldAnswer => {}
        }
    }
}

/// Makes the peer see a reset instead of an end, once the last copy of the socket is dropped.
pub(super) fn reset_when_dropped(socket: &TcpStream) {
    // A socket that was reset by its peer needs no reset.
    let _gone = SockRef::from(socket).set_linger(Some(Duration::ZERO));
}

fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

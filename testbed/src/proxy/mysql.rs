//! The protocol of MySQL and MariaDB: commands, the SQL of prepared statements, and which answer
//! belongs to which command.
//!
//! Every packet has a header of three bytes of length and one of sequence; a command is a packet
//! with sequence 0 whose first byte says which. Connections that are encrypted or compressed
//! after the greeting are not understood.

use std::collections::{HashMap, VecDeque};

use super::mysql_answers::{Reader, Shape};
use super::rules::{Claim, Language};
use super::talk::{Answer, MAX_ANSWER_BYTES, Protocol, Request, Unreadable};

const HEADER: usize = 4;

const COM_QUIT: u8 = 0x01;
const COM_QUERY: u8 = 0x03;
const COM_FIELD_LIST: u8 = 0x04;
const COM_CHANGE_USER: u8 = 0x11;
const COM_STMT_PREPARE: u8 = 0x16;
const COM_STMT_EXECUTE: u8 = 0x17;
const COM_STMT_SEND_LONG_DATA: u8 = 0x18;
const COM_STMT_CLOSE: u8 = 0x19;
const COM_STMT_FETCH: u8 = 0x1c;

const COMPRESS: u32 = 0x20;
const SSL: u32 = 0x800;
const DEPRECATE_EOF: u32 = 0x0100_0000;
const ZSTD: u32 = 0x0400_0000;
const QUERY_ATTRIBUTES: u32 = 0x0800_0000;
/// A client that wants to encrypt says so in a login without its end.
const SSL_REQUEST: usize = 32;

#[derive(Default)]
pub(super) struct MySql {
    /// What the server can do, once it has said so.
    offered: Option<u32>,
    /// What both can do, once the client has said so.
    agreed: Option<u32>,
    /// The SQL of each that was ever prepared: the server gives no number twice.
    statements: HashMap<u32, Vec<u8>>,
    expected: VecDeque<AwaitedResult>,
    /// The beginning of an answer that something will happen to.
    kept: Vec<u8>,
}

struct AwaitedResult {
    claim: Option<Claim>,
    reader: Reader,
    /// The SQL, if it is being prepared.
    preparing: Option<Vec<u8>>,
}

impl Protocol for MySql {
    fn language(&self) -> Language {
        Language::MySql
    }

    fn request(&mut self, said: &[u8]) -> Result<Option<Request>, Unreadable> {
        let Some((sequence, payload)) = packet(said) else { return Ok(None) };
        let length = HEADER + payload.len();
        let Some(agreed) = self.agreed else {
            self.read_login(payload)?;
            return Ok(Some(Request { length, parts: vec![] }));
        };
        let parts = match payload {
            [COM_QUERY, rest @ ..] if sequence == 0 => vec![query(rest, agreed).to_vec()],
            [COM_STMT_EXECUTE, a, b, c, d, rest @ ..] if sequence == 0 => {
                let sql = self.statements.get(&u32::from_le_bytes([*a, *b, *c, *d]));
                vec![sql.cloned().unwrap_or_default(), rest.to_vec()]
            }
            _ => vec![],
        };
        Ok(Some(Request { length, parts }))
    }

    fn expect(&mut self, _request: &Request, said: &[u8], claim: Option<Claim>) {
        // Only commands have sequence 0.
        let Some((0, [command, rest @ ..])) = packet(said) else { return };
        let shape = match *command {
            COM_QUIT | COM_STMT_CLOSE | COM_STMT_SEND_LONG_DATA => return,
            COM_QUERY | COM_STMT_EXECUTE => Shape::Results,
            COM_STMT_PREPARE => Shape::Statement,
            COM_FIELD_LIST | COM_STMT_FETCH => Shape::UpToEnd,
            COM_CHANGE_USER => Shape::Login,
            _ => Shape::One,
        };
        let has_no_eof = self.agreed.unwrap_or_default() & DEPRECATE_EOF != 0;
        let preparing = (*command == COM_STMT_PREPARE).then(|| rest.to_vec());
        let reader = Reader::new(shape, has_no_eof);
        self.expected.push_back(AwaitedResult { claim, reader, preparing });
    }

    fn answer(&mut self, said: &[u8]) -> Result<Option<Answer>, Unreadable> {
        let Some((_, payload)) = packet(said) else { return Ok(None) };
        let length = HEADER + payload.len();
        let bytes = said[..length].to_vec();
        let pass = Answer { length, bytes, ..Answer::default() };
        if self.kept.len() > MAX_ANSWER_BYTES {
            return Err(Unreadable);
        }
        if self.offered.is_none() {
            self.offered = Some(capabilities(payload).ok_or(Unreadable)?);
            return Ok(Some(pass));
        }
        // What comes during the login is no answer to a command.
        let Some(front) = self.expected.front_mut() else { return Ok(Some(pass)) };
        let is_over = front.reader.read(payload);
        if let Some((id, sql)) = front.reader.prepared().zip(front.preparing.take()) {
            self.statements.insert(id, sql);
        }
        let claim = front.claim;
        if is_over {
            self.expected.pop_front();
        }
        if claim.is_none() {
            return Ok(Some(pass));
        }
        self.kept.extend(pass.bytes);
        let rest = Answer { length, ..Answer::default() };
        Ok(Some(if is_over { Answer { bytes: self.give_up(), claim, ..rest } } else { rest }))
    }

    fn give_up(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.kept)
    }
}

impl MySql {
    fn read_login(&mut self, payload: &[u8]) -> Result<(), Unreadable> {
        let (flags, _) = payload.split_first_chunk::<4>().ok_or(Unreadable)?;
        let flags = u32::from_le_bytes(*flags);
        let is_encrypted = flags & SSL != 0 && payload.len() <= SSL_REQUEST;
        let agreed = flags & self.offered.unwrap_or_default();
        if is_encrypted || agreed & (COMPRESS | ZSTD) != 0 {
            return Err(Unreadable);
        }
        self.agreed = Some(agreed);
        Ok(())
    }
}

/// The packet at the start, if it is there to its end: its sequence and what is in it.
fn packet(said: &[u8]) -> Option<(u8, &[u8])> {
    let (header, rest) = said.split_first_chunk::<HEADER>()?;
    let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
    Some((header[3], rest.get(..usize::try_from(length).ok()?)?))
}

/// The SQL behind the attributes that a query may have; if it has any, they stand before it.
fn query(rest: &[u8], agreed: u32) -> &[u8] {
    match rest {
        [0, 1, sql @ ..] if agreed & QUERY_ATTRIBUTES != 0 => sql,
        _ => rest,
    }
}

/// What the server offers in its greeting.
fn capabilities(greeting: &[u8]) -> Option<u32> {
    // Version of the protocol, and of the server up to a zero.
    let version = greeting.iter().position(|byte| *byte == 0)?;
    // Behind the connection's number, half of the nonce, and a zero.
    let rest = greeting.get(version + 1 + 4 + 8 + 1..)?;
    match rest {
        [a, b, _character_set, _, _, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

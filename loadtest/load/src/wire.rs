//! The bytes on a connection: a request goes out, an answer comes in and is taken apart.
//!
//! An answer is read into one buffer that the connection keeps; a head is at most 16 KiB with 64
//! headers, a body at most 1 MiB. Bodies may have a length, come in chunks, or end with the
//! connection. Interim answers (1xx) are passed over.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use crate::client::Answer;
use crate::hold_report::HoldReport;

/// Largest head of an answer, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Most headers of an answer.
const MAX_HEADERS: usize = 64;
/// Largest answer that is read, in bytes; a page of orders has about 20 KiB.
const MAX_BODY_BYTES: usize = 1024 * 1024;
/// Room for the framing around a body of that size, if it comes in chunks of a sensible size.
const MAX_ANSWER_BYTES: usize = MAX_HEAD_BYTES + MAX_BODY_BYTES + MAX_BODY_BYTES / 4;
/// What the buffer has room for at first, and what is kept of it between answers.
const BUFFER_BYTES: usize = 4 * 1024;
/// Most interim answers before the final one.
const MAX_INTERIM: usize = 8;

/// An open connection.
#[derive(Debug)]
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// Bytes in the buffer.
    filled: usize,
    /// Whether another request may follow on this connection.
    reusable: bool,
}

/// Where the parts of an answer lie in the buffer.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    status: u16,
    is_problem: bool,
    replica: Option<Range<usize>>,
    hold: Option<HoldReport>,
    body: Range<usize>,
}

/// How an answer's end is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClosed,
}

/// An answer's head.
#[derive(Debug)]
struct Head {
    status: u16,
    length: usize,
    framing: Framing,
    keeps_alive: bool,
    is_problem: bool,
    replica: Option<Range<usize>>,
    hold: Option<HoldReport>,
}

fn protocol_error(why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

impl Wire {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES], filled: 0, reusable: true }
    }

    /// Whether the connection is of no use for another request: the last answer was its last, or
    /// the server closed it, or sent data without a request.
    pub(super) fn is_stale(&mut self) -> bool {
        let mut unasked = [0];
        let quiet = matches!(self.stream.try_read(&mut unasked),
            Err(error) if error.kind() == ErrorKind::WouldBlock);
        !(self.reusable && quiet)
    }

    /// Writes what fits at once. An error means that nothing was written.
    pub(super) fn write(&mut self, request: &[u8]) -> io::Result<usize> {
        self.filled = 0;
        self.reusable = false;
        match self.stream.try_write(request) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Writes all of it.
    pub(super) async fn write_all(&mut self, mut rest: &[u8]) -> io::Result<()> {
        self.reusable = false;
        while !rest.is_empty() {
            self.stream.writable().await?;
            match self.stream.try_write(rest) {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits for the first bytes of an answer.
    pub(super) async fn first_bytes(&mut self) -> io::Result<()> {
        self.fill().await.map(drop)
    }

    /// Reads an answer to its end.
    pub(super) async fn read_reply(&mut self) -> io::Result<Reply> {
        let mut interim = 0;
        let head = loop {
            let head = self.read_head().await?;
            if !(100..200).contains(&head.status) {
                break head;
            }
            interim += 1;
            if interim > MAX_INTERIM || head.status == 101 {
                return Err(protocol_error("interim answers without an end"));
            }
            self.buffer.copy_within(head.length..self.filled, 0);
            self.filled -= head.length;
        };
        let (body, end) = match head.framing {
            Framing::Length(length) => {
                let end = head.length + length;
                while self.filled < end {
                    self.fill().await?;
                }
                (head.length..end, end)
            }
            Framing::Chunked => self.read_chunks(head.length).await?,
            Framing::UntilClosed => {
                while self.fill_or_end().await? > 0 {}
                (head.length..self.filled, self.filled)
            }
        };
        if body.len() > MAX_BODY_BYTES {
            return Err(protocol_error("the body is too large"));
        }
        self.reusable = head.keeps_alive && self.filled == end;
        let Head { status, is_problem, replica, hold, .. } = head;
        Ok(Reply { status, is_problem, replica, hold, body })
    }

    /// The answer whose parts lie there.
    pub(super) fn answer(&self, reply: Reply) -> Answer<'_> {
        let replica = reply.replica.and_then(|range| std::str::from_utf8(&self.buffer[range]).ok());
        let Reply { status, is_problem, hold, body, .. } = reply;
        Answer { status, replica, hold, is_problem, body: &self.buffer[body] }
    }

    async fn read_head(&mut self) -> io::Result<Head> {
        loop {
            let head = parse_head(&self.buffer[..self.filled])?;
            if head.as_ref().map_or(self.filled, |head| head.length) > MAX_HEAD_BYTES {
                return Err(protocol_error("the head is too large"));
            }
            if let Some(head) = head {
                return Ok(head);
            }
            self.fill().await?;
        }
    }

    /// Decodes chunks in place: the body's bytes move to the front, right behind the head.
    async fn read_chunks(&mut self, start: usize) -> io::Result<(Range<usize>, usize)> {
        let (mut body_end, mut at) = (start, start);
        loop {
            let (size, length) = self.chunk_size(at).await?;
            at += size;
            if length == 0 {
                return Ok((start..body_end, self.skip_trailers(at).await?));
            }
            if length > MAX_BODY_BYTES - (body_end - start) {
                return Err(protocol_error("the body is too large"));
            }
            while self.filled < at + length + 2 {
                self.fill().await?;
            }
            self.buffer.copy_within(at..at + length, body_end);
            body_end += length;
            at += length;
            if &self.buffer[at..at + 2] != b"\r\n" {
                return Err(protocol_error("a chunk without an end"));
            }
            at += 2;
        }
    }

    /// The bytes that a chunk's size line takes at `at`, and the size that it names.
    async fn chunk_size(&mut self, at: usize) -> io::Result<(usize, usize)> {
        loop {
            match httparse::parse_chunk_size(&self.buffer[at..self.filled]) {
                Ok(httparse::Status::Complete((line, size))) => {
                    let size = usize::try_from(size)
                        .map_err(|_| protocol_error("the body is too large"))?;
                    return Ok((line, size));
                }
                Ok(httparse::Status::Partial) => self.fill().await.map(drop)?,
                Err(_) => return Err(protocol_error("a chunk without a size")),
            }
        }
    }

    /// The end of the trailers that begin at `at`.
    async fn skip_trailers(&mut self, mut at: usize) -> io::Result<usize> {
        let begin = at;
        loop {
            let line = self.buffer[at..self.filled].windows(2).position(|two| two == b"\r\n");
            match line {
                Some(0) => return Ok(at + 2),
                Some(length) => at += length + 2,
                None => self.fill().await.map(drop)?,
            }
            if at - begin > MAX_HEAD_BYTES {
                return Err(protocol_error("the trailers are too large"));
            }
        }
    }

    /// Reads more; the end of the connection is an error.
    async fn fill(&mut self) -> io::Result<usize> {
        match self.fill_or_end().await? {
            0 => Err(io::Error::new(ErrorKind::UnexpectedEof, "closed before the answer's end")),
            read => Ok(read),
        }
    }

    async fn fill_or_end(&mut self) -> io::Result<usize> {
        if self.filled == self.buffer.len() {
            if self.filled >= MAX_ANSWER_BYTES {
                return Err(protocol_error("the answer is too large"));
            }
            self.buffer.resize((self.filled * 2).min(MAX_ANSWER_BYTES), 0);
        }
        std::future::poll_fn(|context| self.poll_fill(context)).await
    }

    /// Through `poll_read`, which remembers that a short read emptied the socket, and so saves the
    /// system call that would only say so.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(&mut self.buffer[self.filled..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut room))?;
        let read = room.filled().len();
        self.filled += read;
        Poll::Ready(Ok(read))
    }
}

/// The head at the front of `bytes`, if it is all there.
fn parse_head(bytes: &[u8]) -> io::Result<Option<Head>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(protocol_error(&format!("no HTTP: {error}"))),
    };
    let status = response.code.unwrap_or_default();
    let mut head = Head {
        status,
        length,
        framing: Framing::UntilClosed,
        keeps_alive: response.version == Some(1),
        is_problem: false,
        replica: None,
        hold: None,
    };
    let (mut declared, mut is_chunked) = (None, false);
    for header in response.headers.iter() {
        let (name, value) = (header.name, header.value);
        if name.eq_ignore_ascii_case("content-length") {
            declared = Some(content_length(value, declared)?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.to_ascii_lowercase().ends_with(b"chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            head.keeps_alive &= !value.eq_ignore_ascii_case(b"close");
        } else if name.eq_ignore_ascii_case("content-type") {
            head.is_problem = value.starts_with(b"application/problem+json");
        } else if name.eq_ignore_ascii_case("x-replica") {
            let from = value.as_ptr().addr() - bytes.as_ptr().addr();
            head.replica = Some(from..from + value.len());
        } else if name.eq_ignore_ascii_case("x-lab-held") {
            head.hold = HoldReport::parse(value);
        }
    }
    head.framing = match (status, is_chunked, declared) {
        (100..=199 | 204 | 304, _, _) => Framing::Length(0),
        (_, true, _) => Framing::Chunked,
        (_, false, Some(length)) => Framing::Length(length),
        (_, false, None) => Framing::UntilClosed,
    };
    head.keeps_alive &= head.framing != Framing::UntilClosed;
    Ok(Some(head))
}

fn content_length(value: &[u8], earlier: Option<usize>) -> io::Result<usize> {
    let text =
        std::str::from_utf8(value).map_err(|_| protocol_error("a length that is no number"))?;
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<usize>() {
        Ok(length) if length > MAX_BODY_BYTES => Err(protocol_error("the body is too large")),
        Ok(length) if digits && earlier.is_none_or(|earlier| earlier == length) => Ok(length),
        _ => Err(protocol_error("a length that is no number")),
    }
}

#[cfg(test)]
#[path = "wire_tests.rs"]
mod tests;

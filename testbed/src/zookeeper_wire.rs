//! The part of `ZooKeeper`'s protocol that ends a session from outside, as an administrator or an
//! expiry does: take it over by its id, and close it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long the server may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// No answer to these requests is as long.
const MAX_ANSWER_BYTES: usize = 1024;
/// The operation that closes a session.
const CLOSE_SESSION: i32 = -11;
/// Where the answer to a hello has the time-out of the session: 0 if there is no such session.
const TIMEOUT_AT: usize = 4;
/// How often a session is taken over that its client takes back.
const TRIES: u32 = 50;

/// Ends a session: its ephemeral nodes go, and its client learns of it at its next request. Its
/// client comes back as soon as the session is taken over, which closes this connection.
pub(crate) fn end_session(server: SocketAddr, session: i64) -> io::Result<()> {
    let not_found = || io::Error::new(ErrorKind::NotFound, "there is no such session");
    for number in 0..TRIES {
        match try_to_end(server, session) {
            Ok(true) => return Ok(()),
            // The last try has ended it, and the answer was cut off.
            Ok(false) if number > 0 => return Ok(()),
            Ok(false) => return Err(not_found()),
            Err(error) if is_end(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("its client takes the session back each time"))
}

fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | BrokenPipe)
}

/// Whether there was such a session, which has ended now.
fn try_to_end(server: SocketAddr, session: i64) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&server, ANSWER_TIMEOUT)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let timeout_ms = 10_000_i32;
    let hello = [
        &0_i32.to_be_bytes()[..],
        &0_i64.to_be_bytes(),
        &timeout_ms.to_be_bytes(),
        &session.to_be_bytes(),
        &16_i32.to_be_bytes(),
        &password(session),
        &[0],
    ];
    let close = [1_i32.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat();
    stream.write_all(&[framed(&hello.concat())?, framed(&close)?].concat())?;
    let welcome = receive(&mut stream)?;
    if welcome.get(TIMEOUT_AT..TIMEOUT_AT + 4).is_none_or(|timeout| timeout == [0; 4]) {
        return Ok(false);
    }
    receive(&mut stream).map(|_| true)
}

/// What the server wants to see of a client that takes a session over. The server computes it from
/// the id, by the generator of `java.util.Random` and a secret that is in its source.
fn password(session: i64) -> [u8; 16] {
    const SECRET: u64 = 0xB341_5C00;
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const BITS_48: u64 = (1 << 48) - 1;
    let mut state = (u64::from_ne_bytes(session.to_ne_bytes()) ^ SECRET ^ MULTIPLIER) & BITS_48;
    let mut password = [0; 16];
    for four in password.chunks_exact_mut(4) {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & BITS_48;
        four.copy_from_slice(&(state >> 16).to_le_bytes()[..4]);
    }
    password
}

fn framed(request: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(request.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes()[..], request].concat())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_ANSWER_BYTES {
        return Err(io::Error::new(ErrorKind::InvalidData, "an answer of more than 1 KiB"));
    }
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_what_javas_generator_makes_of_the_id_and_the_secret() {
        // The first two numbers of `new Random(42)` are -1170105035 and 234785527.
        let expected = [(-1_170_105_035_i32).to_le_bytes(), 234_785_527_i32.to_le_bytes()];
        assert_eq!(password(0x2A ^ 0xB341_5C00)[..8], expected.concat());
    }
}

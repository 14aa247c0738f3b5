//! Just enough of the MySQL protocol to log in over a Unix socket and run statements.
//!
//! A client library would bring a run-time and TLS for two statements, and the command-line client
//! is not part of the servers' packages.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Limit of each read and write.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

const LONG_PASSWORD: u32 = 1;
const PROTOCOL_41: u32 = 0x200;
const SECURE_CONNECTION: u32 = 0x8000;
const PLUGIN_AUTH: u32 = 0x0008_0000;
/// `utf8mb4_general_ci`, which MySQL and MariaDB both have.
const CHARACTER_SET: u8 = 45;
const COM_QUIT: u8 = 1;
const COM_QUERY: u8 = 3;
const END_OF_ROWS: u8 = 0xfe;

/// Where and as whom.
#[derive(Clone, Debug)]
pub(crate) struct Login {
    pub(crate) socket: PathBuf,
    pub(crate) user: String,
    pub(crate) password: String,
}

/// A connection that is logged in.
pub(crate) struct MySqlConnection {
    stream: UnixStream,
    sequence: u8,
    version: String,
}

/// The first packet of the server.
struct Greeting {
    version: String,
    nonce: Vec<u8>,
    plugin: String,
}

impl MySqlConnection {
    /// Connects and logs in.
    pub(crate) fn open(login: &Login) -> io::Result<Self> {
        let stream = UnixStream::connect(&login.socket)?;
        stream.set_read_timeout(Some(IO_TIMEOUT))?;
        stream.set_write_timeout(Some(IO_TIMEOUT))?;
        let mut this = Self { stream, sequence: 0, version: String::new() };
        let greeting = Greeting::parse(&this.receive()?)?;
        this.version = greeting.version;
        let answer = scramble(&greeting.plugin, &login.password, &greeting.nonce)?;
        let mut packet = Vec::new();
        let capabilities = LONG_PASSWORD | PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
        packet.extend(capabilities.to_le_bytes());
        packet.extend(0x0100_0000_u32.to_le_bytes());
        packet.push(CHARACTER_SET);
        packet.extend([0; 23]);
        packet.extend(login.user.as_bytes());
        packet.push(0);
        packet.push(u8::try_from(answer.len()).map_err(|_| malformed("a scramble"))?);
        packet.extend(answer);
        packet.extend(greeting.plugin.as_bytes());
        packet.push(0);
        this.send(&packet)?;
        this.finish_login(&login.password)?;
        Ok(this)
    }

    /// With that limit of each read, for a statement that takes longer.
    pub(crate) fn with_timeout(self, limit: Duration) -> io::Result<Self> {
        self.stream.set_read_timeout(Some(limit))?;
        Ok(self)
    }

    /// The version as the server spells it.
    pub(crate) fn server_version(&self) -> &str {
        // MariaDB before 11 puts this in front for the sake of old replication clients.
        self.version.strip_prefix("5.5.5-").unwrap_or(&self.version)
    }

    /// Runs a statement; its rows, each by the names of its columns. What is NULL is left out.
    pub(crate) fn query(&mut self, statement: &str) -> io::Result<Vec<HashMap<String, String>>> {
        self.sequence = 0;
        let mut packet = vec![COM_QUERY];
        packet.extend(statement.as_bytes());
        self.send(&packet)?;
        let answer = self.receive()?;
        let columns = take_length(&mut &answer[..])?.unwrap_or_default();
        let mut names = Vec::new();
        for _ in 0..columns {
            // Catalog, schema, table, the table's own name, then the name.
            let packet = self.receive()?;
            let mut rest = &packet[..];
            let fields = (0..5).map(|_| take_field(&mut rest)).collect::<io::Result<Vec<_>>>()?;
            names.extend(fields.into_iter().next_back().flatten());
        }
        let mut rows = Vec::new();
        if columns > 0 {
            self.receive()?; // the end of the columns
            loop {
                let packet = self.receive()?;
                if packet[0] == END_OF_ROWS && packet.len() < 9 {
                    break;
                }
                let mut rest = &packet[..];
                let values = names.iter().map(|name| Ok((name.clone(), take_field(&mut rest)?)));
                let values = values.collect::<io::Result<Vec<_>>>()?.into_iter();
                rows.push(values.filter_map(|(name, value)| Some((name, value?))).collect());
            }
        }
        Ok(rows)
    }

    fn finish_login(&mut self, password: &str) -> io::Result<()> {
        // The longest dialogue has three packets: switch plugin, ask for the full login, OK.
        for _ in 0..4 {
            let packet = self.receive()?;
            match packet[..] {
                [0x00, ..] => return Ok(()),
                [0xfe, ref switch @ ..] => {
                    let mut rest = switch;
                    let plugin = take_text(&mut rest)?;
                    let nonce = rest.strip_suffix(&[0]).unwrap_or(rest);
                    let answer = scramble(&plugin, password, nonce)?;
                    self.send(&answer)?;
                }
                // caching_sha2_password: known from an earlier login, OK follows.
                [0x01, 0x03] => {}
                // It wants the password itself, which a Unix socket may carry.
                [0x01, 0x04] => self.send(&[password.as_bytes(), &[0]].concat())?,
                _ => return Err(malformed("an answer to the login")),
            }
        }
        Err(malformed("a login dialogue"))
    }

    fn send(&mut self, payload: &[u8]) -> io::Result<()> {
        let length = u32::try_from(payload.len()).map_err(|_| malformed("a packet"))?.to_le_bytes();
        let mut packet = vec![length[0], length[1], length[2], self.sequence];
        self.sequence = self.sequence.wrapping_add(1);
        packet.extend(payload);
        self.stream.write_all(&packet)
    }

    /// The next packet's payload, never empty. An error packet becomes an error.
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        self.sequence = header[3].wrapping_add(1);
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut payload = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        self.stream.read_exact(&mut payload)?;
        match payload[..] {
            [] => Err(malformed("an empty packet")),
            // Number, then after the login a state of five characters, then the message.
            [0xff, _, _, b'#', _, _, _, _, _, ref message @ ..]
            | [0xff, _, _, ref message @ ..] => {
                Err(io::Error::other(String::from_utf8_lossy(message).into_owned()))
            }
            _ => Ok(payload),
        }
    }
}

/// Says good-bye: the server logs clients that just go away.
impl Drop for MySqlConnection {
    fn drop(&mut self) {
        self.sequence = 0;
        let _ = self.send(&[COM_QUIT]);
    }
}

impl Greeting {
    fn parse(packet: &[u8]) -> io::Result<Self> {
        let mut rest = packet;
        if take(&mut rest, 1)? != [10] {
            return Err(malformed("a greeting"));
        }
        let version = take_text(&mut rest)?;
        take(&mut rest, 4)?; // connection id
        let mut nonce = take(&mut rest, 8)?.to_vec();
        take(&mut rest, 1 + 2 + 1 + 2 + 2)?; // filler, capabilities, character set, status
        let total = usize::from(take(&mut rest, 1)?[0]);
        take(&mut rest, 10)?;
        let second = take(&mut rest, total.saturating_sub(8).max(13))?;
        nonce.extend(second.strip_suffix(&[0]).unwrap_or(second));
        let plugin = take_text(&mut rest)?;
        Ok(Self { version, nonce, plugin })
    }
}

/// The proof of knowing the password.
fn scramble(plugin: &str, password: &str, nonce: &[u8]) -> io::Result<Vec<u8>> {
    let xor = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| a ^ b).collect();
    match plugin {
        _ if password.is_empty() => Ok(vec![]),
        "mysql_native_password" => {
            let once = Sha1::digest(password);
            let twice = Sha1::digest(once);
            Ok(xor(&once, &Sha1::new().chain_update(nonce).chain_update(twice).finalize()))
        }
        "caching_sha2_password" => {
            let once = Sha256::digest(password);
            let twice = Sha256::digest(once);
            Ok(xor(&once, &Sha256::new().chain_update(twice).chain_update(nonce).finalize()))
        }
        other => Err(io::Error::other(format!("the server wants a login by {other}"))),
    }
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> io::Result<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(count).ok_or_else(|| malformed("a short packet"))?;
    *rest = left;
    Ok(taken)
}

/// A number of a length of its own; `None` is NULL.
fn take_length(rest: &mut &[u8]) -> io::Result<Option<usize>> {
    let width = match take(rest, 1)?[0] {
        0xfb => return Ok(None),
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        short => return Ok(Some(short.into())),
    };
    let mut bytes = [0; 8];
    bytes[..width].copy_from_slice(take(rest, width)?);
    usize::try_from(u64::from_le_bytes(bytes)).map(Some).map_err(|_| malformed("a length"))
}

/// Text with its length before it; `None` is NULL.
fn take_field(rest: &mut &[u8]) -> io::Result<Option<String>> {
    let Some(length) = take_length(rest)? else { return Ok(None) };
    Ok(Some(String::from_utf8_lossy(take(rest, length)?).into_owned()))
}

/// Text up to a zero byte, or the end.
fn take_text(rest: &mut &[u8]) -> io::Result<String> {
    let length = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
    let text = String::from_utf8_lossy(take(rest, length)?).into_owned();
    *rest = rest.get(1..).unwrap_or_default();
    Ok(text)
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{what} that makes no sense here"))
}

#[cfg(test)]
mod tests {
    use super::scramble;

    #[test]
    fn a_server_that_wants_an_unknown_login_is_named() {
        let error = scramble("dialog", "secret", b"01234567890123456789").unwrap_err();
        assert!(error.to_string().contains("dialog"), "{error}");
    }

    #[test]
    fn scrambles_have_the_lengths_that_servers_expect() {
        let nonce = b"01234567890123456789";
        assert_eq!(scramble("mysql_native_password", "x", nonce).unwrap().len(), 20);
        assert_eq!(scramble("caching_sha2_password", "x", nonce).unwrap().len(), 32);
    }
}

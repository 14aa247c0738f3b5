//! A connection to MariaDB as packets, on which everything can be seen.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use sha1::{Digest, Sha1};
use testbed::Proxy;

use crate::{LIMIT, SERVERS};

/// The protocol of 4.1, a password, a database, the name of the login's method, several results.
const FLAGS: u32 = 0x1 | 0x8 | 0x200 | 0x8000 | 0x8_0000 | 0x1_0000 | 0x2_0000;
/// Rows end with a status, and definitions with nothing.
const DEPRECATE_EOF: u32 = 0x0100_0000;

pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    sequence: u8,
    has_no_eof: bool,
}

impl Client {
    /// A connection that is logged in, of the newer or the older kind.
    pub(crate) fn through(proxy: &Proxy, has_no_eof: bool) -> Self {
        Self::login(proxy.addr(), has_no_eof)
    }

    /// Connects without a proxy.
    pub(crate) fn direct() -> Self {
        Self::login(SERVERS.database.addr(), true)
    }

    fn login(address: SocketAddr, has_no_eof: bool) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut client = Self { stream, sequence: 0, has_no_eof };
        let greeting = client.receive().unwrap();
        let version = greeting.iter().position(|byte| *byte == 0).unwrap();
        let nonce = &greeting[version + 5..];
        let nonce = [&nonce[..8], &nonce[27..39]].concat();
        let url = SERVERS.database.url("shop");
        let (user, rest) = url.trim_start_matches("mysql://").split_once(':').unwrap();
        let password = rest.split('@').next().unwrap();
        let flags = FLAGS | if has_no_eof { DEPRECATE_EOF } else { 0 };
        let mut packet = flags.to_le_bytes().to_vec();
        packet.extend(0x0100_0000_u32.to_le_bytes());
        packet.push(45);
        packet.extend([0; 23]);
        packet.extend(user.as_bytes());
        packet.extend([0, 20]);
        packet.extend(scramble(password, &nonce));
        packet.extend(b"shop\0mysql_native_password\0");
        client.send(&packet);
        assert_eq!(client.receive().unwrap()[0], 0, "the login");
        client
    }

    fn send(&mut self, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
        let header = [length[0], length[1], length[2], self.sequence];
        self.stream.write_all(&[&header, payload].concat()).unwrap();
    }

    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.stream.read_exact(&mut header)?;
        self.sequence = header[3].wrapping_add(1);
        let length = u32::from_le_bytes([header[0], header[1], header[2], 0]);
        let mut payload = vec![0; length.try_into().unwrap()];
        self.stream.read_exact(&mut payload)?;
        Ok(payload)
    }

    pub(crate) fn say(&mut self, command: u8, payload: &[u8]) {
        self.sequence = 0;
        self.send(&[&[command], payload].concat());
    }

    /// One result: a status, or columns and rows up to their end; how many rows.
    pub(crate) fn hear(&mut self) -> io::Result<usize> {
        let first = self.receive()?;
        match first[0] {
            0 => return Ok(0),
            0xff => panic!("{}", String::from_utf8_lossy(&first)),
            columns => {
                for _ in 0..columns + u8::from(!self.has_no_eof) {
                    self.receive()?;
                }
            }
        }
        let mut rows = 0;
        loop {
            let packet = self.receive()?;
            if packet[0] == 0xfe && packet.len() < 9 {
                return Ok(rows);
            }
            rows += 1;
        }
    }

    pub(crate) fn say_query(&mut self, sql: &str) {
        self.say(3, sql.as_bytes());
    }

    /// How many rows there are in answer to it.
    pub(crate) fn query(&mut self, sql: &str) -> usize {
        self.say_query(sql);
        self.hear().unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// A statement with one parameter that is a text; its number.
    pub(crate) fn prepare(&mut self, sql: &str) -> [u8; 4] {
        self.say(0x16, sql.as_bytes());
        let answer = self.receive().unwrap();
        assert_eq!(answer[0], 0, "{}", String::from_utf8_lossy(&answer));
        let count = |at: usize| match answer[at] {
            0 => 0,
            count => count + u8::from(!self.has_no_eof),
        };
        for _ in 0..count(5) + count(7) {
            self.receive().unwrap();
        }
        answer[1..5].try_into().unwrap()
    }

    pub(crate) fn say_execute(&mut self, statement: [u8; 4], text: &str) {
        let mut payload = statement.to_vec();
        // No cursor, once, no nulls, new types: one text.
        payload.extend([0, 1, 0, 0, 0, 0, 1, 0xfd, 0]);
        payload.push(text.len().try_into().unwrap());
        payload.extend(text.as_bytes());
        self.say(0x17, &payload);
    }

    pub(crate) fn sees_the_end(&mut self) {
        assert_eq!(self.stream.read(&mut [0; 64]).expect("an end"), 0);
    }

    pub(crate) fn hears_nothing(&mut self) {
        self.stream.set_nonblocking(true).unwrap();
        let error = self.stream.read(&mut [0; 64]).expect_err("silence");
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).unwrap();
    }
}

fn scramble(password: &str, nonce: &[u8]) -> Vec<u8> {
    let once = Sha1::digest(password);
    let salted = Sha1::new().chain_update(nonce).chain_update(Sha1::digest(once)).finalize();
    once.iter().zip(salted).map(|(a, b)| a ^ b).collect()
}

//! As much of Redis's protocol as it takes to give a server commands, one after the other.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A connection.
#[derive(Debug)]
pub(crate) struct RespConnection {
    stream: BufReader<TcpStream>,
}

/// Why a command has no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// There is no connection, or it broke.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server answers with an error, as in `ERR unknown command`.
    #[error("{0}")]
    Refused(String),
}

impl RespConnection {
    /// Connects and logs in. Each answer may take as long as `limit`.
    pub(crate) fn open(
        address: SocketAddr,
        password: &str,
        limit: Duration,
    ) -> Result<Self, Failure> {
        let mut connection = Self::connect(address, limit)?;
        connection.command(&["AUTH", password])?;
        Ok(connection)
    }

    /// Connects only.
    pub(crate) fn connect(address: SocketAddr, limit: Duration) -> Result<Self, Failure> {
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends a command and returns its answer as `redis-cli` writes it into a pipe: nothing for
    /// nil, and one line for each element of a list.
    pub(crate) fn command(&mut self, words: &[&str]) -> Result<String, Failure> {
        let bulk = |word: &&str| format!("${}\r\n{word}\r\n", word.len());
        let bulks: String = words.iter().map(bulk).collect();
        let request = format!("*{}\r\n{bulks}", words.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.read()
    }

    /// The next answer, or what the server sends unasked to subscribers.
    pub(crate) fn read(&mut self) -> Result<String, Failure> {
        let mut lines = Vec::new();
        self.read_answer(&mut lines)?;
        Ok(lines.join("\n"))
    }

    fn read_answer(&mut self, lines: &mut Vec<String>) -> Result<(), Failure> {
        let mut open = 1_usize;
        let mut refused = None;
        while open > 0 {
            open -= 1;
            let line = self.read_line()?;
            let (kind, rest) = line.split_at_checked(1).ok_or_else(|| malformed(&line))?;
            match kind {
                "+" | ":" => lines.push(rest.to_owned()),
                "-" => refused = Some(rest.to_owned()),
                "$" | "*" if rest == "-1" => lines.push(String::new()),
                "$" => lines.push(self.read_text(count(rest)?)?),
                "*" => open += count(rest)?,
                _ => return Err(malformed(&line)),
            }
        }
        refused.map_or(Ok(()), |message| Err(Failure::Refused(message)))
    }

    fn read_line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        match line.strip_suffix("\r\n") {
            Some(line) => Ok(line.to_owned()),
            None => Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
        }
    }

    fn read_text(&mut self, length: usize) -> Result<String, Failure> {
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

fn count(text: &str) -> Result<usize, Failure> {
    text.parse().map_err(|_| malformed(text))
}

fn malformed(line: &str) -> Failure {
    io::Error::new(io::ErrorKind::InvalidData, format!("`{line}` is no answer of Redis")).into()
}

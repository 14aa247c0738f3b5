//! What the server makes of the two commands of `lua-release`, with a client that costs next to
//! nothing: many pairs are one packet, made once, and their answers are known.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use conformance::Servers;
use distlock::BoxFuture;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::processes::{NamedProcess, ProcessTimes};
use tokio::task::block_in_place;

use crate::bare::RELEASE;
use crate::cell::{Cell, Slice, broken};
use crate::throughput::{LEASE_MS, name};

/// In a packet, each with a key of its own.
const PAIRS: usize = 64;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// To a pair: the key is set, and deleted.
const ANSWER: &[u8] = b"+OK\r\n:1\r\n";

/// `SET NX PX` and a release, again and again.
pub(crate) struct ReleasePackets {
    stream: TcpStream,
    packet: Vec<u8>,
    processes: Vec<NamedProcess>,
}

impl ReleasePackets {
    /// Releases by `DELIFEQ` if it may and the server has it, else by the script.
    pub(crate) fn connect(servers: &Servers, may_use_command: bool) -> Result<Self> {
        let redis = servers.redis();
        let ask = |words: &[&str]| redis.command(words);
        let digest = ask(&["SCRIPT", "LOAD", RELEASE]).map_err(broken("a script"))?;
        let has_command = may_use_command && ask(&["DELIFEQ", "none", "none"]).is_ok();
        let mut packet = Vec::new();
        for key in (0..PAIRS).map(|pair| name("packet", pair)) {
            let mut set = redis::cmd("SET");
            set.arg(&key).arg("owner").arg("NX").arg("PX").arg(LEASE_MS);
            let mut release = redis::cmd(if has_command { "DELIFEQ" } else { "EVALSHA" });
            if !has_command {
                release.arg(&digest).arg(1);
            }
            release.arg(&key).arg("owner");
            packet.extend([set.get_packed_command(), release.get_packed_command()].concat());
        }
        let stream = TcpStream::connect(redis.addr()).map_err(broken("a connection"))?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT)).map_err(broken("a connection"))?;
        let processes = vec![("us of client", std::process::id()), ("us of redis", redis.pid())];
        let mut packets = Self { stream, packet, processes };
        let password = redis.url().split([':', '@']).nth(2).unwrap_or_default();
        let login = redis::cmd("AUTH").arg(password).get_packed_command();
        packets.ask(&login, b"+OK\r\n")?;
        Ok(packets)
    }

    fn ask(&mut self, packet: &[u8], expected: &[u8]) -> Result<()> {
        let mut answer = vec![0; expected.len()];
        self.stream.write_all(packet).map_err(broken("a packet"))?;
        self.stream.read_exact(&mut answer).map_err(broken("an answer"))?;
        let text = || String::from_utf8_lossy(&answer).into_owned();
        if answer == expected {
            Ok(())
        } else {
            Err(Error::Setup(format!("an answer: {}", text())))
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn work(&mut self, length: Duration) -> Result<Slice> {
        let (before, began) = (ProcessTimes::of(&self.processes), Instant::now());
        let (packet, expected) = (self.packet.clone(), ANSWER.repeat(PAIRS));
        let mut count = 0;
        while began.elapsed() < length {
            self.ask(&packet, &expected)?;
            count += PAIRS;
        }
        let seconds = began.elapsed().as_secs_f64();
        let used = ProcessTimes::of(&self.processes).for_each(&before, 1.0);
        Ok(Slice { count: count as f64, seconds, used, ..Slice::default() })
    }
}

impl Cell for ReleasePackets {
    fn slice(&mut self, length: Duration) -> BoxFuture<'_, Result<Slice>> {
        Box::pin(async move { block_in_place(|| self.work(length)) })
    }
}

//! The commands of a deployment as they pass. The command MONITOR tells those that the Redis of its
//! lock carries out. The proxies on the links to the database see the SQL that replicas send, and
//! those on the links to `ZooKeeper` see requests. What is said to etcd is not understood.
//!
//! MONITOR costs Redis a part of its speed, so a tap is there only while commands are looked at. A
//! channel that is full loses commands, which are counted, and nothing waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use loadtest_measure::error::Result;
use testbed::{Action, Command, Rule, Times};
use tokio::io::AsyncBufReadExt as _;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::deployment::Deployment;
use crate::key_lease::PTTL;
use crate::redis_stream::RedisStream;
use crate::requirements::Link;

/// Commands that wait to be read.
const MAX_WAITING: usize = 4096;
/// Most bytes of a statement or a request that are kept.
const MAX_TEXT_BYTES: usize = 400;
/// The longest line of MONITOR that is read: scripts are sent whole by some locks.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The sender of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOrigin {
    /// A client of Redis.
    RedisClient,
    /// The script that Redis carries out: the last `EVAL` or `EVALSHA` before.
    RedisScript,
    /// The replica of that index, to the database.
    Replica(usize),
    /// The replica of that index, to `ZooKeeper`.
    ReplicaToZooKeeper(usize),
}

/// A command that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCommand {
    /// When it was seen.
    pub at: Instant,
    /// The sender.
    pub origin: CommandOrigin,
    /// The words of a Redis command, one statement of SQL, or one request to `ZooKeeper`.
    pub words: Vec<String>,
}

/// Sends commands until it is dropped.
#[derive(Debug)]
pub struct CommandTap {
    monitor: AbortHandle,
    watches: Vec<Rule>,
    lost: Arc<AtomicU64>,
}

impl CommandTap {
    /// Begins to listen.
    pub async fn open(deployment: &Deployment) -> Result<(Self, mpsc::Receiver<ObservedCommand>)> {
        let (sender, receiver) = CommandSender::channel(MAX_WAITING);
        let lost = sender.lost.clone();
        let monitor = RedisStream::open(deployment, "MONITOR").await?;
        let monitor = tokio::spawn(forward(monitor, sender.clone())).abort_handle();
        let sql = watch_link(deployment, &sender, (Link::Database, Command::sql));
        let zookeeper = watch_link(deployment, &sender, (Link::Zookeeper, Command::zookeeper));
        let watches = sql.into_iter().chain(zookeeper).collect();
        Ok((Self { monitor, watches, lost }, receiver))
    }

    /// Whether Redis still tells its commands.
    pub fn is_open(&self) -> bool {
        !self.monitor.is_finished()
    }

    /// How many commands were lost since the last call, because they were read too slowly.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for CommandTap {
    fn drop(&mut self) {
        self.monitor.abort();
        self.watches.iter().for_each(Rule::disarm);
    }
}

/// Sends commands as long as they fit, and counts the others.
#[derive(Debug, Clone)]
struct CommandSender {
    channel: mpsc::Sender<ObservedCommand>,
    lost: Arc<AtomicU64>,
}

impl CommandSender {
    fn channel(capacity: usize) -> (Self, mpsc::Receiver<ObservedCommand>) {
        let (channel, receiver) = mpsc::channel(capacity);
        (Self { channel, lost: Arc::default() }, receiver)
    }

    /// Sends a command, whose words are made only if it fits.
    fn send(&self, origin: CommandOrigin, words: impl FnOnce() -> Vec<String>) {
        if let Ok(place) = self.channel.try_reserve() {
            place.send(ObservedCommand { at: Instant::now(), origin, words: words() });
        } else {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Passes on each command on these links.
fn watch_link(
    deployment: &Deployment,
    sender: &CommandSender,
    (link, any_command): (Link, fn(&str) -> Command),
) -> Vec<Rule> {
    let replicas = 0..deployment.replicas().len();
    let links = replicas.flat_map(|index| {
        let proxies = deployment.proxies(index, link);
        proxies.iter().map(move |proxy| (index, proxy))
    });
    let watch = |(index, proxy): (usize, &testbed::Proxy)| {
        let sender = sender.clone();
        let origin = match link {
            Link::Zookeeper => CommandOrigin::ReplicaToZooKeeper(index),
            _ => CommandOrigin::Replica(index),
        };
        let command = any_command("").when(move |parts| {
            if let Some(text) = parts.first() {
                let text = &text[..text.len().min(MAX_TEXT_BYTES)];
                sender.send(origin, || vec![String::from_utf8_lossy(text).into_owned()]);
            }
            false
        });
        proxy.arm(command, Action::CutBoth, Times::Next(0))
    };
    links.map(watch).collect()
}

/// Passes on what MONITOR tells, until the connection ends.
async fn forward(mut monitor: RedisStream, sender: CommandSender) {
    let mut line = Vec::new();
    while let Ok(count @ 1..) = monitor.0.read_until(b'\n', &mut line).await {
        let text = String::from_utf8_lossy(&line[..count.min(MAX_LINE_BYTES)]);
        if let Some((origin, words)) = parse_line(text.trim_end()) {
            sender.send(origin, || words);
        }
        line.clear();
    }
}

/// `+1700000000.1 [0 127.0.0.1:5] "SET" "a" "1"`: the sender and the words.
fn parse_line(line: &str) -> Option<(CommandOrigin, Vec<String>)> {
    let (_, rest) = line.split_once(" [")?;
    let (client, words) = rest.split_once("] ")?;
    let origin = match client.split_once(' ')?.1 {
        "lua" => CommandOrigin::RedisScript,
        _ => CommandOrigin::RedisClient,
    };
    let words = quoted_words(words);
    // The laboratory's own questions are no commands of the deployment.
    (words.first()? != PTTL).then_some((origin, words))
}

/// The words between quotation marks, without their escapes.
fn quoted_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_inside) = (Vec::new(), String::new(), false);
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '"' if is_inside => words.push(std::mem::take(&mut word)),
            '\\' if is_inside => word.push(match signs.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some(other) => other,
                None => '\\',
            }),
            _ if is_inside => word.push(sign),
            _ => {}
        }
        is_inside ^= sign == '"';
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_monitor_is_read_with_its_sender_and_its_escapes() {
        let line = r#"+1700000000.123 [2 127.0.0.1:999] "EVAL" "return \"a\"\n" "1" "lock:7""#;
        let words = ["EVAL", "return \"a\"\n", "1", "lock:7"].map(str::to_owned).to_vec();
        assert_eq!(parse_line(line), Some((CommandOrigin::RedisClient, words)));
        let inner = parse_line("+1.2 [2 lua] \"GET\" \"a b\"").expect("a command");
        let words = vec!["GET".to_owned(), "a b".to_owned()];
        assert_eq!(inner, (CommandOrigin::RedisScript, words));
        assert_eq!(parse_line("+OK"), None);
        assert_eq!(parse_line("+1.2 [2 127.0.0.1:9] \"pttl\" \"lock:7\""), None, "our own");
    }

    #[test]
    fn a_command_that_a_full_channel_loses_is_counted() {
        let (sender, mut receiver) = CommandSender::channel(1);
        for word in ["GET", "SET", "DEL"] {
            sender.send(CommandOrigin::RedisClient, || vec![word.to_owned()]);
        }
        assert_eq!(receiver.try_recv().map(|command| command.words), Ok(vec!["GET".to_owned()]));
        assert_eq!(sender.lost.load(Ordering::Relaxed), 2);
    }
}

//! The commands of a lane as they pass, each with the line of the repository that sends it. They
//! are recorded while a page asks for them, which it does while its panel is open.

use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loadtest_lab::command_tap::{CommandOrigin, CommandTap, ObservedCommand};
use loadtest_lab::deployment::{Deployment, replica_name};
use serde::Serialize;
use tokio::time::{Instant, sleep};

use crate::command_sources::{SourceIndex, SourceLine, line_of_call, script_begin, script_name};

/// Commands that are kept of a lane.
const MAX_KEPT: usize = 200;
/// Commands of a lane that are shown in a second, and after them the first of each further name;
/// others are counted.
const MAX_PER_S: usize = 40;
/// Most names of which the first command of a second is shown behind the others.
const MAX_NAMES: usize = 20;
/// Most characters of a command, and of a line of the sources.
const MAX_TEXT: usize = 160;
/// For how long after a question commands are recorded.
const INTEREST: Duration = Duration::from_secs(3);
/// How often it is looked whether a page asks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A command as a page gets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct ShownCommand {
    /// The number; it rises by one from command to command.
    id: u64,
    /// Microseconds since the race began.
    t: u64,
    /// `redis`, `script` for a command inside a script; `sql` or `zookeeper` for one of a replica.
    from: &'static str,
    replica: Option<String>,
    text: String,
    /// The line that sends it, if it is known.
    source: Option<SourceLine>,
}

/// What a page gets.
#[derive(Debug, Serialize)]
pub(crate) struct CommandSlice {
    commands: Vec<ShownCommand>,
    /// How many passed in this race while a page asked, those that are not kept included.
    passed: u64,
}

/// The newest commands of a lane.
#[derive(Debug, Default)]
pub(crate) struct CommandLog {
    contents: Mutex<LogState>,
}

#[derive(Debug, Default)]
struct LogState {
    wanted_until: Option<Instant>,
    /// Rules on links are disarmed when these are healed.
    is_disarmed: bool,
    newest: VecDeque<ShownCommand>,
    next_id: u64,
    passed: u64,
}

impl CommandLog {
    fn state(&self) -> MutexGuard<'_, LogState> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The commands from that number on. A question has them recorded for [`INTEREST`].
    pub(crate) fn read(&self, from: u64) -> CommandSlice {
        let mut state = self.state();
        state.wanted_until = Some(Instant::now() + INTEREST);
        let commands = state.newest.iter().filter(|command| command.id >= from).cloned().collect();
        CommandSlice { commands, passed: state.passed }
    }

    /// Links were healed: what listens on them has to begin again.
    pub(crate) fn disarm(&self) {
        self.state().is_disarmed = true;
    }

    fn is_wanted(&self) -> bool {
        self.state().wanted_until.is_some_and(|until| Instant::now() < until)
    }

    fn push(&self, mut command: ShownCommand) {
        let mut state = self.state();
        command.id = state.next_id;
        state.next_id += 1;
        state.passed += 1;
        state.newest.push_back(command);
        if state.newest.len() > MAX_KEPT {
            state.newest.pop_front();
        }
    }

    /// Shows a command of which a test knows only the text.
    #[cfg(test)]
    pub(crate) fn push_text(&self, text: &str) {
        let (from, text) = ("redis", text.to_owned());
        self.push(ShownCommand { id: 0, t: 0, from, replica: None, text, source: None });
    }

    /// Counts commands that are not kept.
    fn skip(&self, count: u64) {
        self.state().passed += count;
    }

    /// Removes the commands of the last race. Numbers go on: a page may have asked for them.
    pub(crate) fn begin(&self) {
        let mut state = self.state();
        state.newest.clear();
        state.passed = 0;
    }

    /// Records commands of a race whenever a page asks for them. It does not end.
    pub(crate) async fn record(
        &self,
        deployment: &Deployment,
        lock: &str,
        race_start: Instant,
    ) -> Infallible {
        let index = SourceIndex::new(lock);
        loop {
            if !self.is_wanted() {
                sleep(POLL_INTERVAL).await;
                continue;
            }
            self.state().is_disarmed = false;
            // A server that is frozen or down is asked again.
            let Ok((tap, mut commands)) = CommandTap::open(deployment).await else {
                sleep(POLL_INTERVAL).await;
                continue;
            };
            let mut sampler = Sampler::new(&index, race_start);
            while self.is_wanted() && !self.state().is_disarmed && tap.is_open() {
                let received = tokio::time::timeout(POLL_INTERVAL, commands.recv()).await;
                match received {
                    Ok(Some(command)) => match sampler.shown(&command) {
                        Some(shown) => self.push(shown),
                        None => self.skip(1),
                    },
                    Ok(None) => break,
                    Err(_nothing_passed) => {}
                }
                self.skip(tap.take_lost());
            }
            self.skip(tap.take_lost());
        }
    }
}

/// Chooses the first commands of each second, so that those of one purchase are together. The first
/// of each name in that second is chosen too, so that a rare one is seen on a busy server.
struct Sampler<'a> {
    index: &'a SourceIndex,
    race_start: Instant,
    second: u64,
    count: usize,
    names: HashSet<String>,
    /// The script that the last client called, and the line of its last command.
    script: Option<(usize, usize)>,
}

impl<'a> Sampler<'a> {
    fn new(index: &'a SourceIndex, race_start: Instant) -> Self {
        Self { index, race_start, second: 0, count: 0, names: HashSet::new(), script: None }
    }

    fn shown(&mut self, command: &ObservedCommand) -> Option<ShownCommand> {
        let since = command.at.saturating_duration_since(self.race_start);
        if since.as_secs() != self.second {
            (self.second, self.count) = (since.as_secs(), 0);
            self.names.clear();
        }
        let words = &command.words;
        let name = words.first()?;
        let is_call = command.origin == CommandOrigin::RedisClient
            && ["EVAL", "EVALSHA"].iter().any(|call| name.eq_ignore_ascii_case(call));
        let (text, source) = match command.origin {
            CommandOrigin::RedisClient if is_call => {
                let script = words.get(1).and_then(|body| self.index.script(body));
                self.script = script.map(|script| (script, 0));
                let (file, source) = script.map_or((None, None), |script| {
                    (Some(script_name(script)), Some(script_begin(script)))
                });
                let rest = words.get(2..).unwrap_or_default().join(" ");
                (format!("{name} {} {rest}", file.unwrap_or("?")), source)
            }
            CommandOrigin::RedisScript => {
                let (script, line) = self.script.unwrap_or((usize::MAX, 0));
                let source = line_of_call(script, line, name);
                if let Some((_, line)) = source {
                    self.script = Some((script, line));
                }
                (words.join(" "), source.map(|(source, _)| source))
            }
            CommandOrigin::RedisClient => {
                let text = words.join(" ");
                let source = self.index.line_of_redis(&text);
                (text, source)
            }
            CommandOrigin::Replica(_) => {
                let text = words.join(" ");
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let source = self.index.line_of_sql(&text);
                (text, source)
            }
            CommandOrigin::ReplicaToZooKeeper(_) => {
                let text = words.join(" ");
                let source = self.index.line_of_zookeeper(&text);
                (text, source)
            }
        };
        // Questions of the health check and looks for deadlocks tell nothing of a purchase.
        let script = self.script.map(|(script, _)| script_name(script));
        let is_look = script == Some("exchange_waits.lua")
            && (is_call || command.origin == CommandOrigin::RedisScript);
        if is_look || name.eq_ignore_ascii_case("PING") {
            return None;
        }
        let name = text.split(' ').next().unwrap_or_default();
        let is_new = self.names.len() < MAX_NAMES && self.names.insert(name.to_owned());
        if self.count >= MAX_PER_S && !is_new {
            return None;
        }
        self.count += 1;
        let (from, replica) = match command.origin {
            CommandOrigin::RedisClient => ("redis", None),
            CommandOrigin::RedisScript => ("script", None),
            CommandOrigin::Replica(index) => ("sql", Some(index)),
            CommandOrigin::ReplicaToZooKeeper(index) => ("zookeeper", Some(index)),
        };
        let replica = replica.map(replica_name);
        let t = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        Some(ShownCommand { id: 0, t, from, replica, text: short(&text), source })
    }
}

/// The begin of a text.
pub(crate) fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;

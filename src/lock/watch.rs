//! `seckill lock ls --watch`: the list, read again every second until SIGINT or SIGTERM.

use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::failure::{Failure, SERVER_FAILED};
use super::held_list::{LockLists, print_out};
use crate::config::LockLs;

/// From the end of a list to the next one.
const LIST_INTERVAL: Duration = Duration::from_secs(1);
/// The most lines of a terminal that are drawn.
const MAX_LINES: usize = 500;
/// Clears a terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Prints lists until a signal ends it. An outage of a server does not.
pub(super) async fn watch(config: &LockLs) -> Result<u8, Failure> {
    let mut lists = LockLists::new(config)?;
    let (mut interrupt, mut terminate) =
        (listen_for(SignalKind::interrupt())?, listen_for(SignalKind::terminate())?);
    let print = async {
        loop {
            let text = screen(lists.draw().await?, io::stdout().is_terminal());
            // A reader that has stopped must not hold up the signals.
            let printed = spawn_blocking(move || print_out(&text)).await;
            printed.map_err(|error| Failure::new(SERVER_FAILED, error.to_string()))??;
            sleep(LIST_INTERVAL).await;
        }
    };
    tokio::select! {
        ended = print => ended,
        _ = interrupt.recv() => Ok(0),
        _ = terminate.recv() => Ok(0),
    }
}

fn listen_for(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::new(SERVER_FAILED, format!("no signals: {error}")))
}

fn screen(text: String, is_terminal: bool) -> String {
    if !is_terminal {
        return text;
    }
    let count = text.lines().count();
    let mut lines: Vec<&str> = text.lines().take(MAX_LINES).collect();
    let more = format!("and {} more lines", count.saturating_sub(MAX_LINES));
    if count > MAX_LINES {
        lines.push(&more);
    }
    format!("{CLEAR}{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_cleared_and_gets_a_bounded_number_of_lines() {
        assert_eq!(screen("a\nb".to_owned(), false), "a\nb");
        assert_eq!(screen("a\nb".to_owned(), true), format!("{CLEAR}a\nb"));
        let drawn = screen("a\n".repeat(MAX_LINES + 7), true);
        assert!(drawn.ends_with("a\nand 7 more lines"));
        assert_eq!(drawn.lines().count(), MAX_LINES + 1);
    }
}

//! Prints for people. A closed pipe (`| head`) ends nothing: the work continues, reports are
//! written, and servers are taken down.

use std::fmt::Display;
use std::future::Future;
use std::io::{IsTerminal as _, Write, stderr, stdout};
use std::pin::pin;
use std::time::{Duration, Instant};

/// How often long work is reported where no bar is drawn.
const REMIND_EVERY: Duration = Duration::from_secs(10);

/// A line of what was asked for.
pub fn print_line(line: impl Display) {
    let _nobody_reads = writeln!(stdout(), "{line}");
}

/// A line about the work.
pub fn print_status(line: impl Display) {
    let _nobody_reads = writeln!(stderr(), "{line}");
}

/// Does the work, and prints every ten seconds what it is and how long it has taken so far. Not on
/// a terminal, where a bar is drawn.
pub async fn print_elapsed_during<T>(what: impl Display, work: impl Future<Output = T>) -> T {
    if stderr().is_terminal() {
        return work.await;
    }
    let told =
        |took: Duration| print_status(format_args!("        {what}: {:.0} s", took.as_secs_f64()));
    print_elapsed_every(REMIND_EVERY, told, work).await
}

async fn print_elapsed_every<T>(
    every: Duration,
    told: impl Fn(Duration),
    work: impl Future<Output = T>,
) -> T {
    let (began, mut work) = (Instant::now(), pin!(work));
    loop {
        match tokio::time::timeout(every, &mut work).await {
            Ok(done) => return done,
            Err(_) => told(began.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn long_work_is_reported_repeatedly_until_it_is_done() {
        let reminders = Cell::new(0);
        let told = |_| reminders.set(reminders.get() + 1);
        let work = async {
            while reminders.get() < 3 {
                tokio::task::yield_now().await;
            }
            "done"
        };
        let done = print_elapsed_every(Duration::from_millis(1), told, work);
        let done = tokio::time::timeout(Duration::from_secs(20), done).await;
        assert_eq!((done.expect("in time"), reminders.get()), ("done", 3));
    }
}

//! The contender: a process that takes, keeps and loses locks on command, for tests.
//!
//! It decides nothing and checks nothing: it does what lines on stdin say and reports on stdout
//! what happened and when ([`conformance::protocol`]). It ends when stdin does, without releasing
//! anything.

mod contender;

use std::io::{self, BufRead};
use std::process::ExitCode;
use std::sync::Arc;

use conformance::protocol::{Request, Response, Setup};
use contender::CommandHandler;
use contender::speech::say;
use tokio::runtime::{Builder, Runtime};

/// Threads of the runtime: enough that tasks get into each other's way.
const THREADS: usize = 2;

fn main() -> ExitCode {
    let runtime = match Builder::new_multi_thread().worker_threads(THREADS).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return complain(&error),
    };
    let outcome = run(&runtime);
    // What is still under way is cut off, as by a crash.
    runtime.shutdown_background();
    outcome.map_or_else(|error| complain(&error), |()| ExitCode::SUCCESS)
}

fn complain(error: &io::Error) -> ExitCode {
    eprintln!("contender: {error}");
    ExitCode::FAILURE
}

fn run(runtime: &Runtime) -> io::Result<()> {
    let mut lines = io::stdin().lock().lines();
    let Some(first) = lines.next() else { return Ok(()) };
    let setup: Setup = serde_json::from_str(&first?)?;
    let contender = match runtime.block_on(CommandHandler::start(setup)) {
        Ok(contender) => Arc::new(contender),
        Err(failure) => {
            say(None, Response::Failed(failure));
            return Ok(());
        }
    };
    say(None, Response::Ready);
    for line in lines {
        let Request { id, command } = serde_json::from_str(&line?)?;
        let contender = Arc::clone(&contender);
        runtime.spawn(async move { say(Some(id), contender.obey(command).await) });
    }
    Ok(())
}

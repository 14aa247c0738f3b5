//! The program at a terminal: what it says, what it writes, and how it ends.

mod files;
mod lock_codes;
mod lock_deadlocks;
mod lock_end;
mod lock_inspection;
mod lock_inspection_faults;
mod lock_inspection_json;
mod lock_kinds;
mod lock_once_per;
mod lock_run;
mod lock_skip;
mod locks;
mod refusals;
mod starts;
mod token_revoke;
mod usage;

use std::io::Read;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::fleet::SECKILL;
use crate::support::{Place, SECRET};

/// Nothing that ends by itself takes longer. A migration may take two minutes, by its own bound:
/// on a disk that is busy with what was just built it came to 20 s.
const DEADLINE: Duration = Duration::from_secs(150);

/// How a run of the program ended.
#[derive(Debug)]
struct CommandOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// Runs the program to its end, with no environment but the given one.
fn run(args: &[&str], env: &[(&str, &str)]) -> CommandOutput {
    let mut command = Command::new(SECKILL);
    command.args(args).env_clear().envs(env.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program");
    let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let started = Instant::now();
    thread::scope(|scope| {
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let out = scope.spawn(move || out.read_to_string(&mut stdout).map(|_| stdout));
        let err = scope.spawn(move || err.read_to_string(&mut stderr).map(|_| stderr));
        let status = loop {
            if let Some(status) = child.try_wait().expect("its status") {
                break Some(status);
            }
            if started.elapsed() > DEADLINE {
                child.kill().expect("it is killed");
                child.wait().expect("it is gone");
                break None;
            }
            thread::sleep(Duration::from_millis(5));
        };
        let stdout = out.join().unwrap().expect("UTF-8");
        let stderr = err.join().unwrap().expect("UTF-8");
        let status = status.unwrap_or_else(|| panic!("{args:?} never ended: {stdout}{stderr}"));
        CommandOutput { code: status.code(), stdout, stderr }
    })
}

impl CommandOutput {
    /// What was printed, if all went well.
    fn fine(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.stdout
    }

    /// One sentence on stderr, exit code 2, and nothing else; without the passwords of `place`.
    fn refused(self, place: Option<&Place>, why: &str) {
        let Self { code, stdout, stderr } = &self;
        assert_eq!((*code, stdout.as_str()), (Some(2), ""), "{self:?}");
        let line = stderr.strip_suffix('\n').unwrap_or_else(|| panic!("no line: {self:?}"));
        assert!(line.starts_with("seckill: ") && !line.contains('\n'), "{self:?}");
        assert!(line.contains(why), "{why} is not in {line:?}");
        let mut secrets = vec![SECRET.to_owned()];
        if let Some(place) = place {
            secrets.extend([&place.database_url, &place.redis_url].map(|url| password(url)));
        }
        for secret in secrets.iter().map(String::as_str).chain(["sqlx::", "src/", "SELECT"]) {
            assert!(!line.contains(secret), "{secret} is in {line:?}");
        }
        let words: Vec<_> = line.split(": ").collect();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "it repeats itself: {line:?}");
    }
}

/// The password in a URL.
fn password(url: &str) -> String {
    let (_, rest) = url.split_once("://").expect("a URL");
    let (login, _) = rest.split_once('@').expect("a login");
    login.split_once(':').expect("a password").1.to_owned()
}

/// The environment of a service at that place.
fn env(place: &Place) -> [(&str, &str); 3] {
    [("DATABASE_URL", &place.database_url), ("REDIS_URL", &place.redis_url), ("JWT_SECRET", SECRET)]
}

//! `loadtest run`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use loadtest_load::arrival::Arrival;
use loadtest_load::client::Target;
use loadtest_load::mix::Mix;
use loadtest_load::plan::Plan;
use loadtest_load::tokens;
use loadtest_load::tokens::User;
use loadtest_measure::error::{Error, Result};
use loadtest_measure::files::{check_writable, write_json};
use loadtest_measure::print::print_line;
use loadtest_report::run_text;
use uuid::Uuid;

use crate::run::{self, AuditSource};

/// Simultaneous requests of each user, unless the command line says otherwise.
const PER_USER: usize = 3;

#[derive(Debug, Args)]
#[command(after_help = super::EXIT_CODES, after_long_help = EXAMPLE)]
pub(super) struct RunArgs {
    /// Address of the service, as http://host:port
    #[arg(long, value_name = "URL")]
    target: String,
    /// Users and their tokens, as written by `seckill token --users N --out FILE`
    #[arg(long, value_name = "FILE")]
    tokens: PathBuf,
    /// Ids of vouchers, which must be on sale; the most wanted first
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    voucher: Vec<u64>,
    /// How unequally the vouchers are wanted: the i-th has the share 1 / i^S of all, 0 is alike
    #[arg(long, value_name = "S", default_value_t = 1.0, allow_negative_numbers = true)]
    zipf: f64,
    /// When requests leave
    #[arg(long, value_name = "HOW", default_value = "closed")]
    arrival: ArrivalName,
    /// Arrivals a second of an open loop; of a flash, those before it
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Seconds after which no more users arrive
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    duration: Option<f64>,
    /// Arrivals, one a line: SECONDS [USER [VOUCHER]], counted from the begin, `-` for any user
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How users take part
    #[arg(long, value_name = "MIX")]
    mix: Option<MixName>,
    /// Requests after which no more users arrive [default: all of the mix, or 10,000,000]
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Simultaneous requests of each user, each with an idempotency key of its own [default: 3]
    #[arg(long, value_name = "N")]
    requests_per_user: Option<usize>,
    /// Part of the clients, 0 to 1, that close their connection at a random moment
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    hang_up_share: f64,
    /// What all random choices come from; the same seed gives the same plan [default: a random one]
    ///
    /// Idempotency keys come from it as well: the same seed on the same deployment sends the same
    /// keys again.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Connections that a closed loop keeps busy, and how many an open loop has at most
    #[arg(long, value_name = "N", default_value_t = 96)]
    connections: usize,
    /// How many users of the file take part [default: all]
    #[arg(long, value_name = "N")]
    users: Option<usize>,
    /// Address where the audit is published: the operators' listener or a replica
    #[arg(long, value_name = "URL", requires = "admin_token_file")]
    audit_url: Option<String>,
    /// An administrator's token, as written by `seckill token --admin`
    #[arg(long, value_name = "FILE", requires = "audit_url")]
    admin_token_file: Option<PathBuf>,
    /// Seconds after which a request is given up, or a ticket; its outcome is unknown then
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout_s: u64,
    /// Keep the history of the load in this file, for `loadtest check`
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Write the report as JSON, also if a check failed
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

const EXAMPLE: &str = "\
Examples:
  seckill token --users 700 --out tokens.jsonl
  seckill token --users 1 --admin --out admin.jsonl
  loadtest run --target http://127.0.0.1:8080 --tokens tokens.jsonl --voucher 1 \\
      --audit-url http://127.0.0.1:8081 --admin-token-file admin.jsonl
  loadtest run --target http://127.0.0.1:8080 --tokens tokens.jsonl --voucher 1,2,3 \\
      --mix sold-out --arrival flash --rate 20 --duration 30 --history flash.jsonl.zst

Latency counts from the moment a request was to leave. Arrivals that find all connections busy wait
for one, at most 100,000 of them and none for longer than --timeout-s; the others are counted and
fail the run. There is no verdict on speed when the generator took more than 40 % of the machine or
80 % of its two threads, when 1 % of the arrivals left late although connections were free, by more
than 5 ms and a tenth of the p99 of all latencies, or when requests waited for the history for more
than 1 % of their connections' time.

Where the service answers with tickets (202, `seckill serve --mode queued`), they are followed: a
request ends as its ticket does, and one whose ticket has not ended after --timeout-s is unknown.

Exit codes: 0 all is well, 1 a check failed or the run was interrupted, 2 bad usage or something \
that must run does not.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ArrivalName {
    /// As soon as a connection is free
    Closed,
    /// At equal distances, --rate a second
    Constant,
    /// At random, --rate a second on average
    Poisson,
    /// At random; halfway through --duration the rate rises a hundredfold within a second
    Flash,
    /// As the file --trace says
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MixName {
    /// Each user once, with one request
    Once,
    /// Each user once, with --requests-per-user requests at the same moment (the default)
    Together,
    /// A random user each time, again and again: with little stock most come after the last unit
    SoldOut,
}

fn wrong<T>(text: &str) -> Result<T> {
    Err(Error::Usage(text.to_owned()))
}

impl RunArgs {
    fn plan(&self) -> Result<Plan> {
        let plan = Plan {
            target: Target::parse(&self.target)?,
            vouchers: self.voucher.clone(),
            zipf: self.zipf,
            users: self.users()?.into(),
            mix: self.mix()?,
            arrival: self.arrival()?,
            connections: self.connections,
            timeout: Duration::from_secs(self.timeout_s),
            ticket_timeout: Duration::from_secs(self.timeout_s),
            duration: self.duration()?,
            first_request: 0,
            requests: self.requests,
            hang_up_share: self.hang_up_share,
            with_keys: true,
            seed: self.seed.unwrap_or_else(|| Uuid::new_v4().as_u64_pair().0),
        };
        plan.check()?;
        Ok(plan)
    }

    fn users(&self) -> Result<Vec<User>> {
        let mut users = tokens::read(&self.tokens)?;
        if let Some(wanted) = self.users {
            if wanted == 0 || wanted > users.len() {
                let there = users.len();
                return wrong(&format!("--users must be 1 to {there}, as in the token file"));
            }
            users.truncate(wanted);
        }
        Ok(users)
    }

    fn mix(&self) -> Result<Mix> {
        let mix = self.mix.unwrap_or(MixName::Together);
        if self.arrival == ArrivalName::Trace {
            if self.mix.is_some() || self.requests_per_user.is_some() {
                return wrong("--mix and --requests-per-user do not go with --arrival trace");
            }
            return Ok(Mix::AfterSoldOut);
        }
        if mix != MixName::Together && self.requests_per_user.is_some() {
            return wrong("--requests-per-user goes with --mix together only");
        }
        Ok(match mix {
            MixName::Once => Mix::EachUser { requests: 1 },
            MixName::Together => {
                Mix::EachUser { requests: self.requests_per_user.unwrap_or(PER_USER) }
            }
            MixName::SoldOut => Mix::AfterSoldOut,
        })
    }

    fn duration(&self) -> Result<Option<Duration>> {
        let parse = |seconds: f64| Duration::try_from_secs_f64(seconds).ok();
        match self.duration.map(parse) {
            Some(None) => wrong("--duration is no number of seconds"),
            Some(duration) => Ok(duration),
            None => Ok(None),
        }
    }

    fn arrival(&self) -> Result<Arrival> {
        if (self.arrival == ArrivalName::Trace) != self.trace.is_some() {
            return wrong("--trace FILE and --arrival trace go together");
        }
        let has_rate = matches!(
            self.arrival,
            ArrivalName::Constant | ArrivalName::Poisson | ArrivalName::Flash
        );
        let rate = match self.rate {
            Some(rate) if has_rate => rate,
            None if !has_rate => 0.0,
            _ => return wrong("--rate goes with --arrival constant, poisson or flash, and only"),
        };
        Ok(match self.arrival {
            ArrivalName::Closed => Arrival::Closed,
            ArrivalName::Constant => Arrival::Constant(rate),
            ArrivalName::Poisson => Arrival::Poisson(rate),
            ArrivalName::Flash => {
                let Some(duration) = self.duration()?.filter(|one| one.as_secs() >= 2) else {
                    return wrong("--arrival flash needs a --duration of at least 2");
                };
                Arrival::Flash { rate, middle: duration / 2 }
            }
            ArrivalName::Trace => Arrival::Trace(self.trace.clone().unwrap_or_default()),
        })
    }
}

/// Whether the load went well.
pub(super) async fn run(args: RunArgs) -> Result<bool> {
    let audit = AuditSource::of(args.audit_url.as_deref(), args.admin_token_file.as_ref())?;
    let plan = args.plan()?;
    args.json.as_deref().map_or(Ok(()), check_writable)?;
    let report = run::run(&plan, audit.as_ref(), args.history.as_deref()).await?;
    print_line(run_text::text(&report));
    if let Some(path) = &args.json {
        write_json(path, &report)?;
    }
    Ok(report.ok)
}

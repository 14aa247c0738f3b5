//! A private cluster for a person: three replicas behind the proxy, two vouchers, and nothing left
//! afterwards.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::Flavor;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{self, NewVoucher, rfc3339};
use crate::error::{Error, Result};
use crate::lab::cluster::Cluster;
use crate::lab::deployment::{Deployment, Spec};
use crate::lab::place::Path as SalePath;
use crate::load::client::{Connection, Target};
use crate::report::counted;
use crate::say::say;

/// The page's port unless another one is asked for.
const USUAL_PORT: u16 = 8080;
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Users whose tokens are there for a load.
const LOAD_USERS: usize = 700;
/// Seconds until the second voucher opens.
const OPENS_IN_S: i64 = 60;

/// What is to be started.
#[derive(Debug, Clone)]
pub struct Up {
    /// Which database server.
    pub flavor: Flavor,
    /// The `seckill` program.
    pub program: PathBuf,
    /// Replicas.
    pub replicas: u16,
    /// When replicas answer a purchase.
    pub path: SalePath,
    /// The page's port: one that was asked for must be free.
    pub port: Option<u16>,
}

impl Up {
    /// Starts everything, says where it is, and takes it down when `stop` is cancelled.
    pub async fn run(&self, stop: &CancellationToken) -> Result<()> {
        let (port, remark) = self.choose_port().await?;
        let begun = tokio::select! {
            begun = self.begin(port) => begun?,
            () = stop.cancelled() => return Err(Error::Interrupted),
        };
        let (cluster, deployment, text) = begun;
        let replicas = counted(self.replicas.into(), "replica");
        say(format_args!("\nThe service runs with {replicas}; Ctrl-C takes it down.{remark}\n"));
        say(text);
        stop.cancelled().await;
        say("Taking everything down.");
        deployment.end().await;
        drop(cluster);
        Ok(())
    }

    /// The page's port, and what is to be said about it: the one that was asked for, or the usual
    /// one, or if that is in use any free one (`None`). Looked at before anything is started.
    async fn choose_port(&self) -> Result<(Option<u16>, String)> {
        let port = self.port.unwrap_or(USUAL_PORT);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
            Ok(_free) => Ok((Some(port), String::new())),
            Err(error) if self.port.is_some() => {
                Err(Error::Setup(format!("port {port} of 127.0.0.1 cannot be used: {error}")))
            }
            Err(_) => Ok((None, format!(" Port {port} is in use, so it has another one."))),
        }
    }

    async fn begin(&self, page_port: Option<u16>) -> Result<(Cluster, Deployment, String)> {
        let cluster = Cluster::start(self.flavor, self.program.clone(), &[]).await?;
        let flags = std::iter::once("--dev".to_owned()).chain(self.path.flags()).collect();
        let spec = Spec { replicas: self.replicas, flags, page_port, ..Spec::default() };
        let deployment = cluster.deploy(spec).await?;
        let ((admins, admin_file), (_, buyers_file)) =
            tokio::try_join!(deployment.users(1, true), deployment.users(LOAD_USERS, false))?;
        let mut connection = Connection::new(Target::parse(deployment.url())?, CALL_DEADLINE);
        let [open, later] = vouchers(time::OffsetDateTime::now_utc());
        let mut ids = Vec::new();
        for voucher in [&open, &later] {
            let id = api::put_on_sale(&mut connection, &admins[0].authorization, voucher).await;
            ids.push(id.map_err(|error| Error::Setup(error.to_string()))?);
        }
        let shown = Shown {
            page: deployment.url(),
            operators: deployment.operator_url(),
            admin_file: &admin_file,
            buyers_file: &buyers_file,
            open: (ids[0], &open),
            later: &later,
        };
        let text = shown.text();
        Ok((cluster, deployment, text))
    }
}

/// What a person is told.
struct Shown<'a> {
    page: &'a str,
    operators: &'a str,
    admin_file: &'a Path,
    buyers_file: &'a Path,
    /// The id of the voucher that is open, and what it is.
    open: (u64, &'a NewVoucher),
    later: &'a NewVoucher,
}

impl Shown<'_> {
    fn text(&self) -> String {
        let (open_id, open) = self.open;
        let (later, page, operators) = (self.later, self.page, self.operators);
        let (admin, buyers) = (self.admin_file.display(), self.buyers_file.display());
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {label:<10} {value}");
        };
        let loadtest = std::env::current_exe().unwrap_or_else(|_| "loadtest".into());
        let loadtest = quoted(&loadtest.display().to_string());
        line("page", page.to_owned());
        line("log in", "any phone number, say 13800000001; the page shows the code".to_owned());
        line("open now", format!("{} ({} units)", open.title, open.stock));
        let when = format!("a minute from now: {}", later.starts_at);
        line("soon open", format!("{} ({} units), {when}", later.title, later.stock));
        line("admin", format!("a token is in {admin}"));
        line("operators", format!("{operators} (/metrics, /readyz, audits)"));
        line(
            "a load",
            format!(
                "{loadtest} run --voucher {open_id} --target {page} --tokens {buyers} --audit-url \
                 {operators} --admin-token-file {admin}"
            ),
        );
        // Without an indent and each a command of its own, so that they can be pasted.
        let admin = quoted(&self.admin_file.display().to_string());
        let token = r#"'s/.*"token":"\([^"]*\)".*/\1/'"#;
        let _ = write!(
            text,
            "\nFor the shell:\n\nBASE={page}\nOPERATORS={operators}\nADMIN=$(sed {token} {admin})\n"
        );
        text
    }
}

/// A word of a shell: as it is where that is safe, or else in single quotes.
fn quoted(word: &str) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if !word.is_empty() && word.chars().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// One voucher that can be bought at once, and one that opens a minute later.
fn vouchers(now: time::OffsetDateTime) -> [NewVoucher; 2] {
    let ends_at = rfc3339(now + time::Duration::hours(24));
    [
        NewVoucher {
            title: "Afternoon tea for two".to_owned(),
            description: "A pot of oolong and a three-tier stand, any weekday until six."
                .to_owned(),
            price_cents: 8800,
            face_value_cents: 16_800,
            starts_at: rfc3339(now - time::Duration::minutes(1)),
            ends_at: ends_at.clone(),
            stock: 100,
        },
        NewVoucher {
            title: "Hotpot dinner for four".to_owned(),
            description: "The big pot with everything, drinks not included.".to_owned(),
            price_cents: 19_900,
            face_value_cents: 39_800,
            starts_at: rfc3339(now + time::Duration::seconds(OPENS_IN_S)),
            ends_at,
            stock: 50,
        },
    ]
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_lines_for_the_shell_can_be_pasted_and_set_what_the_examples_need() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let admin_file = folder.path().join("it's an admin.jsonl");
        std::fs::write(&admin_file, r#"{"user_id":"1","token":"a.b-c_d.e"}"#).expect("written");
        let [open, later] = vouchers(time::OffsetDateTime::UNIX_EPOCH);
        let shown = Shown {
            page: "http://127.0.0.1:8080",
            operators: "http://127.0.0.1:24403",
            admin_file: &admin_file,
            buyers_file: Path::new("buyers.jsonl"),
            open: (1, &open),
            later: &later,
        };
        let text = shown.text();
        let names = ["BASE=", "OPERATORS=", "ADMIN="];
        let pasted = text.lines().filter(|line| names.iter().any(|name| line.starts_with(name)));
        let script = pasted.collect::<Vec<_>>().join("\n");
        let printed = r#"printf '%s|' "$BASE" "$OPERATORS" "$ADMIN""#;
        let shell = Command::new("sh").arg("-c").arg(format!("{script}\n{printed}")).output();
        let output = String::from_utf8(shell.expect("a shell").stdout).expect("text");
        assert_eq!(output, "http://127.0.0.1:8080|http://127.0.0.1:24403|a.b-c_d.e|", "{text}");
        assert!(text.contains("  page       http://127.0.0.1:8080\n"), "{text}");
    }
}

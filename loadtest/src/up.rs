//! A private cluster for a person: three replicas behind the proxy, two vouchers, and nothing left
//! afterwards.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use testbed::Flavor;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::{self, NewVoucher, rfc3339};
use crate::client::{Connection, Target};
use crate::cluster::{Cluster, Deployment, Spec};
use crate::error::{Error, Result};

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
        let replicas = self.replicas;
        println!("\nThe service runs with {replicas} replicas; Ctrl-C takes it down.{remark}\n");
        println!("{text}");
        stop.cancelled().await;
        println!("Taking everything down.");
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
        let cluster = Cluster::start(self.flavor, self.program.clone()).await?;
        let flags = vec!["--dev".to_owned()];
        let spec = Spec { number: 0, replicas: self.replicas, flags, page_port };
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
        let open_id = &ids[0];
        let mut text = String::new();
        let mut line = |label: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {label:<10} {value}");
        };
        line("page", format!("{}/", deployment.url()));
        line("log in", "any phone number, say 13800000001; the page shows the code".to_owned());
        line("open now", format!("{} ({} units)", open.title, open.stock));
        line(
            "soon open",
            format!(
                "{} ({} units), a minute from now: {}",
                later.title, later.stock, later.starts_at
            ),
        );
        line("admin", format!("a token is in {}", admin_file.display()));
        line("operators", format!("{} (/metrics, /readyz, audits)", deployment.operator_url()));
        line(
            "a load",
            format!(
                "loadtest run --voucher {open_id} --target {} --tokens {} --audit-url {} \
                 --admin-token-file {}",
                deployment.url(),
                buyers_file.display(),
                deployment.operator_url(),
                admin_file.display()
            ),
        );
        Ok((cluster, deployment, text))
    }
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

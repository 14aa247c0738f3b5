//! One voucher on a private deployment, from its opening to the verdict on what became of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;

use crate::api::{self, NewVoucher};
use crate::error::{Error, Result};
use crate::judge::audit::{Reader, Reading};
use crate::judge::evidence::{Audit, AuditCheck, Evidence};
use crate::judge::verdict::{Verdict, judge};
use crate::lab::cell::CellReport;
use crate::lab::deployment::Deployment;
use crate::lab::place::Load;
use crate::lab::predict::Guards;
use crate::lab::trial::Trial;
use crate::load::client::{Connection, Target};
use crate::load::drive::History;
use crate::load::outcome::Outcome;
use crate::load::plan::Plan;
use crate::load::stats::Figures;
use crate::load::tokens::User;

/// When a request of the load is given up: far beyond every bound of the service, so that it is the
/// service's own answer that counts.
const REQUEST_DEADLINE: Duration = Duration::from_secs(40);
/// The same where a fault may take the answer away: beyond what the service waits in a purchase.
const FAULT_REQUEST_DEADLINE: Duration = Duration::from_secs(8);
/// How long a call besides the load may take.
const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// How often the database is read again, [`SETTLE_PAUSE`] apart, until two readings are equal.
const SETTLE_READINGS: u32 = 25;
const SETTLE_PAUSE: Duration = Duration::from_millis(200);

/// A voucher that is on sale.
#[derive(Debug)]
pub(super) struct Sale<'a> {
    /// Where.
    pub(super) deployment: &'a Deployment,
    trial: Trial,
    load: &'a Load,
    admin: HeaderValue,
    /// Its id.
    pub(super) voucher: String,
    /// Who may buy it.
    pub(super) users: Vec<User>,
}

impl<'a> Sale<'a> {
    /// Puts a voucher on sale to the load's users.
    pub(super) async fn open(
        deployment: &'a Deployment,
        trial: Trial,
        load: &'a Load,
    ) -> Result<Self> {
        let ((users, _), (admins, _)) =
            tokio::try_join!(deployment.users(load.users, false), deployment.users(1, true))?;
        let admin = admins[0].authorization.clone();
        let mut private = Connection::new(Target::parse(deployment.url())?, CALL_DEADLINE);
        let voucher = api::put_on_sale(&mut private, &admin, &on_sale_now(load.stock))
            .await
            .map_err(|error| Error::Setup(error.to_string()))?;
        Ok(Self { deployment, trial, load, admin, voucher, users })
    }

    /// These users, each with so many requests at once, at that address.
    pub(super) fn plan(&self, users: &[User], target: Arc<Target>, per_user: usize) -> Plan {
        Plan {
            target,
            voucher: self.voucher.clone(),
            users: users.into(),
            per_user,
            connections: self.load.connections,
            timeout: match self.trial.fault {
                Some(_) => FAULT_REQUEST_DEADLINE,
                None => REQUEST_DEADLINE,
            },
        }
    }

    /// Judges all requests of these users (records name them by their index).
    pub(super) async fn judge(&self, history: &History, users: &[User]) -> Result<CellReport> {
        let figures = Figures::of(history, self.load.connections);
        let quiet = figures.count(Outcome::Unknown) == 0;
        let guards = self.trial.place.guards;
        let reading = read(self.deployment, &self.voucher, (guards, quiet)).await?;
        let operator = Target::parse(self.deployment.operator_url())?;
        let mut operator = Connection::new(operator, CALL_DEADLINE);
        let said = api::audit(&mut operator, &self.admin, &self.voucher).await;
        let dead = self.deployment.dead();
        if !dead.is_empty() {
            return Err(Error::Setup(format!("replica {} died", dead.join(" and "))));
        }
        let stock = self.load.stock;
        let verdict = judge_private((users, stock), history, &reading, said.as_ref().ok());
        let mut report = CellReport::of(self.trial, stock, figures, verdict);
        if let Err(error) = &said {
            report.error = Some(error.to_string());
        }
        report.audit = said.ok();
        Ok(report)
    }
}

/// Judges a load on a voucher with this `stock`: what was asked for, whatever the service made of
/// it.
pub(super) fn judge_private(
    (users, stock): (&[User], u64),
    history: &History,
    reading: &Reading,
    said: Option<&Audit>,
) -> Verdict {
    let users: Vec<u64> = users.iter().map(|user| user.id).collect();
    let own = &reading.account;
    judge(&Evidence {
        records: &history.records,
        users: &users,
        rows: &reading.rows,
        rows_are_all: true,
        earlier: &HashSet::new(),
        offered: Some(i64::try_from(stock).unwrap_or(i64::MAX)),
        granted: Some(own.initial_stock),
        left: Some(own.stock_left),
        audit: said.map_or(AuditCheck::Absent, |said| AuditCheck::Equal { said, own }),
    })
}

/// Reads the voucher; unless all is `quiet`, until two readings are equal, because a request whose
/// outcome is unknown may still be at work.
async fn read(
    deployment: &Deployment,
    voucher: &str,
    (guards, quiet): (Guards, bool),
) -> Result<Reading> {
    let mut reader = Reader::connect(deployment.database_url()).await?;
    let mut last = reader.read(voucher, guards).await?;
    if quiet {
        return Ok(last);
    }
    for _ in 0..SETTLE_READINGS {
        tokio::time::sleep(SETTLE_PAUSE).await;
        let next = reader.read(voucher, guards).await?;
        if next.account == last.account {
            return Ok(next);
        }
        last = next;
    }
    Err(Error::Setup("the orders still changed after the load had ended".to_owned()))
}

fn on_sale_now(stock: u64) -> NewVoucher {
    let now = time::OffsetDateTime::now_utc();
    NewVoucher {
        title: "100-yuan voucher for 80".to_owned(),
        description: "Sold in one go, to whoever comes first.".to_owned(),
        price_cents: 8000,
        face_value_cents: 10_000,
        starts_at: api::rfc3339(now - time::Duration::minutes(1)),
        ends_at: api::rfc3339(now + time::Duration::hours(1)),
        stock,
    }
}

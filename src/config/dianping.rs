//! Flags of hm-dianping's API, and `seckill adopt`.

use clap::{Args, ValueEnum};
use time::UtcOffset;
use time::macros::format_description;

use super::Address;
use super::serve::{LOCK, Serve};
use crate::domain::UserId;
use crate::sale::{Guards, Scope};
use crate::store::OrderCounter;
use crate::store::dianping::AdoptMode;

/// Which API is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ApiKind {
    /// The native API alone.
    Native,
    /// The native API, and that of hm-dianping beside it.
    HmDianping,
}

/// The flags of hm-dianping's API.
#[derive(Debug, Args)]
#[command(next_help_heading = "The API of hm-dianping")]
pub struct DianpingArgs {
    /// `hm-dianping`: serve its API beside the native one, on its tables and keys, so that replicas
    /// of both serve one sale. Needs --lock redisson and --lock-scope user (docs/hm-dianping.md).
    #[arg(long, env = "API", value_enum, default_value = "native")]
    pub api: ApiKind,
    /// Zone of that API's times, which have none, as `+08:00`: that of hm-dianping's own replicas
    /// [default: that of the database server]
    #[arg(long, env = "DIANPING_ZONE", value_parser = zone, allow_hyphen_values = true)]
    pub dianping_zone: Option<UtcOffset>,
    /// The key of Redis that numbers the orders of a day, as hm-dianping's own replicas name it:
    /// with `yyyy`, `MM` and `dd` in it, as icr:order:yyyy:MM:dd [default: icr:order:yyyyMMdd]
    #[arg(long, env = "DIANPING_COUNTER")]
    pub dianping_counter: Option<OrderCounter>,
    /// Users of `tb_user` who may create vouchers there, by id, separated by commas. Without them
    /// that is refused.
    #[arg(long, env = "DIANPING_ADMINS", value_delimiter = ',')]
    pub dianping_admins: Vec<UserId>,
}

impl DianpingArgs {
    /// Whether that API is served.
    pub fn is_served(&self) -> bool {
        self.api == ApiKind::HmDianping
    }

    /// The counter of its orders, if that API is served.
    pub fn counter(&self) -> Option<OrderCounter> {
        let counter = || self.dianping_counter.clone().unwrap_or(OrderCounter::DIANPING);
        self.is_served().then(counter)
    }
}

fn zone(text: &str) -> Result<UtcOffset, String> {
    let form = format_description!("[offset_hour sign:mandatory]:[offset_minute]");
    UtcOffset::parse(text, form).map_err(|_| "must be hours and minutes, as +08:00".to_owned())
}

/// Refuses settings by which replicas of both kinds would not exclude each other.
pub(super) fn check_dianping(serve: &Serve) -> Result<(), String> {
    let DianpingArgs { dianping_zone, dianping_counter, dianping_admins, .. } = &serve.dianping;
    if !serve.dianping.is_served() {
        let given = [
            (dianping_zone.is_some(), "--dianping-zone"),
            (dianping_counter.is_some(), "--dianping-counter"),
            (!dianping_admins.is_empty(), "--dianping-admins"),
        ];
        return match given.iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => Err(format!("{flag} is for --api hm-dianping")),
            None => Ok(()),
        };
    }
    let senseless = [
        (serve.lock.as_str() != LOCK, "--lock redisson"),
        (serve.lock_scope != Scope::User, "--lock-scope user"),
        (serve.laboratory.guards == Guards::Off, "--guards on"),
        (serve.laboratory.inject_bug.is_some(), "no --inject-bug"),
    ];
    match senseless.iter().find(|(is_asked_for, _)| *is_asked_for) {
        Some((_, needed)) => Err(format!(
            "--api hm-dianping needs {needed}: its replicas lock lock:order:<user> by Redisson"
        )),
        None => Ok(()),
    }
}

/// `seckill adopt`.
#[derive(Debug, Args)]
pub struct Adopt {
    /// Address of hm-dianping's database: `mysql://user:password@host:3306/database`.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    pub from: Address,
    /// What to do with second orders of a user for one voucher. `refuse` lists them and changes
    /// nothing; `set-aside` keeps a paid order, else the oldest, and moves the others to the table
    /// `tb_voucher_order_set_aside`.
    #[arg(long, value_enum, default_value = "refuse", conflicts_with = "undo")]
    pub duplicates: AdoptMode,
    /// Take back what `adopt` did: the unique key, orders set aside, and tables that it made and
    /// that are empty.
    #[arg(long)]
    pub undo: bool,
}

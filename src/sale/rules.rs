//! How purchases are made: the axes that are chosen when a replica starts, and its bounds.

use std::time::Duration;

use distlock::LockOptions;

use super::Plant;

/// What the lock's name is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `lock:order:<userId>`: one purchase of a user at a time, whatever the voucher.
    User,
    /// `lock:voucher:<voucherId>`: one purchase of a voucher at a time.
    Voucher,
}

/// Whether the database has the last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guards {
    /// Unique key and conditional stock update.
    On,
    /// The textbook's naive code, in tables of its own.
    Off,
}

/// Where the lock is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockOrder {
    /// Around the transaction, and freed after its commit.
    Outside,
    /// Inside it, and freed before its commit: the classic mistake, for the laboratory.
    Inside,
}

/// What writes the orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Writer {
    /// One transaction for each order.
    Single,
    /// Orders of a voucher that arrive while a transaction is on its way are committed together.
    Grouped,
}

/// When a purchase is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Path {
    /// When its order is committed.
    Direct,
    /// When it is admitted, with a ticket; its order is written from a stream in Redis.
    Queued,
}

/// How many orders the writer `grouped` takes.
#[derive(Debug, Clone, Copy)]
pub struct GroupLimits {
    /// The most in one transaction.
    pub size: usize,
    /// The most of one voucher that wait for a transaction; more are refused at once.
    pub queue: usize,
}

/// What a purchase does whose lock is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum OnLost {
    /// It is rolled back.
    Stop,
    /// It works on as if it held the lock, and releases it in the end: what naive code does, for
    /// the laboratory.
    Ignore,
}

/// How purchases are made.
#[derive(Debug, Clone)]
pub struct Rules {
    /// What the lock's name is made of.
    pub scope: Scope,
    /// Whether the database has the last word.
    pub guards: Guards,
    /// What writes the orders.
    pub writer: Writer,
    /// How many at a time, if they are written in groups.
    pub groups: GroupLimits,
    /// Where the lock is taken.
    pub lock_order: LockOrder,
    /// What a purchase does whose lock is lost.
    pub on_lost: OnLost,
    /// How long to wait for the lock, and how long it lives without its holder.
    pub lock: LockOptions,
    /// Extra time inside the section (laboratory).
    pub work: Duration,
    /// A deliberate bug (laboratory).
    pub plant: Option<Plant>,
    /// A bug whose way through the code purchases take without having it (laboratory).
    pub control: Option<Plant>,
    /// The most purchases at a time; more are refused at once.
    pub max_orders: usize,
}

/// Whoever waits for so long comes through behind a release, whichever way the kind waits.
const PATIENT: Duration = Duration::from_millis(100);

impl Rules {
    /// Whether a purchase may be answered before its lock is given back: a user who asks again at
    /// once meets it, and would otherwise be refused.
    pub(super) fn may_answer_first(&self) -> bool {
        self.lock.wait >= PATIENT
    }

    /// Whether those who come too late are answered from memory. Not where the laboratory asks what
    /// a purchase is worth that nothing guards, nor where its bugs have to show.
    pub(super) fn remember_the_late(&self) -> bool {
        let sound = self.plant.or(self.control).is_none_or(|plant| plant == Plant::SoldOutForEver);
        self.guards == Guards::On && sound
    }
}

//! The final reads of a voucher, after every fault has healed, as events of the history.

use std::collections::{BTreeMap, HashSet};

use crate::history::event::{
    Account, AuditMoment, EarlierOrder, EffectEvent, Event, Order, ServiceAudit, Source,
};
use crate::history::final_state::{Audit, DatabaseReading, OrderRow};
use crate::history::writer::Recorder;

impl Order {
    /// The line of an order of that voucher.
    pub fn of(voucher: u64, row: &OrderRow) -> Self {
        let OrderRow { id, user_id, cancelled, key } = *row;
        Self { v: voucher, o: id, u: user_id, x: cancelled, k: key }
    }
}

/// What is recorded of a voucher.
#[derive(Debug, Clone, Copy)]
pub enum FinalRead<'a> {
    /// What the judge read in the database.
    Database {
        /// The reading.
        reading: &'a DatabaseReading,
        /// The service's own account of the same moment.
        said: Option<&'a Audit>,
    },
    /// What clients see.
    Clients {
        /// Orders of the load's users.
        rows: &'a [OrderRow],
        /// Ids of those from before the load.
        earlier: &'a HashSet<u64>,
        /// Units left, as the public sees.
        left: Option<i64>,
        /// The service's own account before the load and after it.
        audits: Option<[&'a Audit; 2]>,
    },
}

impl Recorder {
    /// Records what was read of a voucher at the end; once for each.
    pub async fn final_read(&self, voucher: u64, read: FinalRead<'_>) {
        let v = voucher;
        let (rows, audits) = match read {
            FinalRead::Database { reading, said } => (&reading.rows[..], [None, said]),
            FinalRead::Clients { rows, audits, .. } => {
                (rows, audits.map_or([None; 2], |both| both.map(Some)))
            }
        };
        if let FinalRead::Clients { earlier, .. } = read {
            for &o in earlier {
                self.record(Event::Earlier(EarlierOrder { v, o })).await;
            }
        }
        for row in rows {
            self.record(Event::Order(Order::of(v, row))).await;
        }
        if let FinalRead::Database { reading, .. } = read {
            self.effects(v, reading).await;
        }
        for (when, said) in [AuditMoment::Before, AuditMoment::After].into_iter().zip(audits) {
            if let Some(said) = said.cloned() {
                self.record(Event::Audit(ServiceAudit { v, when, said })).await;
            }
        }
        self.record(Event::Account(account(v, rows.len() as u64, read))).await;
    }

    async fn effects(&self, v: u64, reading: &DatabaseReading) {
        for effect in &reading.effects {
            let name = reading.resources.get(effect.resource as usize);
            let res = name.cloned().unwrap_or_default().into();
            let (seq, token, o) = (effect.seq, effect.token, effect.order);
            self.record(Event::Effect(EffectEvent { v, res, seq, token, o })).await;
        }
    }
}

fn account(v: u64, orders: u64, read: FinalRead<'_>) -> Account {
    match read {
        FinalRead::Database { reading, .. } => database_account(v, reading),
        FinalRead::Clients { left, .. } => {
            let (granted, source, tables) = (None, Source::Clients, BTreeMap::new());
            Account { v, granted, left, orders, source, tables }
        }
    }
}

/// The account of a reading of the database.
pub fn database_account(v: u64, reading: &DatabaseReading) -> Account {
    Account {
        v,
        granted: Some(reading.account.initial_stock),
        left: Some(reading.account.stock_left),
        orders: reading.rows.len() as u64,
        source: Source::Database,
        tables: reading.account.tables.clone(),
    }
}

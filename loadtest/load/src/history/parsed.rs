//! A recorded history as the judge needs it: 48 bytes a request, and what was read at the end.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU64;
use std::ops::Range;
use std::path::Path;

use crate::history::event::{
    Account, AuditMoment, Begin, Completion, Condition, EffectEvent, Event, FORMAT, Grant, Invoke,
    Mark, Offer, ServiceAudit, VERSION,
};
use crate::history::final_state::{Audit, Effect, OrderRow, Protects};
use crate::history::key::key_of;
use crate::history::record::{LockHold, NO_END, Names, Record};
use crate::history::{ReadError, Reader};
use crate::outcome::{ADMITTED, Outcome, SAME_TICKET};

/// Different names of one sort that are distinguished; further ones share the last index.
const MAX_NAMES: usize = 256;
/// Marks that are kept; a round has three for each of its faults.
const MAX_MARKS: usize = 256;
/// Holds that are kept, of the first requests that tell one: in some 50 MiB.
const MAX_HOLDS: usize = 1_000_000;
/// What stands for the names beyond.
const OTHER_NAMES: &str = "(others)";
/// The code of a request whose end was not recorded.
const NO_END_CODE: &str = "no end was recorded";

/// A whole history.
#[derive(Debug)]
pub struct History {
    /// Its header.
    pub begin: Begin,
    /// Every request, in the order in which they are judged.
    pub records: Vec<Record>,
    /// Names that records refer to.
    pub names: Names,
    /// What was on sale, in the header's order.
    pub vouchers: Vec<VoucherHistory>,
    /// What must be so for it to say anything, and its requests do not show.
    pub conditions: Vec<Condition>,
    /// What happened besides requests, at most `MAX_MARKS`.
    pub marks: Vec<Mark<'static>>,
    /// Lines of the file.
    pub events: u64,
}

/// One voucher.
#[derive(Debug)]
pub struct VoucherHistory {
    /// What was on sale.
    pub offer: Offer,
    /// Where its requests are among all.
    pub records: Range<usize>,
    /// Its orders at the end.
    pub rows: Vec<OrderRow>,
    /// Ids of its orders from before the load.
    pub earlier: HashSet<u64>,
    /// What else was read of it at the end.
    pub account: Option<Account>,
    /// The service's account before the load and after it.
    pub audits: [Option<Audit>; 2],
    /// What fenced holders did.
    pub effects: Vec<Effect>,
    /// Units that were added in the middle of the load.
    pub grants: Vec<Grant>,
}

impl VoucherHistory {
    /// Units on sale, those added later included.
    pub fn offered(&self) -> Option<i64> {
        let added: i64 = self.grants.iter().map(|grant| grant.units).sum();
        self.offer.offered.map(|offered| offered.saturating_add(added))
    }
}

impl History {
    /// Reads a history that is whole and says nothing twice.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let (gathering, lines, ended) = HistoryBuilder::read(path, false)?;
        if !ended {
            let why = "the line that ends it is missing".to_owned();
            return Err(ReadError::CutOff { lines, why });
        }
        gathering.finish(lines)
    }

    /// Reads what there is of a history that is still being written.
    pub fn read_so_far(path: &Path) -> Result<Self, ReadError> {
        let (gathering, lines, _) = HistoryBuilder::read(path, true)?;
        gathering.finish(lines)
    }

    /// The requests for a voucher.
    pub fn records_of(&self, voucher_history: &VoucherHistory) -> &[Record] {
        &self.records[voucher_history.records.clone()]
    }
}

fn broken(line: u64, why: String) -> ReadError {
    ReadError::Broken { line, why }
}

/// A history that is being read.
struct HistoryBuilder {
    history: History,
    /// Where each request without an end is among the records.
    open: HashMap<u32, u32>,
    voucher_indexes: HashMap<u64, u16>,
    resources: HashMap<String, u32>,
}

impl HistoryBuilder {
    /// Reads a file, to where it was cut off if that may be; gives its lines, and whether the last
    /// one ends it.
    fn read(path: &Path, may_be_cut_off: bool) -> Result<(Self, u64, bool), ReadError> {
        let mut reader = Reader::open(path)?;
        let begin = match reader.next_event()? {
            Some(Event::Begin(begin)) => begin,
            Some(_) => return Err(broken(1, "it is no header".to_owned())),
            None => return Err(ReadError::CutOff { lines: 0, why: "it is empty".to_owned() }),
        };
        let mut gathering = Self::of(begin).map_err(|why| broken(1, why))?;
        let mut ended = false;
        let mut number = 1;
        loop {
            let event = match reader.next_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(ReadError::CutOff { .. }) if may_be_cut_off => break,
                Err(error) => return Err(error),
            };
            number += 1;
            if ended {
                return Err(broken(number, "it comes after the end".to_owned()));
            }
            ended = matches!(event, Event::End(_));
            gathering.add(&event, number).map_err(|why| broken(number, why))?;
        }
        Ok((gathering, number, ended))
    }

    fn of(begin: Begin) -> Result<Self, String> {
        if (begin.format.as_str(), begin.version) != (FORMAT, VERSION) {
            let (format, version) = (&begin.format, begin.version);
            return Err(format!("{format} {version} is not {FORMAT} {VERSION}"));
        }
        let mut voucher_indexes = HashMap::new();
        for (index, offer) in begin.vouchers.iter().enumerate() {
            let index = u16::try_from(index).map_err(|_| "it has too many vouchers".to_owned())?;
            if voucher_indexes.insert(offer.id, index).is_some() {
                return Err(format!("it names voucher {} twice", offer.id));
            }
        }
        if voucher_indexes.is_empty() {
            return Err("it names no voucher".to_owned());
        }
        let voucher_history = |offer: &Offer| VoucherHistory {
            offer: offer.clone(),
            records: 0..0,
            rows: Vec::new(),
            earlier: HashSet::new(),
            account: None,
            audits: [None, None],
            effects: Vec::new(),
            grants: Vec::new(),
        };
        let vouchers = begin.vouchers.iter().map(voucher_history).collect();
        let names = Names { codes: vec![NO_END_CODE.to_owned()], ..Names::default() };
        let (records, conditions, marks) = (Vec::new(), Vec::new(), Vec::new());
        let history = History { begin, records, names, vouchers, conditions, marks, events: 0 };
        Ok(Self { history, open: HashMap::new(), voucher_indexes, resources: HashMap::new() })
    }

    fn add(&mut self, event: &Event<'_>, number: u64) -> Result<(), String> {
        match event {
            Event::Begin(_) => return Err("a second header".to_owned()),
            Event::Invoke(invoke) => self.invoke(invoke)?,
            Event::Ok(ended) => self.end(ended, Outcome::Bought)?,
            Event::Fail(ended) => {
                let outcome = match ended.c.as_deref() {
                    Some("sold_out") => Outcome::SoldOut,
                    Some("already_ordered") => Outcome::AlreadyOrdered,
                    _ => Outcome::Refused,
                };
                self.end(ended, outcome)?;
            }
            Event::Unknown(ended) => self.end(ended, Outcome::Unknown)?,
            Event::Mark(mark) => {
                if self.history.marks.len() < MAX_MARKS {
                    self.history.marks.push(mark.kept());
                }
            }
            Event::Grant(grant) => self.voucher_history(grant.v)?.grants.push(*grant),
            Event::Condition(condition) => self.history.conditions.push(condition.clone()),
            Event::Order(order) => {
                self.voucher_history(order.v)?.rows.push(OrderRow {
                    id: order.o,
                    user_id: order.u,
                    cancelled: order.x,
                    key: order.k,
                });
            }
            Event::Earlier(earlier) => {
                self.voucher_history(earlier.v)?.earlier.insert(earlier.o);
            }
            Event::Account(account) => self.account(account)?,
            Event::Audit(ServiceAudit { v, when, said }) => {
                let place =
                    &mut self.voucher_history(*v)?.audits[usize::from(*when == AuditMoment::After)];
                if place.replace(said.clone()).is_some() {
                    return Err(format!("a second audit of voucher {v}"));
                }
            }
            Event::Effect(effect) => self.effect(effect)?,
            Event::End(end) => {
                let (requests, events) = (self.history.records.len() as u64, number - 1);
                if (end.requests, end.events) != (requests, events) {
                    return Err(format!(
                        "it counts {} requests and {} lines, of which {requests} and {events} are \
                         there",
                        end.requests, end.events
                    ));
                }
            }
        }
        Ok(())
    }

    fn voucher_history(&mut self, voucher: u64) -> Result<&mut VoucherHistory, String> {
        let index = self.voucher_indexes.get(&voucher);
        let index = index.ok_or_else(|| format!("voucher {voucher} is not in the header"))?;
        Ok(&mut self.history.vouchers[usize::from(*index)])
    }

    fn invoke(&mut self, invoke: &Invoke) -> Result<(), String> {
        let voucher = self.voucher_indexes.get(&invoke.v);
        let voucher = *voucher.ok_or_else(|| format!("voucher {} is unknown", invoke.v))?;
        let place = u32::try_from(self.history.records.len())
            .map_err(|_| "it has too many requests".to_owned())?;
        if self.open.insert(invoke.n, place).is_some() {
            return Err(format!("request {} is sent twice", invoke.n));
        }
        self.history.records.push(Record {
            start_ns: invoke.t,
            end_ns: NO_END,
            user: invoke.u,
            order: None,
            n: invoke.n,
            key: key_of(invoke.k),
            voucher,
            outcome: Outcome::Unknown,
            replica: None,
            code: 0,
            admitted: false,
        });
        Ok(())
    }

    fn end(&mut self, ended: &Completion<'_>, outcome: Outcome) -> Result<(), String> {
        let open = self.open.remove(&ended.n);
        let place = open.ok_or_else(|| format!("request {} is not under way", ended.n))?;
        let code = match (ended.s, ended.c.as_deref()) {
            (Some(status), Some(code)) => &format!("{status} {code}"),
            (Some(status), None) => &status.to_string(),
            (None, Some(code)) => code,
            (None, None) => "no answer",
        };
        let names = &mut self.history.names;
        let code = index_of(&mut names.codes, code);
        let replica = ended.r.as_deref().map(|name| index_of(&mut names.replicas, name));
        let record = &mut self.history.records[place as usize];
        if ended.t < record.start_ns {
            return Err(format!("request {} ends before it is sent", ended.n));
        }
        if let Some([from, until]) = ended.h {
            let earliest = record.start_ns.saturating_add(ended.w);
            if !(earliest <= from && from <= until && until <= ended.t) {
                return Err(format!("request {} held its lock while it was not there", ended.n));
            }
            if names.holds.len() < MAX_HOLDS {
                names.holds.insert(ended.n, LockHold { earliest, from, until, lost: ended.l });
            }
        }
        let order = ended.o.and_then(NonZeroU64::new);
        let admitted = ended.s == Some(ADMITTED) && ended.c.as_deref() != Some(SAME_TICKET);
        let end_ns = ended.t;
        *record = Record { end_ns, order, outcome, replica, code, admitted, ..*record };
        Ok(())
    }

    fn effect(&mut self, line: &EffectEvent<'_>) -> Result<(), String> {
        let next = u32::try_from(self.resources.len()).unwrap_or(u32::MAX);
        let known = self.resources.get(line.res.as_ref()).copied();
        let resource = known.unwrap_or_else(|| {
            self.resources.insert(line.res.clone().into_owned(), next);
            next
        });
        let protects = Protects::of(&line.res, line.v);
        let (seq, token, order) = (line.seq, line.token, line.o);
        self.voucher_history(line.v)?.effects.push(Effect {
            resource,
            protects,
            seq,
            token,
            order,
        });
        Ok(())
    }

    fn account(&mut self, account: &Account) -> Result<(), String> {
        let voucher_history = self.voucher_history(account.v)?;
        let (v, rows) = (account.v, voucher_history.rows.len() as u64);
        if account.orders != rows {
            let orders = account.orders;
            return Err(format!("voucher {v} has {orders} orders, but {rows} rows"));
        }
        if voucher_history.account.replace(account.clone()).is_some() {
            return Err(format!("a second account of voucher {v}"));
        }
        Ok(())
    }

    fn finish(mut self, events: u64) -> Result<History, ReadError> {
        self.history.events = events;
        let records = &mut self.history.records;
        let mut numbers: Vec<u32> = records.iter().map(|record| record.n).collect();
        numbers.sort_unstable();
        if let Some([twice, _]) = numbers.array_windows().find(|[a, b]| a == b) {
            return Err(broken(events, format!("request {twice} is sent twice")));
        }
        Record::sort(records);
        let mut from = 0;
        for (index, voucher_history) in (0..=u16::MAX).zip(&mut self.history.vouchers) {
            let until = records.partition_point(|record| record.voucher <= index);
            voucher_history.records = from..until;
            from = until;
        }
        Ok(self.history)
    }
}

/// The index of a name, which is added if it is new.
fn index_of(names: &mut Vec<String>, name: &str) -> u8 {
    let known = names.iter().position(|known| known == name);
    let index = known.unwrap_or_else(|| {
        if names.len() < MAX_NAMES {
            let is_last = names.len() + 1 == MAX_NAMES;
            names.push(if is_last { OTHER_NAMES.to_owned() } else { name.to_owned() });
        }
        names.len() - 1
    });
    u8::try_from(index).unwrap_or(u8::MAX)
}

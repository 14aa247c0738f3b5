//! A history that a test changes before it is written and judged.

use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

use loadtest_judge::check::{Check, Judgement};
use loadtest_judge::verdict::Rule;
use loadtest_load::history::event::{AuditMoment, EarlierOrder, EffectEvent, Order, ServiceAudit};
use loadtest_load::history::final_state::{Audit, OrderRow};
use loadtest_load::history::key::key_of;
use loadtest_load::history::{
    Account, Begin, Completion, Event, FENCED, Invoke, Offer, Recorder, Source,
};
use uuid::Uuid;

use crate::synthetic::Sale;

pub(crate) const UNITS: usize = 200;
const REQUESTS: u32 = 3000;
const TABLES: [&str; 3] = ["orders", "voucher_stock", "stock_grants"];

/// One voucher: what was said of it while the load ran, and what was there in the end.
#[derive(Clone)]
pub(crate) struct Tape {
    pub(crate) voucher: u64,
    pub(crate) offered: i64,
    pub(crate) granted: i64,
    /// What is left, if it is not what was granted less the orders.
    pub(crate) left: Option<i64>,
    pub(crate) events: Vec<Event<'static>>,
    pub(crate) rows: Vec<OrderRow>,
    pub(crate) earlier: Vec<u64>,
    pub(crate) effects: Vec<EffectEvent<'static>>,
    /// Whether the header says that there have to be some.
    pub(crate) fenced: bool,
    /// Other settings of the header.
    pub(crate) settings: Vec<(&'static str, &'static str)>,
    /// The service's account, if it is not that of the judge.
    pub(crate) said: Option<Audit>,
    pub(crate) source: Source,
    /// Whether the voucher was read in the end.
    pub(crate) read: bool,
}

impl Tape {
    /// A sale of 200 units to 600 users with five requests each, in which nothing is wrong.
    pub(crate) fn legal() -> Self {
        Self::of(Sale::new(1, UNITS, REQUESTS))
    }

    pub(crate) fn of(mut sale: Sale) -> Self {
        let mut events = Vec::new();
        sale.each(|event| events.push(event));
        let units = i64::try_from(sale.units).expect("small");
        let rows = sale.orders.iter().map(|&(id, user_id)| OrderRow::new(id, user_id)).collect();
        Self {
            voucher: sale.voucher,
            offered: units,
            granted: units,
            left: None,
            events,
            rows,
            earlier: Vec::new(),
            settings: Vec::new(),
            effects: Vec::new(),
            fenced: false,
            said: None,
            source: Source::Database,
            read: true,
        }
    }

    /// A tape whose orders have the keys of their requests.
    pub(crate) fn keyed() -> Self {
        let (mut tape, mut sale) = (Self::legal(), Sale::new(1, UNITS, REQUESTS));
        sale.each(drop);
        for row in &mut tape.rows {
            row.key = sale.held.get(&row.user_id).map(|(_, key)| key_of(*key));
        }
        tape
    }

    /// A tape with an effect for each order, under tokens that rise.
    pub(crate) fn fenced() -> Self {
        let mut tape = Self::legal();
        let effect = |(seq, row): (u64, &OrderRow)| {
            let token = seq + 5;
            EffectEvent { v: 1, res: "redisson:lock:voucher:1".into(), seq, token, o: row.id }
        };
        tape.effects = (1..).zip(&tape.rows).map(effect).collect();
        tape.fenced = true;
        tape
    }

    fn left(&self) -> i64 {
        let new = self.rows.iter().filter(|row| !self.earlier.contains(&row.id)).count();
        self.left.unwrap_or(self.offered - i64::try_from(new).expect("small"))
    }

    async fn record(&self, recorder: &Recorder) {
        for event in &self.events {
            recorder.record(event.clone()).await;
        }
    }

    async fn record_end(&self, recorder: &Recorder) {
        let v = self.voucher;
        for &o in &self.earlier {
            recorder.record(Event::Earlier(EarlierOrder { v, o })).await;
        }
        for row in &self.rows {
            recorder.record(Event::Order(Order::of(v, row))).await;
        }
        for effect in &self.effects {
            recorder.record(Event::Effect(effect.clone())).await;
        }
        let own = Audit::of(&self.rows, self.granted, self.left(), TABLES);
        let source = self.source;
        if source == Source::Database {
            let said = self.said.clone().unwrap_or_else(|| own.clone());
            recorder.record(Event::Audit(ServiceAudit { v, when: AuditMoment::After, said })).await;
        }
        if self.read {
            let granted = (source == Source::Database).then_some(self.granted);
            let (left, orders) = (Some(self.left()), self.rows.len() as u64);
            let tables = own.tables;
            let account = Account { v, granted, left, orders, source, tables };
            recorder.record(Event::Account(account)).await;
        }
    }
}

/// The header of these.
pub(crate) fn header(tapes: &[Tape]) -> Begin {
    let offer = |tape: &Tape| Offer { id: tape.voucher, offered: Some(tape.offered) };
    let offers = tapes.iter().map(offer).collect();
    let mut begin = Begin::now("http://127.0.0.1:1".into(), 1, 600, offers);
    let is_fenced = tapes.iter().any(|tape| tape.fenced);
    begin.settings.extend(is_fenced.then(|| (FENCED.to_owned(), "on".to_owned())));
    let settings = tapes.iter().flat_map(|tape| &tape.settings);
    begin.settings.extend(settings.map(|(name, value)| (name.to_string(), value.to_string())));
    begin
}

/// Writes these as one history.
pub(crate) async fn write(tapes: &[Tape], path: &Path) {
    let recorder = Recorder::create(path, &header(tapes)).expect("created");
    for tape in tapes {
        tape.record(&recorder).await;
    }
    for tape in tapes {
        tape.record_end(&recorder).await;
    }
    recorder.finish().await.expect("written");
}

pub(crate) async fn check(path: &Path) -> Judgement {
    let deadline = Duration::from_mins(1);
    let check = Check { file: path.to_owned(), database: None, deadline };
    check.run().await.expect("judged")
}

pub(crate) async fn judge(tapes: &[Tape]) -> Judgement {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("history.jsonl.zst");
    write(tapes, &path).await;
    check(&path).await
}

/// Rules that did not hold, of all vouchers, each once.
pub(crate) fn broken(judgement: &Judgement) -> Vec<Rule> {
    let findings = judgement.vouchers.iter().flat_map(|judged| &judged.verdict.findings);
    let mut rules: Vec<Rule> =
        findings.filter(|one| one.held == Some(false)).map(|one| one.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    rules
}

/// Numbers of the requests that are said to prove that a rule was broken.
pub(crate) fn proofs(judgement: &Judgement, rule: Rule) -> HashSet<u32> {
    let findings = judgement.vouchers.iter().filter_map(|judged| judged.verdict.finding(rule));
    let proofs = findings.flat_map(|finding| &finding.proofs);
    proofs.flat_map(|proof| &proof.requests).map(|asked| asked.n).collect()
}

/// How tests find and change what was said.
impl Tape {
    /// Where a request left, and where it ended.
    pub(crate) fn places(&self, n: u32) -> (usize, usize) {
        let left = self.events.iter().position(|one| matches!(one, Event::Invoke(i) if i.n == n));
        let ended = self.events.iter().position(|one| ended(one).is_some_and(|end| end.n == n));
        (left.expect("it left"), ended.expect("it ended"))
    }

    fn invoke(&self, n: u32) -> &Invoke {
        let Event::Invoke(invoke) = &self.events[self.places(n).0] else { unreachable!() };
        invoke
    }

    pub(crate) fn user_of(&self, n: u32) -> u64 {
        self.invoke(n).u
    }

    pub(crate) fn key_of(&self, n: u32) -> Uuid {
        self.invoke(n).k
    }

    pub(crate) fn end_of(&self, n: u32) -> Completion<'static> {
        ended(&self.events[self.places(n).1]).expect("it ended").clone()
    }

    /// Numbers of requests that ended with this code, in the order of their ends; `201` is one.
    pub(crate) fn with_code(&self, code: &str) -> Vec<u32> {
        let of = |event: &Event<'static>| {
            let end = ended(event)?;
            let same = match event {
                Event::Ok(_) => code == "201",
                _ => end.c.as_deref() == Some(code),
            };
            same.then_some(end.n)
        };
        self.events.iter().filter_map(of).collect()
    }

    /// All requests of a user, in the order in which they left.
    pub(crate) fn requests_of(&self, user: u64) -> Vec<u32> {
        let of = |event: &Event<'_>| match event {
            Event::Invoke(invoke) if invoke.u == user => Some(invoke.n),
            _ => None,
        };
        self.events.iter().filter_map(of).collect()
    }

    pub(crate) fn answer(
        &mut self,
        n: u32,
        answer: impl FnOnce(Completion<'static>) -> Event<'static>,
    ) {
        let (_, axes) = self.places(n);
        let end = ended(&self.events[axes]).expect("it ended").clone();
        self.events[axes] = answer(end);
    }

    pub(crate) fn buys(&mut self, n: u32, order: u64) {
        self.answer(n, |end| {
            Event::Ok(Completion { o: Some(order), c: None, s: Some(201), ..end })
        });
    }

    pub(crate) fn refuses(&mut self, n: u32, code: &'static str) {
        self.answer(n, |end| Event::Fail(Completion { o: None, c: Some(code.into()), ..end }));
    }

    pub(crate) fn loses(&mut self, n: u32) {
        self.never_hears(n, "timed_out");
    }

    /// As if a client had not waited for the answer, which is no fault of the service.
    pub(crate) fn hangs_up(&mut self, n: u32) {
        self.never_hears(n, "hung_up");
    }

    fn never_hears(&mut self, n: u32, code: &'static str) {
        let c = Some(code.into());
        self.answer(n, |end| Event::Unknown(Completion { o: None, c, s: None, r: None, ..end }));
    }

    /// Numbers of requests with unknown outcomes, in the order of their ends.
    pub(crate) fn unknown(&self) -> Vec<u32> {
        let unknown = self.events.iter().filter_map(|event| match event {
            Event::Unknown(end) => Some(end.n),
            _ => None,
        });
        unknown.collect()
    }

    /// Puts off an end, so far that nothing of the sale is still under way.
    pub(crate) fn ends_late(&mut self, n: u32, by_ns: u64) {
        let (_, axes) = self.places(n);
        if let Event::Ok(end) | Event::Fail(end) | Event::Unknown(end) = &mut self.events[axes] {
            end.t += by_ns;
        }
    }

    /// Puts off a whole request, so far that nothing of the sale is still under way.
    pub(crate) fn comes_late(&mut self, n: u32, by_ns: u64) {
        let (left, _) = self.places(n);
        if let Event::Invoke(invoke) = &mut self.events[left] {
            invoke.t += by_ns;
        }
        self.ends_late(n, by_ns);
    }

    pub(crate) fn adds_row(&mut self, id: u64, user_id: u64) {
        self.rows.push(OrderRow::new(id, user_id));
    }

    pub(crate) fn drops_row(&mut self, id: u64) {
        self.rows.retain(|row| row.id != id);
    }

    /// As if a user had been refused all the time; frees a unit.
    pub(crate) fn forgets(&mut self, user: u64) {
        for n in self.requests_of(user) {
            self.refuses(n, "order_in_progress");
        }
        self.rows.retain(|row| row.user_id != user);
    }
}

fn ended<'a>(event: &'a Event<'static>) -> Option<&'a Completion<'static>> {
    match event {
        Event::Ok(end) | Event::Fail(end) | Event::Unknown(end) => Some(end),
        _ => None,
    }
}

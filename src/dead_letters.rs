//! `seckill dead-letters`: admitted purchases that could not be written, and unreadable entries of
//! queues.
//!
//! A dead letter and the end of its ticket are two rows of the database. A replay removes both, so
//! that the ticket can end again, and then admits the purchase with the same ticket. If the
//! admission is refused, both rows are written again. A replay that dies in between leaves a ticket
//! without an end. That ticket ends as `lost` or stays `dead`, and its user may buy again.
//!
//! An unreadable entry is evidence only, since it does not say what to admit. It is kept until an
//! operator drops it; the end of a ticket that it names stays.

use anyhow::{Context, anyhow};
use serde_json::json;

use crate::config::{Database, DeadLetterRef, DeadLettersDrop, DeadLettersList, DeadLettersReplay};
use crate::database::connect;
use crate::domain::{TicketState, VoucherId};
use crate::lock;
use crate::store::{DeadLetter, QuarantinedEntry, SaleStream, StoreError, Tickets};

/// Why an unreadable entry is not admitted.
const UNREADABLE: &str = "not admitted: the entry cannot be read; its user may buy again";
/// Why a purchase is not dropped.
const REPLAYABLE: &str = "not dropped: it is a purchase that can be replayed";
/// Why a name is refused.
const UNKNOWN: &str = "there is no such dead letter";

/// Lists dead letters, one line of JSON each.
pub async fn list(config: &DeadLettersList) -> anyhow::Result<Vec<String>> {
    config.check().map_err(|sentence| anyhow!(sentence))?;
    let tickets = tickets(&config.database).await?;
    let (letters, entries) = read(&tickets, config.voucher).await?;
    let letters = letters.iter().map(|letter| (letter.died_at, line(letter)));
    let entries = entries.iter().map(|entry| (entry.died_at, line_of_entry(entry)));
    let mut lines: Vec<_> = letters.chain(entries).collect();
    lines.sort_by_key(|(died_at, _)| *died_at);
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

async fn read(
    tickets: &Tickets,
    voucher: Option<VoucherId>,
) -> anyhow::Result<(Vec<DeadLetter>, Vec<QuarantinedEntry>)> {
    let failed = "cannot read the dead letters";
    let letters = tickets.dead_letters(voucher).await.context(failed)?;
    Ok((letters, tickets.quarantined(voucher).await.context(failed)?))
}

fn line(letter: &DeadLetter) -> String {
    let line = json!({
        "ticket": letter.ticket.to_string(),
        "user_id": letter.user.to_string(),
        "voucher_id": letter.ticket.voucher().to_string(),
        "price_cents": letter.price_cents,
        "reason": letter.reason,
        "died_at": letter.died_at,
    });
    line.to_string()
}

fn line_of_entry(entry: &QuarantinedEntry) -> String {
    let line = json!({
        "entry": name(entry).to_string(),
        "ticket": entry.ticket.map(|ticket| ticket.to_string()),
        "voucher_id": entry.voucher.to_string(),
        "fields": entry.fields,
        "reason": "unreadable",
        "died_at": entry.died_at,
    });
    line.to_string()
}

fn name(entry: &QuarantinedEntry) -> DeadLetterRef {
    DeadLetterRef::Entry(entry.voucher, entry.entry.clone())
}

/// Whether that reference names the entry.
fn is_meant(wanted: &DeadLetterRef, entry: &QuarantinedEntry) -> bool {
    *wanted == name(entry) || entry.ticket.map(DeadLetterRef::Ticket).as_ref() == Some(wanted)
}

/// Drops unreadable entries. Returns a line for each, and whether all were dropped.
pub async fn drop_entries(config: &DeadLettersDrop) -> anyhow::Result<(Vec<String>, bool)> {
    config.check().map_err(|sentence| anyhow!(sentence))?;
    let tickets = tickets(&config.database).await?;
    let (letters, entries) = read(&tickets, None).await?;
    let names = || entries.iter().map(name).collect();
    let wanted = if config.all { names() } else { config.letters.clone() };
    let (mut told, mut all) = (Vec::new(), true);
    for wanted in &wanted {
        let is_it = |letter: &DeadLetter| *wanted == DeadLetterRef::Ticket(letter.ticket);
        let (sentence, dropped) = match entries.iter().find(|entry| is_meant(wanted, entry)) {
            Some(entry) => {
                let there = tickets.discard_quarantined(entry.voucher, &entry.entry).await;
                if there.context("cannot drop an entry")? {
                    ("dropped", true)
                } else {
                    ("already dropped by another command", false)
                }
            }
            None if letters.iter().any(is_it) => (REPLAYABLE, false),
            None => (UNKNOWN, false),
        };
        all &= dropped;
        told.push(format!("{wanted}: {sentence}"));
    }
    Ok((told, all))
}

/// Admits dead letters again. Returns a line for each, and whether all were admitted.
pub async fn replay(config: &DeadLettersReplay) -> anyhow::Result<(Vec<String>, bool)> {
    config.check().map_err(|sentence| anyhow!(sentence))?;
    let tickets = tickets(&config.database).await?;
    let redis = lock::redis(&config.redis_url, &config.redis).await?;
    let stream = SaleStream::new(redis, config.queue_length);
    let (letters, entries) = read(&tickets, None).await?;
    let wanted = if config.all {
        let letters = letters.iter().map(|letter| DeadLetterRef::Ticket(letter.ticket));
        letters.chain(entries.iter().map(name)).collect()
    } else {
        config.letters.clone()
    };
    let (mut told, mut all) = (Vec::new(), true);
    for wanted in &wanted {
        let is_it = |letter: &&DeadLetter| *wanted == DeadLetterRef::Ticket(letter.ticket);
        let is_quarantined = |entry: &QuarantinedEntry| is_meant(wanted, entry);
        let outcome = match letters.iter().find(is_it) {
            Some(letter) => replay_one(&tickets, &stream, letter).await,
            None if entries.iter().any(is_quarantined) => Err(UNREADABLE.to_owned()),
            None => Err(UNKNOWN.to_owned()),
        };
        all &= outcome.is_ok();
        let outcome = outcome.map_or_else(|why| why, |()| "admitted again".to_owned());
        told.push(format!("{wanted}: {outcome}"));
    }
    Ok((told, all))
}

/// Admits one dead letter again; the error says why it stays a dead letter.
async fn replay_one(
    tickets: &Tickets,
    stream: &SaleStream,
    letter: &DeadLetter,
) -> Result<(), String> {
    let failed = |error: StoreError| format!("not admitted again: {error}");
    if !tickets.remove_dead_letter(letter.ticket).await.map_err(failed)? {
        return Err("already replayed by another command".to_owned());
    }
    let admitted = stream.replay(letter.ticket, letter.user, letter.price_cents).await;
    let why = match admitted {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => format!("not admitted again: {why}"),
        Err(error) => failed(error),
    };
    let back =
        tickets.dead_letter(letter.ticket, letter.user, letter.price_cents, &letter.reason).await;
    match back {
        Ok(TicketState::Dead) => Err(why),
        // An admission without an answer was one after all.
        Ok(TicketState::Bought(_)) => Ok(()),
        Ok(state) => Err(format!("{why}, and ended: {}", state.name())),
        Err(error) => Err(format!("{why}, and not put back: {error}")),
    }
}

async fn tickets(database: &Database) -> anyhow::Result<Tickets> {
    Ok(Tickets::new(connect(&database.database_url).await?))
}

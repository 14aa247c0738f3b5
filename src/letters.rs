//! `seckill dead-letters`: admitted purchases whose order nobody could write.
//!
//! A letter and the end of its ticket are two rows of the database. A replay takes both out, so
//! that the ticket may end anew, and then admits the purchase with the same ticket. Who cannot be
//! admitted is put back. A replay that dies in between leaves a ticket without an end: it ends as
//! `lost` or stays `dead`, and its user may buy again, as after the letter was written.

use anyhow::{Context, anyhow};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::config::{Database, DeadLettersList, DeadLettersReplay};
use crate::store::{
    self, DatabaseOptions, DeadLetter, RedisAddress, SaleStream, StoreError, Tickets,
};

/// A line of JSON for each dead letter.
pub async fn list(config: &DeadLettersList) -> anyhow::Result<Vec<String>> {
    config.check().map_err(|sentence| anyhow!(sentence))?;
    let letters = tickets(&config.database)?.dead_letters(config.voucher).await;
    let letters = letters.context("cannot read the dead letters")?;
    Ok(letters.iter().map(line).collect())
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

/// Admits dead letters again. A sentence for each; and whether all of them were.
pub async fn replay(config: &DeadLettersReplay) -> anyhow::Result<(Vec<String>, bool)> {
    config.check().map_err(|sentence| anyhow!(sentence))?;
    let tickets = tickets(&config.database)?;
    let address = RedisAddress { url: config.redis_url.expose_secret(), ca: None };
    let redis = store::redis(address).await.context("cannot connect to REDIS_URL")?;
    let stream = SaleStream::new(redis, config.queue_length);
    let letters = tickets.dead_letters(None).await.context("cannot read the dead letters")?;
    let (mut told, mut all) = (Vec::new(), true);
    for ticket in
        config.tickets.iter().filter(|ticket| letters.iter().all(|l| l.ticket != **ticket))
    {
        all = false;
        told.push(format!("{ticket}: there is no such dead letter"));
    }
    let wanted = |letter: &&DeadLetter| config.all || config.tickets.contains(&letter.ticket);
    for letter in letters.iter().filter(wanted) {
        let outcome = replay_one(&tickets, &stream, letter).await;
        all &= outcome.is_ok();
        let outcome = outcome.map_or_else(|why| why, |()| "admitted again".to_owned());
        told.push(format!("{}: {outcome}", letter.ticket));
    }
    Ok((told, all))
}

/// One letter; the error is why it stays one.
async fn replay_one(
    tickets: &Tickets,
    stream: &SaleStream,
    letter: &DeadLetter,
) -> Result<(), String> {
    let failed = |error: StoreError| format!("not admitted again: {error}");
    if !tickets.exhume(letter.ticket).await.map_err(failed)? {
        return Err("somebody else has replayed it".to_owned());
    }
    let admitted = stream.replay(letter.ticket, letter.user, letter.price_cents).await;
    let why = match admitted {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(why)) => format!("not admitted again: {why}"),
        Err(error) => failed(error),
    };
    let back = tickets.bury(letter.ticket, letter.user, (letter.price_cents, &letter.reason)).await;
    match back {
        Ok(_) => Err(why),
        Err(error) => Err(format!("{why}, and not put back: {error}")),
    }
}

fn tickets(database: &Database) -> anyhow::Result<Tickets> {
    let url = database.database_url.expose_secret().to_owned();
    let options = DatabaseOptions { url, pool_size: 2, naive: false, silence: None };
    Ok(Tickets::new(store::database(&options).context("DATABASE_URL is not usable")?))
}

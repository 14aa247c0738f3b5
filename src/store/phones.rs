//! Phones of users from before numbers had one spelling: they are written in E.164.
//!
//! Of users whose numbers are the same, the oldest keeps it. The others keep their row and their
//! orders, and are set aside: they cannot log in, and all their tokens are revoked. Users whom a
//! replica of an older release made are found so too, and get their rows in `token_subjects`. Each
//! batch is a transaction, so that a run that is broken off is carried on.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use sqlx::migrate::MigrateError;
use sqlx::mysql::MySqlDatabaseError;
use sqlx::{Connection, MySql, MySqlConnection, QueryBuilder};
use tokio::time::timeout;

use super::migrate::take_turn;
use super::primary::{DatabaseServers, silence};
use super::revocations::{revoke_for_ever, revoke_set_aside};
use super::users::token_subjects_of;
use crate::domain::{Country, Phone, UserId};

/// How many rows one transaction checks.
const BATCH: usize = 500;
/// How long all of them may take: a million rows take about two minutes.
const NORMALIZATION_TIMEOUT: Duration = Duration::from_mins(15);
/// How often a batch is tried that meets a login or another transaction.
const TRIES: u32 = 5;
/// The most users set aside that are listed.
const MAX_LISTED_USERS: u32 = 1000;
/// Between the number and the id of a user who made room for an older one.
const SUPERSEDED_MARK: char = '#';

/// The result of the normalization.
#[derive(Debug, Default)]
pub struct Phones {
    /// How many numbers this run wrote in E.164.
    pub normalized: u64,
    /// How many users are set aside, those of earlier runs included.
    pub found: u64,
    /// The first thousand of them.
    pub set_aside: Vec<SetAsideUser>,
}

impl Phones {
    /// How many users are set aside that the list leaves off.
    pub fn left_off(&self) -> u64 {
        self.found.saturating_sub(self.set_aside.len() as u64)
    }
}

/// A user without a phone to log in by.
#[derive(Debug, PartialEq, Eq)]
pub struct SetAsideUser {
    /// Whose row it is.
    pub user: UserId,
    /// The number as it was.
    pub phone: String,
    /// The number in E.164, and the older user who has it; none if it is not valid.
    pub kept_by: Option<(String, UserId)>,
}

impl fmt::Display for SetAsideUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { user, phone, kept_by } = self;
        write!(f, "user {user} is set aside: ")?;
        match kept_by {
            Some((e164, older)) => write!(f, "its phone {phone} is {e164}, which user {older} has"),
            None => write!(f, "its phone {phone} is not valid"),
        }
    }
}

/// Writes the phones in E.164 that are not, and lists the users who are set aside. Running it again
/// changes nothing.
pub async fn normalize_phones(url: &str, country: Country) -> Result<Phones, MigrateError> {
    let connecting = DatabaseServers::parse(url)?.connect().await;
    let mut connection = connecting.map_err(MigrateError::Execute)?;
    let work = async {
        take_turn(&mut connection).await?;
        let normalized = normalize_all(&mut connection, country).await?;
        revoke_set_aside(&mut connection).await?;
        let phones = list(&mut connection, country, normalized).await?;
        // This ends the turn as well.
        connection.close().await?;
        Ok(phones)
    };
    timeout(NORMALIZATION_TIMEOUT, work).await.unwrap_or_else(|_| Err(silence().into()))
}

async fn normalize_all(
    connection: &mut MySqlConnection,
    country: Country,
) -> Result<u64, sqlx::Error> {
    let (mut normalized, mut failed) = (0, 0);
    loop {
        match normalize_batch(connection, country).await {
            Ok(None) => return Ok(normalized),
            Ok(Some(more)) => (normalized, failed) = (normalized + more, 0),
            // A login that has just taken the number of an older row, or a deadlock with one.
            Err(error) if failed < TRIES && may_pass(&error) => failed += 1,
            Err(error) => return Err(error),
        }
    }
}

/// How many numbers of a batch were written in E.164; `None` if no row is left.
async fn normalize_batch(
    connection: &mut MySqlConnection,
    country: Country,
) -> Result<Option<u64>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let rows = sqlx::query_as(
        "SELECT id, phone FROM users WHERE phone_state = 'unchecked' \
         ORDER BY id LIMIT ? FOR UPDATE",
    );
    let rows: Vec<(u64, String)> = rows.bind(BATCH as u64).fetch_all(&mut *transaction).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let subjects = rows.iter().map(|(id, _)| *id);
    token_subjects_of(subjects).build().execute(&mut *transaction).await?;
    let rows = rows.into_iter().map(|(id, phone)| Row::new(id, phone, country)).collect();
    let plan = Plan::new(rows, &mut transaction).await?;
    let normalized = plan.keep.iter().filter(|(.., is_new)| *is_new).count() as u64;
    plan.carry_out(&mut transaction).await?;
    transaction.commit().await?;
    Ok(Some(normalized))
}

fn may_pass(error: &sqlx::Error) -> bool {
    let answer = error.as_database_error().and_then(|answer| answer.try_downcast_ref());
    // A number that is taken, a lock that took too long, a deadlock.
    answer.is_some_and(|answer: &MySqlDatabaseError| [1062, 1205, 1213].contains(&answer.number()))
}

/// A user whose phone is not checked.
struct Row {
    id: u64,
    phone: String,
    /// The number in one spelling, if it is valid or reserved.
    e164: Option<String>,
}

impl Row {
    fn new(id: u64, phone: String, country: Country) -> Self {
        let e164 = if Phone::is_reserved(&phone) {
            Some(phone.clone())
        } else {
            Phone::parse(&phone, country).ok().map(|phone| phone.as_str().to_owned())
        };
        Self { id, phone, e164 }
    }
}

/// The changes of a batch.
#[derive(Default)]
struct Plan {
    /// Users, their numbers, and whether these were spelled otherwise.
    keep: Vec<(u64, String, bool)>,
    /// Users who keep their text: it is not valid, or an older user has the number.
    set_aside: Vec<u64>,
    /// Users who have a normalized number, and lose it to an older user.
    make_room: Vec<u64>,
}

impl Plan {
    async fn new(rows: Vec<Row>, connection: &mut MySqlConnection) -> Result<Self, sqlx::Error> {
        let mut owners = owners(&rows, connection).await?;
        let mut plan = Self::default();
        for Row { id, phone, e164 } in rows {
            let Some(e164) = e164 else {
                plan.set_aside.push(id);
                continue;
            };
            match owners.get(&e164) {
                // By an older row of this batch.
                _ if plan.make_room.contains(&id) => continue,
                Some(owner) if *owner < id => {
                    plan.set_aside.push(id);
                    continue;
                }
                Some(owner) if *owner > id => plan.make_room.push(*owner),
                Some(_) | None => {}
            }
            owners.insert(e164.clone(), id);
            let is_new = phone != e164;
            plan.keep.push((id, e164, is_new));
        }
        Ok(plan)
    }

    async fn carry_out(&self, connection: &mut MySqlConnection) -> Result<(), sqlx::Error> {
        let make_room = format!(
            "UPDATE users SET phone_state = 'set_aside', \
             phone = CONCAT(phone, '{SUPERSEDED_MARK}', id) WHERE id IN ("
        );
        let set_aside = "UPDATE users SET phone_state = 'set_aside' WHERE id IN (";
        for (ids, update) in [(&self.make_room, &*make_room), (&self.set_aside, set_aside)] {
            if !ids.is_empty() {
                with_ids(update, ids).build().execute(&mut *connection).await?;
            }
        }
        let mut without_phone = [&*self.make_room, &*self.set_aside].concat();
        if !without_phone.is_empty() {
            // In one order, as other migrations do it, so that none waits for another in a circle.
            without_phone.sort_unstable();
            revoke_for_ever(without_phone, &mut *connection).await?;
        }
        if self.keep.is_empty() {
            return Ok(());
        }
        let mut update =
            QueryBuilder::<MySql>::new("UPDATE users SET phone_state = 'e164', phone = CASE id");
        for (id, e164, _) in &self.keep {
            update.push(" WHEN ").push_bind(*id).push(" THEN ").push_bind(e164);
        }
        update.push(" ELSE phone END WHERE id IN (");
        let mut list = update.separated(", ");
        for (id, ..) in &self.keep {
            list.push_bind(*id);
        }
        update.push(")");
        update.build().execute(connection).await?;
        Ok(())
    }
}

/// The users who have the numbers of these rows, normalized.
async fn owners(
    rows: &[Row],
    connection: &mut MySqlConnection,
) -> Result<HashMap<String, u64>, sqlx::Error> {
    let mut select = QueryBuilder::<MySql>::new("SELECT phone, id FROM users WHERE phone IN (''");
    for e164 in rows.iter().filter_map(|row| row.e164.as_deref()) {
        select.push(", ").push_bind(e164);
    }
    select.push(")");
    let owners: Vec<(String, u64)> = select.build_query_as().fetch_all(connection).await?;
    Ok(owners.into_iter().collect())
}

fn with_ids(sql: &str, ids: &[u64]) -> QueryBuilder<MySql> {
    let mut query = QueryBuilder::new(sql);
    let mut list = query.separated(", ");
    for id in ids {
        list.push_bind(*id);
    }
    query.push(")");
    query
}

async fn list(
    connection: &mut MySqlConnection,
    country: Country,
    normalized: u64,
) -> Result<Phones, sqlx::Error> {
    let found = "SELECT COUNT(*) FROM users WHERE phone_state = 'set_aside'";
    let found: i64 = sqlx::query_scalar(found).fetch_one(&mut *connection).await?;
    let rows = "SELECT id, phone FROM users WHERE phone_state = 'set_aside' ORDER BY id LIMIT ?";
    let rows: Vec<(u64, String)> =
        sqlx::query_as(rows).bind(MAX_LISTED_USERS).fetch_all(&mut *connection).await?;
    let rows = rows.into_iter().map(|(id, text)| {
        let phone = text.split(SUPERSEDED_MARK).next().unwrap_or_default().to_owned();
        Row::new(id, phone, country)
    });
    let rows: Vec<Row> = rows.collect();
    let mut set_aside = Vec::new();
    for batch in rows.chunks(BATCH) {
        let owners = owners(batch, &mut *connection).await?;
        set_aside.extend(batch.iter().map(|Row { id, phone, e164 }| {
            let owner = |e164: &String| Some((e164.clone(), UserId(*owners.get(e164)?)));
            let kept_by = e164.as_ref().and_then(owner);
            SetAsideUser { user: UserId(*id), phone: phone.clone(), kept_by }
        }));
    }
    Ok(Phones { normalized, found: found.unsigned_abs(), set_aside })
}

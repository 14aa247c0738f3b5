//! How the scripts and this program write to each other.

use time::{Duration, OffsetDateTime};

use super::{Queued, QueuedOrder};
use crate::domain::{OrderId, TicketState};

/// `bought:5`, `sold_out`.
pub(super) fn state_text(state: TicketState) -> String {
    match state.order() {
        Some(order) => format!("{}:{order}", state.name()),
        None => state.name().to_owned(),
    }
}

pub(super) fn state_of(text: &str) -> Option<TicketState> {
    let (name, order) = match text.split_once(':') {
        Some((name, order)) => (name, Some(order.parse::<OrderId>().ok()?)),
        None => (text, None),
    };
    TicketState::from_name(name, order)
}

/// An entry as `take.lua` returns it.
pub(super) fn entry_of(texts: Vec<String>) -> Option<Queued> {
    let mut texts = texts.into_iter();
    let (id, deliveries) = (texts.next()?, texts.next()?.parse().ok()?);
    let fields: Vec<String> = texts.collect();
    Some(Queued { id, deliveries, order: order_of(&fields) })
}

fn order_of(fields: &[String]) -> Option<QueuedOrder> {
    let field = |name: &str| {
        let mut pairs = fields.chunks_exact(2);
        pairs.find_map(|pair| (pair[0] == name).then_some(pair[1].as_str()))
    };
    let at = Duration::milliseconds(field("at")?.parse().ok()?);
    Some(QueuedOrder {
        ticket: field("ticket")?.parse().ok()?,
        user: field("user")?.parse().ok()?,
        epoch: field("epoch")?.parse().ok()?,
        price_cents: field("price")?.parse().ok()?,
        at: OffsetDateTime::UNIX_EPOCH.checked_add(at)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_whatever_the_order_of_its_fields_and_refused_if_one_is_wrong() {
        let ticket = "018bcfe5-687b-7fff-bfff-ffff0000004d";
        let good =
            ["9-0", "2", "user", "17", "ticket", ticket, "at", "5", "epoch", "3", "price", "8"];
        let read = |texts: &[&str]| entry_of(texts.iter().map(|text| (*text).to_owned()).collect());
        let entry = read(&good).unwrap();
        let order = entry.order.unwrap();
        assert_eq!((entry.id.as_str(), entry.deliveries), ("9-0", 2));
        assert_eq!((order.ticket.to_string().as_str(), order.user.0), (ticket, 17));
        assert_eq!((order.epoch, order.price_cents, order.at.nanosecond()), (3, 8, 5_000_000));
        for at in [3, 5, 7, 9, 11] {
            let mut bad = good;
            bad[at] = "tulips";
            assert!(read(&bad).unwrap().order.is_none(), "{bad:?}");
        }
        assert!(read(&["9-0", "1"]).unwrap().order.is_none());
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let order = OrderId(7);
        let states = [TicketState::Bought(order), TicketState::Dead, TicketState::Pending];
        for state in states {
            assert_eq!(state_of(&state_text(state)), Some(state));
        }
        assert_eq!(state_of("bought:x"), None);
    }
}

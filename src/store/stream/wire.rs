//! How the scripts and this program write to each other.

use std::fmt::Write;

use time::{Duration, OffsetDateTime};

use super::{QueuedOrder, StreamEntry, Unreadable};
use crate::domain::{OrderId, TicketId, TicketState, VoucherId};

/// The most bytes stored of an entry that cannot be read; they are ASCII.
const MAX_TEXT_BYTES: usize = 2000;

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

/// An entry as `read.lua` returns it, of that voucher's stream.
pub(super) fn entry_of(voucher: VoucherId, texts: &[Vec<u8>]) -> Option<StreamEntry> {
    let [id, fields @ ..] = texts else { return None };
    let id = str::from_utf8(id).ok()?.to_owned();
    let order = order_of(fields).filter(|order| order.ticket.voucher() == voucher);
    let order = order.ok_or_else(|| unreadable(voucher, fields));
    Some(StreamEntry { id, order })
}

fn field<'a>(fields: &'a [Vec<u8>], name: &str) -> Option<&'a str> {
    let mut pairs = fields.chunks_exact(2);
    let value = pairs.find_map(|pair| (pair[0] == name.as_bytes()).then_some(&pair[1]))?;
    str::from_utf8(value).ok()
}

fn order_of(fields: &[Vec<u8>]) -> Option<QueuedOrder> {
    let field = |name| field(fields, name);
    let at = Duration::milliseconds(field("at")?.parse().ok()?);
    Some(QueuedOrder {
        ticket: field("ticket")?.parse().ok()?,
        user: field("user")?.parse().ok()?,
        epoch: field("epoch")?.parse().ok()?,
        price_cents: field("price")?.parse().ok()?,
        at: OffsetDateTime::UNIX_EPOCH.checked_add(at)?,
        key: match field("key") {
            None | Some("") => None,
            Some(key) => Some(key.parse().ok()?),
        },
    })
}

fn unreadable(voucher: VoucherId, fields: &[Vec<u8>]) -> Unreadable {
    let ticket = field(fields, "ticket").and_then(|text| text.parse::<TicketId>().ok());
    let ticket = ticket.filter(|ticket| ticket.voucher() == voucher);
    let user = field(fields, "user").and_then(|text| text.parse().ok());
    let mut text = String::new();
    for field in fields {
        if text.len() > MAX_TEXT_BYTES {
            break;
        }
        let separator = if text.is_empty() { "" } else { " " };
        // As much of it as is kept, so that a field of many megabytes is not spelt out first.
        let beginning = &field[..field.len().min(MAX_TEXT_BYTES)];
        // Writing to a string cannot fail.
        let _always = write!(text, "{separator}\"{}\"", beginning.escape_ascii());
    }
    text.truncate(MAX_TEXT_BYTES);
    Unreadable { text, names: ticket.zip(user) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_whatever_the_order_of_its_fields_and_refused_if_one_is_wrong() {
        let ticket = "018bcfe5-687b-7fff-bfff-ffff0000004d";
        let good = ["9-0", "user", "17", "ticket", ticket, "at", "5", "epoch", "3", "price", "8"];
        let read = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
            entry_of(VoucherId(77), &texts)
        };
        let entry = read(&good).unwrap();
        let order = entry.order.unwrap();
        assert_eq!(entry.id, "9-0");
        assert_eq!((order.ticket.to_string().as_str(), order.user.0), (ticket, 17));
        assert_eq!((order.epoch, order.price_cents, order.at.nanosecond()), (3, 8, 5_000_000));
        assert_eq!(order.key, None);
        let keyed = [&good[..], &["key", "000102030405060708090a0b0c0d0e0f"]].concat();
        let key = read(&keyed).unwrap().order.unwrap().key.unwrap();
        assert_eq!(key.0, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        for at in [2, 4, 6, 8, 10] {
            let mut bad = good;
            bad[at] = "tulips";
            let unreadable = read(&bad).unwrap().order.unwrap_err();
            let names = (at > 4).then_some((order.ticket, order.user));
            assert_eq!(unreadable.names, names, "{bad:?}");
            assert!(unreadable.text.contains("\"tulips\""), "{unreadable:?}");
        }
        let nothing = Unreadable { text: String::new(), names: None };
        assert_eq!(read(&["9-0"]).unwrap().order, Err(nothing));
    }

    #[test]
    fn an_entry_of_another_voucher_or_of_bytes_is_unreadable_and_its_text_is_bounded() {
        let ticket = b"018bcfe5-687b-7fff-bfff-ffff0000004d";
        let good = [b"9-0".as_slice(), b"user", b"17", b"ticket", ticket, b"at", b"5"];
        let more = [b"epoch".as_slice(), b"3", b"price", b"8", b"\xff"];
        let texts: Vec<_> = good.into_iter().chain(more).map(<[u8]>::to_vec).collect();
        assert!(entry_of(VoucherId(77), &texts).unwrap().order.is_ok());
        let order = entry_of(VoucherId(78), &texts).unwrap().order.unwrap_err();
        assert_eq!(order.names, None, "the ticket is another voucher's");
        assert!(order.text.ends_with(r#""at" "5" "epoch" "3" "price" "8" "\xff""#), "{order:?}");
        let long = [b"9-0".to_vec(), vec![b'"'; 5_000_000], vec![0; 9]];
        let order = entry_of(VoucherId(78), &long).unwrap().order.unwrap_err();
        assert_eq!(order.text.len(), MAX_TEXT_BYTES);
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

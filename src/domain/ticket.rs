//! Tickets: what a buyer holds between admission and the end of the purchase.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};
use uuid::{Builder, Uuid, Variant};

use super::{OrderId, VoucherId};

/// Text that is no ticket.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be a UUID of version 7")]
pub struct BadTicket;

/// A ticket: a UUID of version 7. After its 48 bits of time stand 42 that only the service can make
/// (a seal over time, voucher and user) and 32 of the voucher. So a ticket says by itself where to
/// look for it, and whose it is can be told when everything else about it is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TicketId(Uuid);

impl TicketId {
    /// The greatest voucher id that has a place in a ticket.
    pub const LAST_VOUCHER: VoucherId = VoucherId(u32::MAX as u64);

    /// The ticket of that millisecond and voucher with that seal, of which 42 bits count; `None` if
    /// the voucher has no place in it.
    pub fn compose(unix_ms: u64, voucher: VoucherId, seal: [u8; 6]) -> Option<Self> {
        let voucher = u32::try_from(voucher.0).ok()?;
        let mut tail = [0; 10];
        tail[..6].copy_from_slice(&seal);
        tail[6..].copy_from_slice(&voucher.to_be_bytes());
        Some(Self(Builder::from_unix_timestamp_millis(unix_ms, &tail).into_uuid()))
    }

    /// The ticket with those bytes, if it is one.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, BadTicket> {
        let uuid = Uuid::from_bytes(bytes);
        let fits = uuid.get_version_num() == 7 && uuid.get_variant() == Variant::RFC4122;
        if fits { Ok(Self(uuid)) } else { Err(BadTicket) }
    }

    /// The bytes of the UUID.
    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }

    /// What it is for.
    pub fn voucher(self) -> VoucherId {
        let [.., a, b, c, d] = *self.0.as_bytes();
        VoucherId(u32::from_be_bytes([a, b, c, d]).into())
    }

    /// When it was made, in milliseconds since 1970.
    pub fn unix_ms(self) -> u64 {
        let head = self.0.as_bytes().iter().take(6);
        head.fold(0, |ms, byte| ms << 8 | u64::from(*byte))
    }
}

impl fmt::Display for TicketId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl FromStr for TicketId {
    type Err = BadTicket;

    /// As it is written, and in no other way.
    fn from_str(text: &str) -> Result<Self, BadTicket> {
        let uuid = Uuid::try_parse(text).map_err(|_| BadTicket)?;
        let ticket = Self::from_bytes(*uuid.as_bytes())?;
        if ticket.to_string() == text { Ok(ticket) } else { Err(BadTicket) }
    }
}

impl Serialize for TicketId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where a ticket stands. All but `Pending` are ends, and a ticket has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketState {
    /// Admitted; the order is on its way.
    Pending,
    /// The order is committed.
    Bought(OrderId),
    /// The user has bought it otherwise: this order, if it could be read.
    AlreadyOrdered(Option<OrderId>),
    /// No unit was left.
    SoldOut,
    /// The order could not be written.
    Refused,
    /// Redis lost it.
    Lost,
    /// Writing it failed again and again; an operator may replay it.
    Dead,
}

impl TicketState {
    /// The name of the state in answers and in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Bought(_) => "bought",
            Self::AlreadyOrdered(_) => "already_ordered",
            Self::SoldOut => "sold_out",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Dead => "dead",
        }
    }

    /// The order that it names.
    pub const fn order(self) -> Option<OrderId> {
        match self {
            Self::Bought(order) => Some(order),
            Self::AlreadyOrdered(order) => order,
            Self::Pending | Self::SoldOut | Self::Refused | Self::Lost | Self::Dead => None,
        }
    }

    /// The state of that name, with that order.
    pub fn from_name(name: &str, order: Option<OrderId>) -> Option<Self> {
        Some(match name {
            "pending" => Self::Pending,
            "bought" => Self::Bought(order?),
            "already_ordered" => Self::AlreadyOrdered(order),
            "sold_out" => Self::SoldOut,
            "refused" => Self::Refused,
            "lost" => Self::Lost,
            "dead" => Self::Dead,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_a_uuid_of_version_7_that_names_its_moment_and_voucher() {
        let ticket = TicketId::compose(1_700_000_000_123, VoucherId(77), [0xff; 6]).unwrap();
        let text = ticket.to_string();
        assert_eq!(text, "018bcfe5-687b-7fff-bfff-ffff0000004d");
        assert_eq!(text.parse(), Ok(ticket));
        assert_eq!((ticket.voucher(), ticket.unix_ms()), (VoucherId(77), 1_700_000_000_123));
        assert_eq!(TicketId::from_bytes(*ticket.as_bytes()), Ok(ticket));
        let last = TicketId::compose(1, TicketId::LAST_VOUCHER, [0; 6]).unwrap();
        assert_eq!(last.voucher(), TicketId::LAST_VOUCHER);
        assert_eq!(TicketId::compose(1, VoucherId(1 << 32), [0; 6]), None);
    }

    #[test]
    fn a_ticket_is_written_in_one_way() {
        let good = "018bcfe5-687b-7fff-bfff-ffff0000004d";
        let upper = good.to_uppercase();
        let (bare, braced) = (good.replace('-', ""), format!("{{{good}}}"));
        let version_4 = good.replace("-7fff", "-4fff");
        let variant = good.replace("-bfff", "-ffff");
        for bad in ["", "1", &upper, &bare, &braced, &version_4, &variant, " "] {
            assert_eq!(bad.parse::<TicketId>(), Err(BadTicket), "{bad}");
        }
    }

    #[test]
    fn a_state_is_found_again_by_its_name() {
        let order = Some(OrderId(5));
        for state in [
            TicketState::Pending,
            TicketState::Bought(OrderId(5)),
            TicketState::AlreadyOrdered(order),
            TicketState::AlreadyOrdered(None),
            TicketState::SoldOut,
            TicketState::Refused,
            TicketState::Lost,
            TicketState::Dead,
        ] {
            assert_eq!(TicketState::from_name(state.name(), state.order()), Some(state));
        }
        assert_eq!(TicketState::from_name("bought", None), None);
        assert_eq!(TicketState::from_name("tulips", None), None);
    }
}

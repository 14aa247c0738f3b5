//! The schemas of fields in the description, from the constants of their checks.

use utoipa::openapi::schema::{
    KnownFormat, ObjectBuilder, Schema, SchemaFormat, SchemaType, Type as JsonType,
};
use utoipa::openapi::{Object, RefOr};
use utoipa::{PartialSchema, ToSchema};

use super::super::extract::KEY_LENGTH;
use super::super::text_rules;
use super::super::validation_messages::{
    CHALLENGE_LENGTH, CODE_LENGTH, FIRST_YEAR, LAST_YEAR, MAX_DESCRIPTION_CHARS, MAX_PAGE_SIZE,
    MAX_PRICE_CENTS, MAX_TITLE_CHARS, MAX_UNITS,
};
use crate::domain::{
    ID_DIGITS, LAST_ID, MAX_STOCK_BUCKETS, OrderId, Phone, TicketId, UserId, VoucherId,
};
use crate::payment::PaymentStatus;

/// The format of phone numbers: the pattern cannot say which numbers a country assigns.
const PHONE_FORMAT: &str = "phone";

macro_rules! id_schema {
    ($id:ident, $schema:expr) => {
        impl PartialSchema for $id {
            fn schema() -> RefOr<Schema> {
                $schema.build().into()
            }
        }

        impl ToSchema for $id {}
    };
}

id_schema!(VoucherId, id("7"));
id_schema!(OrderId, id("662520661280817152"));
id_schema!(UserId, id("17"));
id_schema!(
    TicketId,
    text().pattern(Some(TICKET)).examples(["018bcfe5-687b-7fff-bfff-ffff0000004d"])
);

/// A ticket as it is written: a UUID of version 7 in lower case.
const TICKET: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$";

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(JsonType::String)
}

fn bounded_text(least: usize, most: usize) -> ObjectBuilder {
    text().min_length(Some(least)).max_length(Some(most))
}

fn whole_number(least: u64, most: u64) -> ObjectBuilder {
    let format = SchemaFormat::KnownFormat(KnownFormat::Int64);
    let number = ObjectBuilder::new().schema_type(JsonType::Integer).format(Some(format));
    // The bounds have at most 34 bits.
    let bound = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    number.minimum(Some(bound(least))).maximum(Some(bound(most)))
}

fn id(example: &str) -> ObjectBuilder {
    bounded_text(1, ID_DIGITS).pattern(Some(decimals_up_to(LAST_ID))).examples([example])
}

/// A schema that allows null as well.
fn nullable(mut schema: Object) -> Object {
    if let SchemaType::Type(one) = schema.schema_type {
        schema.schema_type = SchemaType::Array(vec![one, JsonType::Null]);
    }
    schema
}

/// A pattern of whole numbers from 1 to that one, in decimal.
fn decimals_up_to(last: u64) -> String {
    let digits = last.to_string();
    let mut parts = vec![format!("[1-9][0-9]{{0,{}}}", digits.len().saturating_sub(2))];
    for (place, digit) in digits.char_indices() {
        let first = if place == 0 { '1' } else { '0' };
        let (before, after) = (&digits[..place], digits.len() - place - 1);
        if let Some(below) = (first..digit).next_back() {
            parts.push(format!("{before}[{first}-{below}][0-9]{{{after}}}"));
        }
    }
    parts.push(digits);
    format!("^0*(?:{})$", parts.join("|"))
}

pub(in crate::http) fn phone() -> Object {
    let (fewest, most) = (Phone::MIN_DIGITS, Phone::MAX_DIALLED_DIGITS);
    text()
        .pattern(Some(format!("^\\+?[0-9]{{{fewest},{most}}}$")))
        .format(Some(SchemaFormat::Custom(PHONE_FORMAT.to_owned())))
        .description(Some("A number that can be assigned, as dialled at home or with + abroad."))
        .examples(["13800000001"])
        .build()
}

pub(in crate::http) fn challenge() -> Object {
    bounded_text(CHALLENGE_LENGTH, CHALLENGE_LENGTH)
        .description(Some("As in the answer that announced the code."))
        .examples(["0123456789abcdef0123456789abcdef"])
        .build()
}

pub(in crate::http) fn code() -> Object {
    bounded_text(CODE_LENGTH, CODE_LENGTH).examples(["123456"]).build()
}

pub(in crate::http) fn title() -> Object {
    bounded_text(1, MAX_TITLE_CHARS)
        .pattern(Some(text_rules::title_pattern()))
        .description(Some("One line with a visible character, without bidirectional controls."))
        .examples(["Dinner for two"])
        .build()
}

pub(in crate::http) fn description() -> Object {
    bounded_text(0, MAX_DESCRIPTION_CHARS)
        .pattern(Some(text_rules::DESCRIPTION_PATTERN))
        .description(Some(
            "Lines of text, without control characters other than tabs, and without bidirectional \
             controls.",
        ))
        .examples(["Any weekday until six."])
        .build()
}

pub(in crate::http) fn cents() -> Object {
    whole_number(0, MAX_PRICE_CENTS).examples([8000]).build()
}

pub(in crate::http) fn units() -> Object {
    whole_number(1, MAX_UNITS.into()).examples([50]).build()
}

pub(in crate::http) fn stock_buckets() -> Object {
    whole_number(1, MAX_STOCK_BUCKETS.into())
        .description(Some("Rows that the stock is split into, for one hot voucher."))
        .default(Some(serde_json::json!(1)))
        .examples([8])
        .build()
}

pub(in crate::http) fn moment() -> Object {
    // Both years bound a millennium.
    let [first, last] = [FIRST_YEAR, LAST_YEAR].map(|year| year / 1000);
    text()
        .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
        .pattern(Some(format!("^[{first}-{last}][0-9]{{3}}-")))
        .description(Some(format!("In the years {FIRST_YEAR} to {LAST_YEAR} of UTC.")))
        .examples(["2026-11-11T20:00:00+08:00"])
        .build()
}

pub(in crate::http) fn new_title() -> Object {
    nullable(title())
}

pub(in crate::http) fn new_description() -> Object {
    nullable(description())
}

pub(in crate::http) fn new_cents() -> Object {
    nullable(cents())
}

pub(in crate::http) fn new_moment() -> Object {
    nullable(moment())
}

/// The outcome of a payment, as the provider reports it.
pub(in crate::http) fn payment_status() -> Object {
    let all = [PaymentStatus::Succeeded, PaymentStatus::Declined];
    text().enum_values(Some(all.map(|one| serde_json::json!(one)))).build()
}

/// Orders on a page.
pub(in crate::http) fn page_size() -> Object {
    whole_number(1, MAX_PAGE_SIZE.into()).examples([20]).build()
}

/// The header `Idempotency-Key`.
pub(in crate::http) struct IdempotencyKey;

impl PartialSchema for IdempotencyKey {
    fn schema() -> RefOr<Schema> {
        let (shortest, longest) = KEY_LENGTH.into_inner();
        let pattern = format!("^[!-~]{{{shortest},{longest}}}$");
        text()
            .pattern(Some(pattern))
            .examples(["a8098c1a-f86e-11da-bd1a-00112444be1e"])
            .build()
            .into()
    }
}

impl ToSchema for IdempotencyKey {}

/// The header `Payment-Signature`.
pub(in crate::http) struct PaymentSignature;

impl PartialSchema for PaymentSignature {
    fn schema() -> RefOr<Schema> {
        let example = format!("t=1800000000,v1={}", "0".repeat(64));
        text().pattern(Some("^t=[0-9]{1,12},v1=[0-9a-f]{64}$")).examples([example]).build().into()
    }
}

impl ToSchema for PaymentSignature {}

/// The header `Location`.
pub(in crate::http) fn address() -> Object {
    text().pattern(Some("^/api/")).examples(["/api/orders/662520661280817152"]).build()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use regex::Regex;
    use time::OffsetDateTime;
    use time::format_description::well_known::Rfc3339;

    use super::*;
    use crate::domain::BadPhone;

    /// Whether the schema, which is one of text, allows it.
    fn allows(schema: &Object, text: &str) -> bool {
        let length = schema.min_length.unwrap_or(0)..=schema.max_length.unwrap_or(usize::MAX);
        let pattern = Regex::new(schema.pattern.as_deref().expect("a pattern")).expect("valid");
        length.contains(&text.chars().count()) && pattern.is_match(text)
    }

    fn object(schema: RefOr<Schema>) -> Object {
        match schema {
            RefOr::T(Schema::Object(object)) => object,
            _ => panic!("the schema is no object"),
        }
    }

    #[test]
    fn the_schema_of_ids_allows_what_is_parsed_at_every_bound() {
        let schema = object(OrderId::schema());
        let last = LAST_ID.to_string();
        let mut texts: Vec<String> =
            ["", "0", "000", "1", "01", "-1", "+1", " 1", "1 ", "1\n", "\u{1}", "1.0", "٣", "a"]
                .map(str::to_owned)
                .into();
        texts.extend([last.clone(), format!("0{last}"), "9".repeat(18), "9".repeat(19)]);
        texts.extend(["0".repeat(18) + "1", "0".repeat(19) + "1"]);
        // Each digit of the last id one lower and one higher.
        for place in 0..last.len() {
            for change in [-1, 1] {
                let mut digits = last.clone().into_bytes();
                digits[place] = digits[place].saturating_add_signed(change);
                texts.push(String::from_utf8(digits).expect("ASCII"));
            }
        }
        for text in texts {
            assert_eq!(allows(&schema, &text), text.parse::<OrderId>().is_ok(), "{text:?}");
        }
    }

    #[test]
    fn the_schema_of_moments_has_the_years_of_the_check() {
        let schema = moment();
        for year in [1999, FIRST_YEAR, FIRST_YEAR + 999, LAST_YEAR, LAST_YEAR + 1] {
            let text = format!("{year}-06-01T00:00:00Z");
            let moment = OffsetDateTime::parse(&text, &Rfc3339).expect("a moment");
            let is_accepted = super::super::super::admin::moment(&moment, &()).is_ok();
            assert_eq!(allows(&schema, &text), is_accepted, "{text}");
        }
    }

    proptest! {
        #[test]
        fn the_schema_of_ids_allows_what_is_parsed(text in "0{0,3}[0-9]{0,20}") {
            let is_id = text.parse::<VoucherId>().is_ok();
            prop_assert_eq!(allows(&object(VoucherId::schema()), &text), is_id);
        }

        #[test]
        fn the_schema_of_tickets_allows_what_is_parsed(
            text in "[0-9a-f]{8}-?[0-9a-f]{4}-[4-8][0-9a-f]{3}-[6-9a-cA][0-9a-f]{3}-[0-9a-f]{12}",
        ) {
            let is_ticket = text.parse::<TicketId>().is_ok();
            prop_assert_eq!(allows(&object(TicketId::schema()), &text), is_ticket);
        }

        #[test]
        fn the_schema_of_phones_allows_what_is_well_formed(text in "\\+{0,2}[0-9]{3,22}a?") {
            let country = "CN".parse().expect("a country");
            let is_well_formed = Phone::parse(&text, country) != Err(BadPhone::Format);
            prop_assert_eq!(allows(&phone(), &text), is_well_formed);
        }
    }
}

//! Which operations follow an answer, and what they take from it (`OpenAPI` links).

use serde_json::json;
use utoipa::openapi::link::{Link, LinkBuilder};

/// One link: from the answer of an operation to another operation.
pub(super) struct Follow {
    /// The operation and the status of its answer.
    pub(super) from: (&'static str, &'static str),
    /// The operation that may follow.
    pub(super) to: &'static str,
    takes: LinkParameter,
    when: &'static str,
}

/// What the next operation takes.
enum LinkParameter {
    /// Its path's id, from that expression.
    Id(&'static str),
    /// Its cursor.
    Cursor(&'static str),
    /// The body of a login.
    Login,
    /// The body of a callback of the payment provider.
    Notice,
}

const VOUCHER: LinkParameter = LinkParameter::Id("$response.body#/voucher/id");
const FIRST_VOUCHER: LinkParameter = LinkParameter::Id("$response.body#/vouchers/0/id");
const ORDER: LinkParameter = LinkParameter::Id("$response.body#/order/id");
const FIRST_ORDER: LinkParameter = LinkParameter::Id("$response.body#/orders/0/id");
const TICKET: LinkParameter = LinkParameter::Id("$response.body#/ticket/id");
const NEXT: LinkParameter = LinkParameter::Cursor("$response.body#/next_cursor");
const SAME: LinkParameter = LinkParameter::Id("$request.path.id");

const fn follow(
    from: (&'static str, &'static str),
    to: &'static str,
    takes: LinkParameter,
    when: &'static str,
) -> Follow {
    Follow { from, to, takes, when }
}

/// All links, in the order in which a voucher and an order live.
pub(super) const LINKS: &[Follow] = &[
    follow(("login_send_code", "202"), "login_login", LinkParameter::Login, "with the code"),
    follow(("admin_create", "201"), "admin_change", VOUCHER, "as a draft or later"),
    follow(("admin_create", "201"), "admin_put_on_sale", VOUCHER, "when it is ready"),
    follow(("admin_create", "201"), "admin_add_stock", VOUCHER, "at any time"),
    follow(("admin_create", "201"), "admin_audit", VOUCHER, "at any time"),
    follow(("admin_create", "201"), "admin_delete", VOUCHER, "as long as it has no orders"),
    follow(("admin_change", "200"), "admin_put_on_sale", VOUCHER, "when it is ready"),
    follow(("admin_add_stock", "200"), "admin_audit", VOUCHER, "at any time"),
    follow(("admin_put_on_sale", "200"), "vouchers_one", VOUCHER, "customers see it"),
    follow(("admin_put_on_sale", "200"), "orders_buy", VOUCHER, "within its window"),
    follow(("admin_put_on_sale", "200"), "admin_delete", VOUCHER, "until it is sold"),
    follow(("vouchers_list", "200"), "vouchers_one", FIRST_VOUCHER, "each of them"),
    follow(("vouchers_list", "200"), "orders_buy", FIRST_VOUCHER, "if its phase is open"),
    follow(("vouchers_one", "200"), "orders_buy", VOUCHER, "if its phase is open"),
    follow(("vouchers_one", "200"), "vouchers_availability", VOUCHER, "to wait for a unit"),
    follow(("orders_buy", "201"), "orders_one", ORDER, "at any time"),
    follow(("orders_buy", "201"), "orders_pay", ORDER, "until it is cancelled"),
    follow(("orders_buy", "201"), "orders_cancel", ORDER, "until it is paid"),
    follow(
        ("orders_buy", "201"),
        "payments_callback",
        LinkParameter::Notice,
        "said by the provider",
    ),
    follow(("orders_buy", "201"), "admin_audit", SAME, "for admins"),
    follow(("orders_buy", "202"), "tickets_one", TICKET, "until it has ended"),
    follow(("orders_buy", "202"), "tickets_events", TICKET, "until it has ended"),
    follow(("orders_list", "200"), "orders_one", FIRST_ORDER, "each of them"),
    follow(("orders_list", "200"), "orders_list", NEXT, "the next page, if there is one"),
    follow(("orders_one", "200"), "orders_pay", ORDER, "until it is cancelled"),
    follow(("orders_one", "200"), "orders_cancel", ORDER, "until it is paid"),
    follow(("orders_pay", "200"), "orders_one", ORDER, "at any time"),
    follow(("orders_cancel", "200"), "orders_one", ORDER, "at any time"),
];

impl Follow {
    pub(super) fn link(&self) -> Link {
        let link = LinkBuilder::new().operation_id(self.to).description(self.when);
        match self.takes {
            LinkParameter::Id(from) => link.parameter("id", from),
            LinkParameter::Cursor(from) => link.parameter("cursor", from),
            LinkParameter::Login => link.request_body(Some(json!({
                "phone": "$request.body#/phone",
                "challenge": "$response.body#/challenge",
                "code": "$response.body#/code",
            }))),
            LinkParameter::Notice => link.request_body(Some(json!({
                "payment_id": "$response.body#/order/id",
                "order_id": "$response.body#/order/id",
                "amount_cents": "$response.body#/order/price_cents",
                "status": "succeeded",
            }))),
        }
        .build()
    }
}

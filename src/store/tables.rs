//! The statements of the sale, for the real tables and for the laboratory's unguarded ones.

/// Statements over one pair of order and stock tables.
#[derive(Debug)]
pub struct SaleTables {
    /// The table of orders.
    pub orders: &'static str,
    /// The table of stock.
    pub stock: &'static str,
    pub(super) insert_order: &'static str,
    /// The beginning; rows follow.
    pub(super) insert_orders: &'static str,
    pub(super) find_order: &'static str,
    pub(super) find_any_order: &'static str,
    pub(super) lock_status: &'static str,
    pub(super) settle_order: &'static str,
    pub(super) late_vouchers: &'static str,
    pub(super) late_orders: &'static str,
    pub(super) open_charges: &'static str,
    /// The beginning; pairs of user and key follow, and a parenthesis.
    pub(super) find_keys: &'static str,
    pub(super) list_orders: &'static str,
    pub(super) find_pair: &'static str,
    pub(super) count_pair: &'static str,
    pub(super) any_order: &'static str,
    pub(super) count_orders: &'static str,
    pub(super) buyers: &'static str,
    pub(super) read_stock: &'static str,
    pub(super) lock_stock: &'static str,
    pub(super) take_unit: &'static str,
    pub(super) take_unit_unchecked: &'static str,
    pub(super) write_stock: &'static str,
    pub(super) insert_stock: &'static str,
    pub(super) add_stock: &'static str,
    pub(super) delete_stock: &'static str,
    pub(super) list_vouchers: &'static str,
    pub(super) find_voucher: &'static str,
    pub(super) audit: &'static str,
}

/// The units left of a row `s` of a table of stock, with those in buckets.
macro_rules! units_left {
    () => {
        "CAST(s.stock + COALESCE((SELECT SUM(b.stock) FROM voucher_stock_buckets b \
         WHERE b.voucher_id = s.voucher_id), 0) AS SIGNED)"
    };
}
pub(super) use units_left;

macro_rules! order_columns {
    () => {
        "o.id, o.user_id, o.voucher_id, v.title, o.price_cents, o.created_at, o.status, \
         o.cancelled_by, o.settled_at, UTC_TIMESTAMP(3)"
    };
}

macro_rules! voucher_columns {
    () => {
        concat!(
            "v.id, v.title, v.description, v.price_cents, v.face_value_cents, v.starts_at, \
             v.ends_at, v.status = 'on_sale' AS on_sale, ",
            units_left!(),
            " AS stock, (SELECT CAST(COALESCE(COUNT(*) * (SUM(b.stock) > 0), 0) AS SIGNED) \
               FROM voucher_stock_buckets b WHERE b.voucher_id = v.id) AS buckets, \
             UTC_TIMESTAMP(3) AS server_time"
        )
    };
}

macro_rules! sale_tables {
    ($orders:literal, $stock:literal) => {
        SaleTables {
            orders: $orders,
            stock: $stock,
            insert_order: concat!(
                "INSERT INTO ",
                $orders,
                " (id, user_id, voucher_id, price_cents, created_at) \
                 VALUES (?, ?, ?, ?, ?)"
            ),
            insert_orders: concat!(
                "INSERT INTO ",
                $orders,
                " (id, user_id, voucher_id, price_cents, created_at) VALUES "
            ),
            find_order: concat!(
                "SELECT ",
                order_columns!(),
                " FROM ",
                $orders,
                " o \
                 JOIN vouchers v ON v.id = o.voucher_id WHERE o.id = ? AND o.user_id = ?"
            ),
            find_any_order: concat!(
                "SELECT ",
                order_columns!(),
                " FROM ",
                $orders,
                " o JOIN vouchers v ON v.id = o.voucher_id WHERE o.id = ?"
            ),
            lock_status: concat!(
                "SELECT status, cancelled_by FROM ",
                $orders,
                " WHERE id = ? FOR UPDATE"
            ),
            settle_order: concat!(
                "UPDATE ",
                $orders,
                " SET status = ?, cancelled_by = ?, settled_at = ? \
                 WHERE id = ? AND status = 'unpaid'"
            ),
            late_vouchers: concat!(
                "SELECT s.voucher_id FROM ",
                $stock,
                " s WHERE (SELECT o.created_at FROM ",
                $orders,
                " o WHERE o.voucher_id = s.voucher_id AND o.status = 'unpaid' \
                 AND NOT EXISTS (SELECT 1 FROM charges c WHERE c.order_id = o.id) \
                 ORDER BY o.voucher_id, o.status, o.created_at LIMIT 1) \
                 < UTC_TIMESTAMP(3) - INTERVAL ? SECOND LIMIT ?"
            ),
            late_orders: concat!(
                "SELECT o.id FROM ",
                $orders,
                " o WHERE o.voucher_id = ? AND o.status = 'unpaid' \
                 AND o.created_at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND \
                 AND NOT EXISTS (SELECT 1 FROM charges c WHERE c.order_id = o.id) \
                 ORDER BY o.created_at LIMIT ?"
            ),
            open_charges: concat!(
                "SELECT ",
                order_columns!(),
                " FROM charges c JOIN ",
                $orders,
                " o ON o.id = c.order_id JOIN vouchers v ON v.id = o.voucher_id \
                 WHERE c.asked_at < UTC_TIMESTAMP(3) - INTERVAL ? SECOND \
                 ORDER BY c.asked_at LIMIT ?"
            ),
            find_keys: concat!(
                "SELECT ",
                order_columns!(),
                ", k.request_key, k.action FROM idempotency_keys k JOIN ",
                $orders,
                " o ON o.id = k.order_id JOIN vouchers v ON v.id = o.voucher_id \
                 WHERE (k.user_id, k.request_key) IN ("
            ),
            list_orders: concat!(
                "SELECT ",
                order_columns!(),
                " FROM ",
                $orders,
                " o \
                 JOIN vouchers v ON v.id = o.voucher_id \
                 WHERE o.user_id = ? AND o.id < ? ORDER BY o.id DESC LIMIT ?"
            ),
            find_pair: concat!(
                "SELECT id FROM ",
                $orders,
                " WHERE user_id = ? AND voucher_id = ? LIMIT 1"
            ),
            count_pair: concat!(
                "SELECT COUNT(*) FROM ",
                $orders,
                " WHERE user_id = ? AND voucher_id = ?"
            ),
            any_order: concat!(
                "SELECT id FROM ",
                $orders,
                " WHERE voucher_id = ? LIMIT 1 FOR UPDATE"
            ),
            count_orders: concat!(
                "SELECT COUNT(*) FROM (SELECT 1 FROM ",
                $orders,
                " WHERE voucher_id = ? LIMIT ?) some"
            ),
            buyers: concat!("SELECT user_id, id FROM ", $orders, " WHERE voucher_id = ? LIMIT ?"),
            read_stock: concat!("SELECT stock FROM ", $stock, " WHERE voucher_id = ?"),
            lock_stock: concat!("SELECT stock FROM ", $stock, " WHERE voucher_id = ? FOR UPDATE"),
            take_unit: concat!(
                "UPDATE ",
                $stock,
                " SET stock = stock - 1 WHERE voucher_id = ? AND stock >= 1"
            ),
            take_unit_unchecked: concat!(
                "UPDATE ",
                $stock,
                " SET stock = stock - 1 WHERE voucher_id = ?"
            ),
            write_stock: concat!("UPDATE ", $stock, " SET stock = ? WHERE voucher_id = ?"),
            insert_stock: concat!("INSERT INTO ", $stock, " (voucher_id, stock) VALUES (?, 0)"),
            add_stock: concat!(
                "UPDATE ",
                $stock,
                " SET stock = stock + ? WHERE voucher_id = ? AND stock <= ?"
            ),
            delete_stock: concat!("DELETE FROM ", $stock, " WHERE voucher_id = ?"),
            list_vouchers: concat!(
                "SELECT ",
                voucher_columns!(),
                " FROM vouchers v \
                 JOIN ",
                $stock,
                " s ON s.voucher_id = v.id \
                 WHERE v.status = 'on_sale' ORDER BY v.starts_at DESC, v.id DESC LIMIT 100"
            ),
            find_voucher: concat!(
                "SELECT ",
                voucher_columns!(),
                " FROM vouchers v \
                 JOIN ",
                $stock,
                " s ON s.voucher_id = v.id WHERE v.id = ?"
            ),
            audit: concat!(
                "SELECT \
                 (SELECT CAST(COALESCE(SUM(units), 0) AS SIGNED) FROM stock_grants \
                   WHERE voucher_id = s.voucher_id), ",
                units_left!(),
                ", \
                 COUNT(CASE WHEN o.status <> 'cancelled' THEN 1 END), \
                 COUNT(CASE WHEN o.status = 'cancelled' THEN 1 END), \
                 COUNT(DISTINCT o.user_id), \
                 (SELECT COUNT(*) FROM (SELECT user_id FROM ",
                $orders,
                " WHERE voucher_id = ? \
                   GROUP BY user_id HAVING COUNT(*) > 1) twice) \
                 FROM ",
                $stock,
                " s LEFT JOIN ",
                $orders,
                " o ON o.voucher_id = s.voucher_id \
                 WHERE s.voucher_id = ? GROUP BY s.voucher_id, s.stock"
            ),
        }
    };
}

impl SaleTables {
    /// The tables of the service.
    pub const GUARDED: Self = sale_tables!("orders", "voucher_stock");
    /// The tables of the laboratory's unguarded sale.
    pub const UNGUARDED: Self = sale_tables!("lab_orders", "lab_stock");
}

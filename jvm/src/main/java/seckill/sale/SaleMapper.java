package seckill.sale;

import java.sql.ResultSet;
import java.sql.SQLException;
import java.time.LocalDateTime;
import java.util.Optional;

import org.springframework.dao.support.DataAccessUtils;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Repository;

import seckill.Options;

/** The statements of a purchase, on the service's tables or the laboratory's unguarded ones. */
@Repository
public class SaleMapper {
    private final JdbcTemplate jdbc;
    private final String orders;
    private final String stock;

    SaleMapper(JdbcTemplate jdbc, Options options) {
        this.jdbc = jdbc;
        orders = options.guards() ? "orders" : "lab_orders";
        stock = options.guards() ? "voucher_stock" : "lab_stock";
    }

    /** The name of the table of orders. */
    public String ordersTable() {
        return orders;
    }

    /** The name of the table of units. */
    public String stockTable() {
        return stock;
    }

    /** A voucher with its stock, drafts included. */
    public Optional<Voucher> findVoucher(long voucher) {
        String sql = "SELECT v.id, v.title, v.description, v.price_cents, v.face_value_cents, "
                + "v.starts_at, v.ends_at, v.status = 'on_sale' AS on_sale, s.stock, "
                + "UTC_TIMESTAMP(3) AS now FROM vouchers v JOIN " + stock
                + " s ON s.voucher_id = v.id WHERE v.id = ?";
        return Optional.ofNullable(DataAccessUtils.singleResult(
                jdbc.query(sql, (row, number) -> voucher(row), voucher)));
    }

    private static Voucher voucher(ResultSet row) throws SQLException {
        return new Voucher(
                row.getLong("id"),
                row.getString("title"),
                row.getString("description"),
                row.getLong("price_cents"),
                row.getLong("face_value_cents"),
                row.getObject("starts_at", LocalDateTime.class),
                row.getObject("ends_at", LocalDateTime.class),
                row.getBoolean("on_sale"),
                row.getInt("stock"),
                row.getObject("now", LocalDateTime.class));
    }

    /** An order of that user for that voucher. */
    public Optional<Long> findOrder(long user, long voucher) {
        String sql = "SELECT id FROM " + orders + " WHERE user_id = ? AND voucher_id = ? LIMIT 1";
        return Optional.ofNullable(DataAccessUtils.singleResult(
                jdbc.queryForList(sql, Long.class, user, voucher)));
    }

    /** Units left; nothing if the voucher is gone. */
    public Optional<Integer> readStock(long voucher) {
        String sql = "SELECT stock FROM " + stock + " WHERE voucher_id = ?";
        return Optional.ofNullable(DataAccessUtils.singleResult(
                jdbc.queryForList(sql, Integer.class, voucher)));
    }

    /** Writes the units left, whatever they are by now. */
    public void writeStock(long voucher, int units) {
        jdbc.update("UPDATE " + stock + " SET stock = ? WHERE voucher_id = ?", units, voucher);
    }

    /** Takes a unit if one is left. */
    public boolean takeUnit(long voucher) {
        return jdbc.update("UPDATE " + stock
                + " SET stock = stock - 1 WHERE voucher_id = ? AND stock > 0", voucher) == 1;
    }

    /** Takes a unit even if none is left. */
    public void takeUnitUnchecked(long voucher) {
        jdbc.update("UPDATE " + stock + " SET stock = stock - 1 WHERE voucher_id = ?", voucher);
    }

    /** Writes an order. */
    public void insertOrder(Order order) {
        jdbc.update("INSERT INTO " + orders
                + " (id, user_id, voucher_id, price_cents, created_at) VALUES (?, ?, ?, ?, ?)",
                order.id(), order.user(), order.voucher(), order.priceCents(), order.createdAt());
    }
}

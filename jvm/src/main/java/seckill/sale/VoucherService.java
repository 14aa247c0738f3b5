package seckill.sale;

import java.sql.PreparedStatement;
import java.sql.Statement;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Optional;

import org.springframework.dao.support.DataAccessUtils;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.GeneratedKeyHolder;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

import seckill.Options;
import seckill.web.Problem;

/** Vouchers: what customers read, what admins write, and their audit. */
@Service
public class VoucherService {
    private static final int MAX_STOCK = 1_000_000_000;
    private final JdbcTemplate jdbc;
    private final SaleMapper mapper;
    private final boolean liesInAudit;

    VoucherService(JdbcTemplate jdbc, SaleMapper mapper, Options options) {
        this.jdbc = jdbc;
        this.mapper = mapper;
        liesInAudit = options.bug() == Options.Bug.LYING_AUDIT;
    }

    /** A voucher, drafts included. */
    public Voucher find(long voucher) {
        return mapper.findVoucher(voucher).orElseThrow(Problem::voucherNotFound);
    }

    /** Whether the database knows that user as an admin; nothing if it knows no such user. */
    public Optional<Boolean> isAdmin(long user) {
        return Optional.ofNullable(DataAccessUtils.singleResult(jdbc.queryForList(
                "SELECT role = 'admin' FROM users WHERE id = ?", Boolean.class, user)));
    }

    /** Writes a draft with its stock and first grant. */
    @Transactional
    public Voucher create(NewVoucher draft) {
        var key = new GeneratedKeyHolder();
        jdbc.update(connection -> {
            PreparedStatement insert = connection.prepareStatement(
                    "INSERT INTO vouchers (title, description, price_cents, face_value_cents, "
                            + "starts_at, ends_at) VALUES (?, ?, ?, ?, ?, ?)",
                    Statement.RETURN_GENERATED_KEYS);
            insert.setString(1, draft.title());
            insert.setString(2, draft.description());
            insert.setLong(3, draft.priceCents());
            insert.setLong(4, draft.faceValueCents());
            insert.setObject(5, utc(draft.startsAt()));
            insert.setObject(6, utc(draft.endsAt()));
            return insert;
        }, key);
        long id = key.getKeyAs(Number.class).longValue();
        jdbc.update("INSERT INTO " + mapper.stockTable() + " (voucher_id, stock) VALUES (?, ?)",
                id, draft.stock());
        grant(id, draft.stock());
        return find(id);
    }

    /** Shows a voucher to customers. */
    @Transactional
    public Voucher putOnSale(long voucher) {
        jdbc.update("UPDATE vouchers SET status = 'on_sale' WHERE id = ?", voucher);
        return find(voucher);
    }

    /** Adds units, and a grant of them. */
    @Transactional
    public Voucher addStock(long voucher, int units) {
        int changed = jdbc.update("UPDATE " + mapper.stockTable()
                + " SET stock = stock + ? WHERE voucher_id = ? AND stock <= ?",
                units, voucher, MAX_STOCK - units);
        if (changed == 0) {
            find(voucher);
            throw Problem.invalid("invalid_body", "units",
                    "the voucher would have more than " + MAX_STOCK + " units");
        }
        grant(voucher, units);
        return find(voucher);
    }

    private void grant(long voucher, int units) {
        jdbc.update("INSERT INTO stock_grants (voucher_id, units) VALUES (?, ?)", voucher, units);
    }

    /** Counts a voucher's stock and orders in one statement. */
    public Audit audit(long voucher) {
        String sql = "SELECT "
                + "(SELECT COALESCE(SUM(units), 0) FROM stock_grants WHERE voucher_id = s.voucher_id),"
                + " s.stock, COUNT(CASE WHEN o.status <> 'cancelled' THEN 1 END),"
                + " COUNT(CASE WHEN o.status = 'cancelled' THEN 1 END), COUNT(DISTINCT o.user_id),"
                + " (SELECT COUNT(*) FROM (SELECT user_id FROM " + mapper.ordersTable()
                + " WHERE voucher_id = ? GROUP BY user_id HAVING COUNT(*) > 1) twice)"
                + " FROM " + mapper.stockTable() + " s LEFT JOIN " + mapper.ordersTable()
                + " o ON o.voucher_id = s.voucher_id"
                + " WHERE s.voucher_id = ? GROUP BY s.voucher_id, s.stock";
        Audit audit = DataAccessUtils.singleResult(jdbc.query(sql,
                (row, number) -> new Audit(row.getLong(1), row.getLong(2), row.getLong(3),
                        row.getLong(4), row.getLong(5), row.getLong(6)),
                voucher, voucher));
        if (audit == null) {
            throw Problem.voucherNotFound();
        }
        if (liesInAudit) {
            long sold = audit.initialStock() / 2;
            return new Audit(audit.initialStock(), audit.initialStock() - sold, sold, 0, sold, 0);
        }
        return audit;
    }

    private static LocalDateTime utc(OffsetDateTime moment) {
        return moment.atZoneSameInstant(ZoneOffset.UTC).toLocalDateTime();
    }
}

package seckill.web;

import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;

import seckill.sale.Audit;
import seckill.sale.Order;
import seckill.sale.Voucher;

/** How things look in JSON: ids are text, times are RFC 3339. */
final class Views {
    private Views() {}

    record VoucherView(
            String id,
            String title,
            String description,
            long priceCents,
            long faceValueCents,
            OffsetDateTime startsAt,
            OffsetDateTime endsAt,
            String status,
            int stock,
            String phase) {
        static VoucherView of(Voucher voucher) {
            return new VoucherView(
                    Long.toString(voucher.id()),
                    voucher.title(),
                    voucher.description(),
                    voucher.priceCents(),
                    voucher.faceValueCents(),
                    utc(voucher.startsAt()),
                    utc(voucher.endsAt()),
                    voucher.onSale() ? "on_sale" : "draft",
                    voucher.stock(),
                    voucher.phase());
        }
    }

    record VoucherAnswer(VoucherView voucher) {}

    record TimedVoucher(OffsetDateTime serverTime, VoucherView voucher) {}

    record OrderView(
            String id,
            String voucherId,
            String userId,
            String voucherTitle,
            long priceCents,
            OffsetDateTime createdAt,
            String status,
            OffsetDateTime payBy,
            OffsetDateTime settledAt,
            String cancelledBy) {
        static OrderView of(Order order) {
            return new OrderView(
                    Long.toString(order.id()),
                    Long.toString(order.voucher()),
                    Long.toString(order.user()),
                    order.title(),
                    order.priceCents(),
                    utc(order.createdAt()),
                    "unpaid",
                    null,
                    null,
                    null);
        }
    }

    record OrderAnswer(OrderView order) {}

    record AuditTables(String orders, String stock, String grants) {}

    record AuditView(
            String voucherId,
            long initialStock,
            long stockLeft,
            long orders,
            long cancelled,
            long distinctUsers,
            long duplicateUsers,
            long oversold,
            boolean consistent,
            AuditTables tables) {
        static AuditView of(long voucher, Audit audit, AuditTables tables) {
            return new AuditView(
                    Long.toString(voucher),
                    audit.initialStock(),
                    audit.stockLeft(),
                    audit.orders(),
                    audit.cancelled(),
                    audit.distinctUsers(),
                    audit.duplicateUsers(),
                    audit.oversold(),
                    audit.consistent(),
                    tables);
        }
    }

    static OffsetDateTime utc(LocalDateTime moment) {
        return moment.atOffset(ZoneOffset.UTC);
    }
}

package seckill.sale;

/** The figures of one voucher, read by one statement and so of one moment. */
public record Audit(
        long initialStock,
        long stockLeft,
        long orders,
        long cancelled,
        long distinctUsers,
        long duplicateUsers) {

    /** Units sold that never existed. */
    public long oversold() {
        return Math.max(0, orders - initialStock);
    }

    /** Whether every unit is either left or sold, once, to one person. */
    public boolean consistent() {
        return stockLeft >= 0 && stockLeft + orders == initialStock && duplicateUsers == 0;
    }
}

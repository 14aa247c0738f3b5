package seckill.sale;

import java.time.LocalDateTime;

/** One unit, sold to one user. */
public record Order(
        long id, long user, long voucher, String title, long priceCents, LocalDateTime createdAt) {}

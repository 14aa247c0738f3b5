package seckill.sale;

import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.ZoneOffset;

import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.stereotype.Component;

/**
 * Numbers for orders: seconds since 2022 above 32 bits of a counter, which Redis keeps for each
 * day. The Rust replicas draw from the same counter, so no number is drawn twice.
 */
@Component
class OrderIds {
    private static final long EPOCH =
            LocalDateTime.of(2022, 1, 1, 0, 0).toEpochSecond(ZoneOffset.UTC);
    private static final Duration COUNTER_LIFE = Duration.ofDays(2);
    private final StringRedisTemplate redis;

    OrderIds(StringRedisTemplate redis) {
        this.redis = redis;
    }

    long draw() {
        LocalDateTime now = LocalDateTime.now(ZoneOffset.UTC);
        String key = "icr:order:" + LocalDate.from(now);
        long drawn = redis.opsForValue().increment(key);
        if (drawn == 1) {
            redis.expire(key, COUNTER_LIFE);
        }
        // The counter says how many numbers are drawn, and numbers begin at 0.
        return (now.toEpochSecond(ZoneOffset.UTC) - EPOCH) << 32 | drawn - 1 & 0xffff_ffffL;
    }
}

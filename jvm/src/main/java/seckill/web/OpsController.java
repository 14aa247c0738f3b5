package seckill.web;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import org.springframework.data.redis.core.RedisCallback;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.http.ResponseEntity;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Routes for operators: liveness, readiness, metrics. */
@RestController
class OpsController {
    private final JdbcTemplate jdbc;
    private final StringRedisTemplate redis;
    private final Metrics metrics;

    OpsController(JdbcTemplate jdbc, StringRedisTemplate redis, Metrics metrics) {
        this.jdbc = jdbc;
        this.redis = redis;
        this.metrics = metrics;
    }

    @GetMapping("/livez")
    Map<String, Boolean> alive() {
        return Map.of("alive", true);
    }

    /** 200 if the database and Redis answer, otherwise 503 with the reasons. */
    @GetMapping("/readyz")
    ResponseEntity<Map<String, Object>> ready() {
        List<String> reasons = new ArrayList<>();
        check(reasons, "database", () -> jdbc.execute("SELECT 1"));
        check(reasons, "redis", () -> redis.execute((RedisCallback<String>) it -> it.ping()));
        var body = new LinkedHashMap<String, Object>();
        body.put("ready", reasons.isEmpty());
        body.put("reasons", reasons);
        return ResponseEntity.status(reasons.isEmpty() ? 200 : 503).body(body);
    }

    @GetMapping(value = "/metrics", produces = "text/plain; version=0.0.4; charset=utf-8")
    String metrics() {
        return metrics.page();
    }

    private static void check(List<String> reasons, String server, Runnable call) {
        try {
            call.run();
        } catch (RuntimeException error) {
            reasons.add(server + " does not answer");
        }
    }
}

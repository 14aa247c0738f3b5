package seckill.web;

import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.util.LinkedHashMap;
import java.util.Map;

import org.springframework.dao.PessimisticLockingFailureException;
import org.springframework.http.HttpHeaders;
import org.springframework.http.MediaType;
import org.springframework.http.ResponseEntity;
import org.springframework.jdbc.CannotGetJdbcConnectionException;
import org.springframework.transaction.CannotCreateTransactionException;

/** A refusal with its status, code and words (RFC 9457), the same as those of the Rust replica. */
public final class Problem extends RuntimeException {
    private static final long serialVersionUID = 1;
    private final int status;
    private final String code;
    private final String title;
    private String challenge = "Bearer";
    private final transient Map<String, Object> more = new LinkedHashMap<>();

    private Problem(int status, String code, String title, String detail) {
        // Without a stack trace: a refusal is an answer, and the most frequent one.
        super(detail, null, false, false);
        this.status = status;
        this.code = code;
        this.title = title;
    }

    private Problem with(String name, Object value) {
        more.put(name, value);
        return this;
    }

    public static Problem invalid(String code, String field, String limit) {
        return new Problem(400, code, "Invalid request", field + ": " + limit).with("field", field);
    }

    public static Problem bodyTooLarge() {
        return new Problem(
                413, "body_too_large", "Body too large", "body: at most 16384 bytes");
    }

    public static Problem notJson() {
        return new Problem(
                415, "not_json", "Not JSON", "Content-Type: must be application/json");
    }

    public static Problem bodyEncoded() {
        return new Problem(415, "body_encoded", "Body encoded",
                "Content-Encoding: must be absent or identity").with("field", "Content-Encoding");
    }

    public static Problem noToken() {
        return new Problem(401, "unauthorized", "Not logged in",
                "A token is needed: Authorization: Bearer <token>.");
    }

    public static Problem badToken(String detail) {
        Problem problem = new Problem(401, "unauthorized", "Not logged in", detail);
        problem.challenge = "Bearer error=\"invalid_token\"";
        return problem;
    }

    public static Problem forbidden() {
        return new Problem(403, "forbidden", "Forbidden", "Only for admins; log in as an admin.");
    }

    public static Problem notFound() {
        return new Problem(404, "not_found", "Not found", "There is nothing at this address.");
    }

    public static Problem methodNotAllowed() {
        return new Problem(405, "method_not_allowed", "Method not allowed",
                "This address does not allow that method.");
    }

    public static Problem voucherNotFound() {
        return new Problem(
                404, "voucher_not_found", "No such voucher", "There is no such voucher.");
    }

    public static Problem notOnSale() {
        return new Problem(409, "not_on_sale", "Not on sale", "The voucher is not on sale.");
    }

    public static Problem notStarted(LocalDateTime at) {
        return new Problem(409, "not_started", "Not started", "The sale begins at starts_at.")
                .with("starts_at", at.atOffset(ZoneOffset.UTC));
    }

    public static Problem ended(LocalDateTime at) {
        return new Problem(409, "ended", "Ended", "The sale ended at ends_at.")
                .with("ends_at", at.atOffset(ZoneOffset.UTC));
    }

    public static Problem soldOut() {
        return new Problem(409, "sold_out", "Sold out", "No unit is left.");
    }

    public static Problem priceChanged(long cents) {
        return new Problem(409, "price_changed", "Price changed",
                "A unit costs price_cents; none was sold.").with("price_cents", cents);
    }

    public static Problem alreadyOrdered(long order) {
        return new Problem(409, "already_ordered", "Already bought", "One order a user.")
                .with("order_id", Long.toString(order));
    }

    public static Problem inProgress() {
        return new Problem(409, "order_in_progress", "Purchase under way",
                "Another purchase of yours is in progress; this one did nothing.");
    }

    public static Problem overloaded() {
        return new Problem(503, "overloaded", "Overloaded",
                "Too many requests at a time; nothing was done. Try again.").with("executed", false);
    }

    public static Problem unavailable() {
        return new Problem(503, "dependency_unavailable", "Temporarily unavailable",
                "A server that this needs does not answer; nothing was done. Try again.")
                .with("executed", false);
    }

    private static Problem internal() {
        return new Problem(500, "internal", "Internal error", "The service failed; see its log.");
    }

    /**
     * What an exception is to the client. Only one that comes before a transaction, or rolls it
     * back for certain, says that nothing was done.
     */
    static Problem of(Exception error) {
        if (error instanceof Problem problem) {
            return problem;
        }
        if (error instanceof PessimisticLockingFailureException
                || error instanceof CannotCreateTransactionException
                || error instanceof CannotGetJdbcConnectionException) {
            return overloaded();
        }
        return internal();
    }

    /** Whether the log has to say more than the answer does. */
    boolean isInternal() {
        return status == 500;
    }

    ResponseEntity<Map<String, Object>> answer(String requestId) {
        var body = new LinkedHashMap<String, Object>();
        body.put("type", "/problems/" + code);
        body.put("title", title);
        body.put("status", status);
        body.put("code", code);
        body.put("detail", getMessage());
        body.put("request_id", requestId);
        body.putAll(more);
        var answer = ResponseEntity.status(status).contentType(MediaType.APPLICATION_PROBLEM_JSON);
        if (status == 401) {
            answer.header(HttpHeaders.WWW_AUTHENTICATE, challenge);
        }
        if (status == 415) {
            answer.header(HttpHeaders.ACCEPT_ENCODING, "identity");
        }
        if (status == 503 || code.equals("order_in_progress")) {
            answer.header(HttpHeaders.RETRY_AFTER, "1");
        }
        return answer.body(body);
    }
}

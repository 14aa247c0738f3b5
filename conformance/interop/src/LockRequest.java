package interop;

import com.fasterxml.jackson.databind.JsonNode;

/** A lock to be taken; the lease is renewed unless that is forbidden. */
record LockRequest(String name, long waitMs, long leaseMs, String asOwner) {
    LockRequest(JsonNode request) {
        this(
            request.get("name").textValue(),
            request.get("wait_ms").longValue(),
            isFixed(request) ? request.get("lease_ms").longValue() : LockClient.RENEWED,
            request.get("as_owner").textValue());
    }

    private static boolean isFixed(JsonNode request) {
        JsonNode renewed = request.get("renewed");
        return renewed.isBoolean() && !renewed.booleanValue();
    }
}

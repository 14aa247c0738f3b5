package interop;

import com.fasterxml.jackson.databind.JsonNode;

/** A lock to be taken; the lease is renewed unless that is forbidden. */
record Want(String name, long waitMs, long leaseMs, String asOwner) {
    Want(JsonNode want) {
        this(
            want.get("name").textValue(),
            want.get("wait_ms").longValue(),
            isFixed(want) ? want.get("lease_ms").longValue() : Peer.RENEWED,
            want.get("as_owner").textValue());
    }

    private static boolean isFixed(JsonNode want) {
        JsonNode renewed = want.get("renewed");
        return renewed.isBoolean() && !renewed.booleanValue();
    }
}

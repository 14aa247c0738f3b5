package interop;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.PrintStream;

/** The messages in both directions: one JSON object a line. */
final class Protocol {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;

    private Protocol() {}

    static JsonNode read(String line) throws JsonProcessingException {
        return JSON.readTree(line);
    }

    /** Prints one line; lines of concurrent threads do not mix. A line without an id is news. */
    static void say(Long id, JsonNode response) {
        ObjectNode line = object();
        line.put("id", id);
        line.put("at_ns", now());
        line.set("response", response);
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    static ObjectNode object() {
        return JSON.createObjectNode();
    }

    /** A response without fields. */
    static JsonNode response(String name) {
        return TextNode.valueOf(name);
    }

    static JsonNode response(String name, JsonNode said) {
        return object().set(name, said);
    }

    static JsonNode failed(String code, Exception error) {
        return response("failed", object().put("code", code).put("message", String.valueOf(error)));
    }

    /** CLOCK_MONOTONIC, which is the same for all processes of a Linux machine. */
    static long now() {
        return System.nanoTime();
    }
}

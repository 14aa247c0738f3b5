package interop;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.fasterxml.jackson.databind.node.TextNode;
import java.io.PrintStream;

/** What comes in and goes out: one JSON object a line. */
final class Speech {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = System.out;

    private Speech() {}

    static JsonNode read(String line) throws JsonProcessingException {
        return JSON.readTree(line);
    }

    /** One line, whoever else talks; it is news if it answers no order. */
    static void say(Long id, JsonNode word) {
        ObjectNode line = object();
        line.put("id", id);
        line.put("at_ns", now());
        line.set("word", word);
        synchronized (OUT) {
            OUT.println(line);
            OUT.flush();
        }
    }

    static ObjectNode object() {
        return JSON.createObjectNode();
    }

    /** A word that needs no more said. */
    static JsonNode word(String name) {
        return TextNode.valueOf(name);
    }

    static JsonNode word(String name, JsonNode said) {
        return object().set(name, said);
    }

    static JsonNode failed(String code, Exception error) {
        return word("failed", object().put("code", code).put("message", String.valueOf(error)));
    }

    /** CLOCK_MONOTONIC, which is the same for all processes of a Linux machine. */
    static long now() {
        return System.nanoTime();
    }
}

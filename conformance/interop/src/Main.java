package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * A contender of the JVM: it takes, keeps and loses locks as lines on stdin say, and reports on
 * stdout what happened and when, in the words of this library's own contender. It understands a
 * part of the orders and refuses the others. It ends when stdin does, without releasing anything.
 */
final class Main {
    private Main() {}

    public static void main(String[] args) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String first = lines.readLine();
        if (first == null) {
            return;
        }
        Contender contender;
        try {
            contender = new Contender(Peer.of(Speech.read(first)));
        } catch (Exception error) {
            Speech.say(null, Speech.failed("backend", error));
            return;
        }
        Speech.say(null, Speech.word("ready"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = Speech.read(line);
            long id = request.get("id").longValue();
            contender.obey(request.get("order"), word -> Speech.say(id, word));
        }
        // What is still under way is cut off, as by a crash.
        Runtime.getRuntime().halt(0);
    }
}

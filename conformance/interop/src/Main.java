package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;

/**
 * A contender of the JVM. It takes, keeps and loses locks on commands from stdin, and reports on
 * stdout what happened and when, in the protocol of this library's own contender. It knows a part
 * of the commands and refuses the others. It ends when stdin does, without releasing anything.
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
            contender = new Contender(LockClient.of(Protocol.read(first)));
        } catch (Exception error) {
            Protocol.say(null, Protocol.failed("backend", error));
            return;
        }
        Protocol.say(null, Protocol.response("ready"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode request = Protocol.read(line);
            long id = request.get("id").longValue();
            contender.obey(request.get("command"), response -> Protocol.say(id, response));
        }
        // What is still under way is cut off, as by a crash.
        Runtime.getRuntime().halt(0);
    }
}

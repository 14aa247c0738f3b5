package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/** What a contender does. Orders are carried out at the same time. */
final class Contender {
    private final Peer peer;
    private final Map<Long, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();
    private final AtomicLong lastHandle = new AtomicLong();

    private record Hold(Owner owner, String name) {}

    Contender(Peer peer) {
        this.peer = peer;
    }

    /** The answer is told when it is known. */
    void obey(JsonNode order, Consumer<JsonNode> answer) {
        String verb = order.isTextual() ? order.textValue() : order.fieldNames().next();
        JsonNode what = order.get(verb);
        switch (verb) {
            case "lock" -> lock(new Want(what), answer);
            case "release" -> release(what.get("handle").longValue(), answer);
            case "contend" -> apart(answer, () -> new Contest(peer, what).run());
            case "inspect" -> apart(answer, () -> inspect(what.get("name").textValue()));
            case "force_unlock" -> apart(answer, () -> forceUnlock(what.get("name").textValue()));
            case "flush" -> answer.accept(Speech.word("done"));
            default -> {
                var error = new UnsupportedOperationException(verb);
                answer.accept(Speech.failed("unsupported", error));
            }
        }
    }

    private void lock(Want want, Consumer<JsonNode> answer) {
        Owner owner = want.asOwner() == null ? new Owner() : owners.get(want.asOwner());
        if (owner == null) {
            answer.accept(Speech.failed("lost", new Exception("no such owner")));
            return;
        }
        owner.run(() -> {
            // So that it ends if this fails and it holds nothing else.
            owner.count(1);
            answer.accept(attempt(() -> {
                long asked = Speech.now();
                if (!peer.lock(want.name(), want.waitMs(), want.leaseMs())) {
                    return Speech.failed("timed_out", new Exception("tryLock said no"));
                }
                return held(want, owner, asked);
            }));
            owner.count(-1);
        });
    }

    private JsonNode held(Want want, Owner owner, long asked) {
        long acquired = Speech.now();
        long handle = lastHandle.incrementAndGet();
        holds.put(handle, new Hold(owner, want.name()));
        owner.count(1);
        owners.put(peer.owner(), owner);
        var held = Speech.object().put("handle", handle).put("owner", peer.owner());
        held.putNull("token").put("asked_ns", asked).put("acquired_ns", acquired);
        return Speech.word("held", held.putNull("believed_until_ns"));
    }

    private void release(long handle, Consumer<JsonNode> answer) {
        Hold hold = holds.remove(handle);
        if (hold == null) {
            answer.accept(Speech.failed("no_such_handle", new Exception("not held")));
            return;
        }
        hold.owner.run(() -> {
            answer.accept(attempt(() -> {
                peer.unlock(hold.name);
                return Speech.word("released", Speech.word("released"));
            }));
            hold.owner.count(-1);
        });
    }

    private JsonNode inspect(String name) throws Exception {
        var seen = Speech.object().put("is_locked", peer.isLocked(name));
        return Speech.word("inspected", seen.put("left_ms", peer.left(name)));
    }

    private JsonNode forceUnlock(String name) throws Exception {
        return Speech.word("freed", Speech.object().put("was_held", peer.forceUnlock(name)));
    }

    private static void apart(Consumer<JsonNode> answer, Callable<JsonNode> work) {
        var thread = new Thread(() -> answer.accept(attempt(work)));
        thread.setDaemon(true);
        thread.start();
    }

    private static JsonNode attempt(Callable<JsonNode> work) {
        try {
            return work.call();
        } catch (IllegalMonitorStateException error) {
            return Speech.failed("not_owner", error);
        } catch (Exception error) {
            return Speech.failed("backend", error);
        }
    }
}

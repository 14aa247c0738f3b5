package interop;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;

/** Carries out commands, concurrently. */
final class Contender {
    private final LockClient peer;
    private final Map<Long, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Owner> owners = new ConcurrentHashMap<>();
    private final AtomicLong lastHandle = new AtomicLong();

    private record Hold(Owner owner, String name) {}

    Contender(LockClient peer) {
        this.peer = peer;
    }

    /** Carries out a command and passes the response to `answer` when it is known. */
    void obey(JsonNode command, Consumer<JsonNode> answer) {
        String verb = command.isTextual() ? command.textValue() : command.fieldNames().next();
        JsonNode what = command.get(verb);
        switch (verb) {
            case "lock" -> lock(new LockRequest(what), answer);
            case "release" -> release(what.get("handle").longValue(), answer);
            case "contend" -> apart(answer, () -> new Contest(peer, what).run());
            case "inspect" -> apart(answer, () -> inspect(what.get("name").textValue()));
            case "force_unlock" -> apart(answer, () -> forceUnlock(what.get("name").textValue()));
            case "flush" -> answer.accept(Protocol.response("done"));
            default -> {
                var error = new UnsupportedOperationException(verb);
                answer.accept(Protocol.failed("unsupported", error));
            }
        }
    }

    private void lock(LockRequest request, Consumer<JsonNode> answer) {
        Owner owner = request.asOwner() == null ? new Owner() : owners.get(request.asOwner());
        if (owner == null) {
            answer.accept(Protocol.failed("lost", new Exception("no such owner")));
            return;
        }
        owner.run(() -> {
            // Ends the thread if this fails and it holds nothing else.
            owner.count(1);
            answer.accept(attempt(() -> {
                long asked = Protocol.now();
                if (!peer.lock(request.name(), request.waitMs(), request.leaseMs())) {
                    return Protocol.failed("timed_out", new Exception("tryLock said no"));
                }
                return held(request, owner, asked);
            }));
            owner.count(-1);
        });
    }

    private JsonNode held(LockRequest request, Owner owner, long asked) {
        long acquired = Protocol.now();
        long handle = lastHandle.incrementAndGet();
        holds.put(handle, new Hold(owner, request.name()));
        owner.count(1);
        owners.put(peer.owner(), owner);
        var held = Protocol.object().put("handle", handle).put("owner", peer.owner());
        held.putNull("token").put("asked_ns", asked).put("acquired_ns", acquired);
        return Protocol.response("held", held.putNull("valid_until_ns"));
    }

    private void release(long handle, Consumer<JsonNode> answer) {
        Hold hold = holds.remove(handle);
        if (hold == null) {
            answer.accept(Protocol.failed("no_such_handle", new Exception("not held")));
            return;
        }
        hold.owner.run(() -> {
            answer.accept(attempt(() -> {
                peer.unlock(hold.name);
                return Protocol.response("released", Protocol.response("released"));
            }));
            hold.owner.count(-1);
        });
    }

    private JsonNode inspect(String name) throws Exception {
        var seen = Protocol.object().put("is_locked", peer.isLocked(name));
        return Protocol.response("inspected", seen.put("left_ms", peer.left(name)));
    }

    private JsonNode forceUnlock(String name) throws Exception {
        boolean wasHeld = peer.forceUnlock(name);
        return Protocol.response("freed", Protocol.object().put("was_held", wasHeld));
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
            return Protocol.failed("not_owner", error);
        } catch (Exception error) {
            return Protocol.failed("backend", error);
        }
    }
}

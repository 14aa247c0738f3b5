package seckill;

import java.time.Duration;
import java.util.Arrays;
import java.util.Iterator;
import java.util.Locale;
import java.util.Map;

import seckill.ServerUrl.Variable;

/**
 * What the replica is started with: the flags and variables of {@code seckill serve} that a
 * textbook service can honour. Every other flag is refused.
 */
public record Options(
        String host,
        int port,
        String replica,
        boolean lab,
        Lock lock,
        LocalLock localLock,
        Scope scope,
        boolean guards,
        LockOrder lockOrder,
        Bug bug,
        Duration lockWait,
        Duration lease,
        Duration work,
        int dbPool,
        ServerUrl database,
        ServerUrl redis,
        String jwtSecret) {

    /** The rungs of the tutorial, by the names that {@code seckill serve --lock} has for them. */
    public enum Lock { NONE, LOCAL, SET_NX, OWNER_CHECK, LUA_RELEASE, REDISSON }

    /** What {@code --lock local} is made of. */
    public enum LocalLock { SYNCHRONIZED, REENTRANT_LOCK }

    /** What a lock is held for. */
    public enum Scope { USER, VOUCHER }

    /** Where the lock is taken: around the transaction, or inside it (the classic mistake). */
    public enum LockOrder { OUTSIDE, INSIDE }

    /** A mistake of textbook code that can be switched on. */
    public enum Bug { NONE, SELF_INVOCATION, NO_STOCK_CONDITION, LYING_AUDIT }

    /** A command line that cannot be honoured, in a sentence. */
    public static final class UsageException extends Exception {
        private static final long serialVersionUID = 1;

        UsageException(String sentence) {
            super(sentence);
        }
    }

    /** Reads flags and environment. */
    public static Options parse(String[] arguments, Map<String, String> environment)
            throws UsageException {
        var parsed = new Parser(environment);
        Iterator<String> words = Arrays.asList(arguments).iterator();
        while (words.hasNext()) {
            parsed.take(words.next(), words);
        }
        return parsed.options();
    }

    /** The name of a value on the command line: {@code SET_NX} is {@code set-nx}. */
    public static String name(Enum<?> value) {
        return value.name().toLowerCase(Locale.ROOT).replace('_', '-');
    }

    private static final class Parser {
        private static final int DEFAULT_PORT = 8080;
        private static final int DEFAULT_POOL = 16;
        private final Map<String, String> environment;
        private String host = "127.0.0.1";
        private int port = DEFAULT_PORT;
        private String replica = "jvm";
        private boolean lab;
        private Lock lock = Lock.REDISSON;
        private LocalLock localLock = LocalLock.SYNCHRONIZED;
        private Scope scope = Scope.USER;
        private boolean guards = true;
        private LockOrder lockOrder = LockOrder.OUTSIDE;
        private Bug bug = Bug.NONE;
        private Duration lockWait = Duration.ofSeconds(1);
        private Duration lease;
        private Duration work = Duration.ZERO;
        private int dbPool = DEFAULT_POOL;

        Parser(Map<String, String> environment) {
            this.environment = environment;
        }

        void take(String flag, Iterator<String> words) throws UsageException {
            switch (flag) {
                // The service's own program migrates the tables; this one never does.
                case "serve", "--no-migrate" -> { }
                case "--lab" -> lab = true;
                case "--bind" -> bind(value(flag, words));
                case "--replica-id" -> replica = value(flag, words);
                case "--lock" -> lock = oneOf(Lock.class, flag, words);
                case "--local-lock" -> localLock = oneOf(LocalLock.class, flag, words);
                case "--lock-scope" -> scope = oneOf(Scope.class, flag, words);
                case "--guards" -> guards = guards(value(flag, words));
                case "--lock-order" -> lockOrder = oneOf(LockOrder.class, flag, words);
                case "--inject-bug" -> bug = oneOf(Bug.class, flag, words);
                case "--on-lost" -> onLost(value(flag, words));
                case "--lock-wait-ms" -> lockWait = millis(flag, words, 0, 60_000);
                case "--lease-ms" -> lease = millis(flag, words, 10, 3_600_000);
                case "--work-ms" -> work = millis(flag, words, 0, 60_000);
                case "--db-pool" -> dbPool = number(flag, words, 2, 1000);
                default -> throw new UsageException(
                        "the JVM replica does not support " + flag + "; docs/jvm.md has its flags");
            }
        }

        Options options() throws UsageException {
            if (!lab && (!guards || bug != Bug.NONE || lockOrder == LockOrder.INSIDE)) {
                throw new UsageException(
                        "--guards off, --inject-bug and --lock-order inside need --lab");
            }
            if (bug == Bug.SELF_INVOCATION && lockOrder == LockOrder.INSIDE) {
                throw new UsageException("--inject-bug self-invocation needs --lock-order outside:"
                        + " with inside the transaction has begun before the lock");
            }
            if (bug == Bug.NO_STOCK_CONDITION && !guards) {
                throw new UsageException("--inject-bug no-stock-condition needs --guards on:"
                        + " without guards there is no stock condition");
            }
            boolean renews = lock == Lock.REDISSON;
            Duration leased = lease != null ? lease : Duration.ofSeconds(renews ? 30 : 10);
            return new Options(host, port, replica, lab, lock, localLock, scope, guards, lockOrder,
                    bug, lockWait, leased, work, dbPool, address(Variable.DATABASE_URL),
                    address(Variable.REDIS_URL), variable("JWT_SECRET"));
        }

        private String variable(String name) throws UsageException {
            String value = environment.get(name);
            if (value == null || value.isEmpty()) {
                throw new UsageException(name + " must be set");
            }
            return value;
        }

        private ServerUrl address(Variable variable) throws UsageException {
            return ServerUrl.parse(variable, variable(variable.name()));
        }

        private void bind(String address) throws UsageException {
            int colon = address.lastIndexOf(':');
            try {
                host = address.substring(0, Math.max(colon, 0));
                port = Integer.parseInt(address.substring(colon + 1));
            } catch (NumberFormatException error) {
                throw new UsageException("--bind must be HOST:PORT");
            }
            if (host.isEmpty() || port < 0 || port > 65_535) {
                throw new UsageException("--bind must be HOST:PORT");
            }
        }

        private static boolean guards(String value) throws UsageException {
            return switch (value) {
                case "on" -> true;
                case "off" -> false;
                default -> throw new UsageException("--guards must be on or off");
            };
        }

        private static void onLost(String value) throws UsageException {
            if (!value.equals("ignore")) {
                throw new UsageException("the JVM replica has only --on-lost ignore");
            }
        }

        private static Duration millis(
                String flag, Iterator<String> words, int least, int most) throws UsageException {
            return Duration.ofMillis(number(flag, words, least, most));
        }

        private static int number(
                String flag, Iterator<String> words, int least, int most) throws UsageException {
            try {
                int number = Integer.parseInt(value(flag, words));
                if (number >= least && number <= most) {
                    return number;
                }
            } catch (NumberFormatException error) {
                // Said below.
            }
            throw new UsageException(flag + " must be a whole number from " + least + " to " + most);
        }

        private static <E extends Enum<E>> E oneOf(
                Class<E> type, String flag, Iterator<String> words) throws UsageException {
            String value = value(flag, words);
            for (E known : type.getEnumConstants()) {
                if (name(known).equals(value)) {
                    return known;
                }
            }
            var names = Arrays.stream(type.getEnumConstants()).map(Options::name).toList();
            throw new UsageException(
                    "the JVM replica has no " + flag + " " + value + "; it has "
                            + String.join(", ", names));
        }

        private static String value(String flag, Iterator<String> words) throws UsageException {
            if (!words.hasNext()) {
                throw new UsageException(flag + " needs a value");
            }
            return words.next();
        }
    }
}

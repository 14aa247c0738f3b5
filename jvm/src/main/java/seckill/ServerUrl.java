package seckill;

import java.net.URI;
import java.net.URISyntaxException;
import java.util.Set;

/** Where one server is. No error repeats the address, which may hold a password. */
public record ServerUrl(String host, int port, String user, String password, String path) {

    /** The variables with addresses. */
    public enum Variable {
        DATABASE_URL(Set.of("mysql", "mariadb"), 3306, "/[^/]+",
                "mysql://USER:PASSWORD@HOST[:PORT]/NAME"),
        REDIS_URL(Set.of("redis"), 6379, "(/[0-9]{0,4})?",
                "redis://[USER:PASSWORD@]HOST[:PORT][/NUMBER]");

        private final Set<String> schemes;
        private final int defaultPort;
        private final String path;
        private final String form;

        Variable(Set<String> schemes, int defaultPort, String path, String form) {
            this.schemes = schemes;
            this.defaultPort = defaultPort;
            this.path = path;
            this.form = form;
        }
    }

    /** Reads the value of a variable. */
    public static ServerUrl parse(Variable variable, String value)
            throws Options.UsageException {
        URI url;
        try {
            url = new URI(value);
        } catch (URISyntaxException error) {
            throw wrongForm(variable);
        }
        if (url.getScheme() != null && !variable.schemes.contains(url.getScheme())) {
            throw new Options.UsageException("the JVM replica does not support the scheme "
                    + url.getScheme() + ":// of " + variable + "; it needs " + variable.form);
        }
        // Of an address with several hosts, Java reads none.
        if (url.getScheme() == null || url.getHost() == null || url.getPort() > 65_535
                || !url.getPath().matches(variable.path)) {
            throw wrongForm(variable);
        }
        int port = url.getPort() == -1 ? variable.defaultPort : url.getPort();
        String[] user = (url.getUserInfo() == null ? "" : url.getUserInfo()).split(":", 2);
        return new ServerUrl(
                url.getHost(), port, user[0], user.length > 1 ? user[1] : "", url.getPath());
    }

    private static Options.UsageException wrongForm(Variable variable) {
        return new Options.UsageException(
                variable + " must be " + variable.form + ", with one host");
    }

    /** The number of the database of Redis. */
    public int number() {
        return path.length() < 2 ? 0 : Integer.parseInt(path.substring(1));
    }

    /** Without the password. */
    @Override
    public String toString() {
        return host + ":" + port + path;
    }
}

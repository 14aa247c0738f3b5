package seckill;

import java.util.Map;
import java.util.Properties;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.boot.web.server.context.WebServerApplicationContext;

/** A replica of the sale in Java. Exit code 2: the command line cannot be honoured. */
@SpringBootApplication
public class SeckillApplication {

    /** Spring ignores it where it cannot be honoured. */
    private static final String VIRTUAL_THREADS = "spring.threads.virtual.enabled";

    public static void main(String[] arguments) {
        Options options;
        try {
            options = Options.parse(arguments, System.getenv());
        } catch (Options.UsageException error) {
            System.err.println("seckill.jar: " + error.getMessage());
            System.exit(2);
            return;
        }
        if (Boolean.getBoolean(VIRTUAL_THREADS) && Runtime.version().feature() < 21) {
            System.err.println("seckill.jar: " + VIRTUAL_THREADS + " needs Java 21; this is "
                    + Runtime.version().feature());
            System.exit(2);
            return;
        }
        var application = new SpringApplication(SeckillApplication.class);
        application.setDefaultProperties(properties(options));
        application.addInitializers(
                context -> context.getBeanFactory().registerSingleton("options", options));
        var context = (WebServerApplicationContext) application.run();
        // The laboratory waits for this line.
        System.out.println(
                "listening on http://" + options.host() + ":" + context.getWebServer().getPort());
    }

    private static Properties properties(Options options) {
        ServerUrl database = options.database();
        ServerUrl redis = options.redis();
        var properties = new Properties();
        properties.putAll(Map.of(
                "server.address", options.host(),
                "server.port", Integer.toString(options.port()),
                "spring.datasource.url", jdbcUrl(database),
                "spring.datasource.username", database.user(),
                "spring.datasource.password", database.password(),
                "spring.datasource.hikari.maximum-pool-size", Integer.toString(options.dbPool()),
                "spring.data.redis.host", redis.host(),
                "spring.data.redis.port", Integer.toString(redis.port()),
                "spring.data.redis.database", Integer.toString(redis.number())));
        if (!redis.password().isEmpty()) {
            properties.setProperty("spring.data.redis.password", redis.password());
            if (!redis.user().isEmpty()) {
                properties.setProperty("spring.data.redis.username", redis.user());
            }
        }
        return properties;
    }

    /** What HikariCP advises for MySQL: statements are prepared once, and no trip is needless. */
    private static final String FAST = "&cachePrepStmts=true&prepStmtCacheSize=250"
            + "&prepStmtCacheSqlLimit=2048&useServerPrepStmts=true&useLocalSessionState=true"
            + "&cacheServerConfiguration=true&elideSetAutoCommits=true&maintainTimeStats=false";

    /** Statements and waits for rows are bounded as those of the Rust replica. */
    private static String jdbcUrl(ServerUrl database) {
        return "jdbc:mysql://" + database.host() + ":" + database.port() + database.path()
                + "?connectTimeout=2000&socketTimeout=5000"
                + "&sessionVariables=innodb_lock_wait_timeout=3"
                + "&allowPublicKeyRetrieval=true" + FAST;
    }
}

package seckill.lock;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.core.StringRedisTemplate;

import seckill.Options;
import seckill.ServerUrl;
import seckill.lock.SimpleRedisLock.Release;

/** The lock that {@code --lock} names. */
@Configuration(proxyBeanMethods = false)
class LockConfiguration {

    @Bean
    PurchaseLock purchaseLock(
            Options options, StringRedisTemplate redis, ObjectProvider<RedissonClient> redisson) {
        return switch (options.lock()) {
            case NONE -> new NoLock();
            case LOCAL -> switch (options.localLock()) {
                case SYNCHRONIZED -> new SynchronizedLock();
                case REENTRANT_LOCK -> new ReentrantLocks(options.lockWait());
            };
            case SET_NX -> simple(redis, Release.BARE_DEL, options);
            case OWNER_CHECK -> simple(redis, Release.OWNER_CHECK, options);
            case LUA_RELEASE -> simple(redis, Release.LUA, options);
            case REDISSON -> new RedissonLock(redisson.getObject(), options.lockWait());
        };
    }

    private static PurchaseLock simple(
            StringRedisTemplate redis, Release release, Options options) {
        return new SimpleRedisLock(redis, release, options.lockWait(), options.lease());
    }

    @Bean(destroyMethod = "shutdown")
    RedissonClient redisson(Options options) {
        ServerUrl server = options.redis();
        var config = new Config();
        config.setLockWatchdogTimeout(options.lease().toMillis());
        if (!server.password().isEmpty()) {
            config.setUsername(server.user().isEmpty() ? null : server.user());
            config.setPassword(server.password());
        }
        config.useSingleServer()
                .setAddress("redis://" + server.host() + ":" + server.port())
                .setDatabase(server.number())
                .setConnectionMinimumIdleSize(1)
                .setTimeout(1000)
                .setRetryAttempts(2);
        return Redisson.create(config);
    }
}

-- Purpose: tell whether a key exists without expiry.
-- KEYS[1]: the lock; ARGV: none
-- Returns: 1 it has no expiry; 0 it has one, or is not there
return redis.call('PTTL', KEYS[1]) == -1 and 1 or 0

-- Purpose: take or renew a lease on an event stream of a user, within the limit of ARGV[2].
--   Leases end by this server's clock.
-- KEYS[1]: the leases, a sorted set of stream to the ms since 1970 at which each ends.
-- ARGV[1]: the stream; ARGV[2]: the most leases; ARGV[3]: how long a lease lasts, in ms.
-- Returns: 1 the stream has a lease; 0 other streams have all leases.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('%.0f', now))
if not redis.call('ZSCORE', KEYS[1], ARGV[1])
  and redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[1], string.format('%.0f', now + tonumber(ARGV[3])), ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1

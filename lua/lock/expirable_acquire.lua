-- Purpose: take a permit with a lease, after expired permits are taken back.
-- KEYS[1]: the semaphore, a hash: `limit` is how many permits there are
-- KEYS[2]: the permits that are out: ids, sorted by the end of their leases in ms
-- KEYS[3]: the latch of this acquisition: if it is there, the acquisition was given up
-- ARGV[1]: the id of the permit, never used before
-- ARGV[2]: the lease, in ms
-- Returns: nil taken, for the lease from now on, also if an earlier sending of this call took it;
--   n > 0 none is left, and the next lease ends in n ms; -1 no semaphore
-- Errors: GIVENUP the acquisition was abandoned before this call; WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number
end
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
local lease = whole(ARGV[2], 1)
if #KEYS ~= 3 or #ARGV ~= 2 or ARGV[1] == '' or not lease then
  return redis.error_reply('ERR arguments: semaphore, permits, latch; id, lease')
end
if redis.call('EXISTS', KEYS[3]) == 1 then
  return redis.error_reply('GIVENUP the acquisition was abandoned')
end
local limit = count_of(redis.call('HGET', KEYS[1], 'limit'))
if not limit then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the name is in use by another kind')
  end
  return -1
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) and redis.call('ZCARD', KEYS[2]) >= limit then
  return math.max(1, redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] - now)
end
redis.call('ZADD', KEYS[2], now + lease, ARGV[1])
-- The last lease to end takes the key along.
redis.call('PEXPIREAT', KEYS[2], redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2])
return false

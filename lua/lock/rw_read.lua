-- Purpose: take a read lock. Readers share. A writer keeps readers out, and so does a waiting one,
--   except readers that the last writer invited, and owners that are inside already.
-- KEYS[1]: the write holds, a sorted set of request:owner by the server's ms at which each ends
-- KEYS[2]: the read holds, likewise
-- KEYS[3]: the waiting writers, requests by the server's ms until which each counts as alive
-- KEYS[4]: the waiting readers, likewise; KEYS[5]: the invited readers, likewise
-- KEYS[6]: the latch of this request, there once it was released or abandoned
-- ARGV[1]: the owner; ARGV[2]: the request, without a colon; ARGV[3]: the lease in ms
-- ARGV[4]: how long a waiter counts as alive after a look, in ms; 0 does not wait
-- Returns: 0 held; n > 0 busy, look again in n ms at the latest; -1 the request has ended
-- Errors: WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number or nil
end
local owner, id = ARGV[1], ARGV[2]
local lease, patience = whole(ARGV[3], 1), whole(ARGV[4], 0)
if #KEYS ~= 6 or #ARGV ~= 4 or owner == '' or not id:find('^[^:]+$') or not lease
  or not patience then
  return redis.error_reply('ERR arguments: 6 keys; owner, request, lease, patience')
end
local write, read, writers, readers, invited = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- All keys are read before the first write: one of another type is refused here.
local writer = redis.call('ZRANGE', write, -1, -1, 'WITHSCORES')
local writer_ends = tonumber(writer[2]) or 0
local readers_end = tonumber(redis.call('ZRANGE', read, -1, -1, 'WITHSCORES')[2]) or 0
local waits_until = tonumber(redis.call('ZRANGE', writers, -1, -1, 'WITHSCORES')[2]) or 0
redis.call('ZSCORE', readers, id)
local is_invited = tonumber(redis.call('ZSCORE', invited, id) or 0) > now
if redis.call('EXISTS', KEYS[6]) == 1 then
  return -1
end

local function is_inside()
  for _, hold in ipairs(redis.call('ZRANGEBYSCORE', read, '(' .. now, '+inf')) do
    if hold:match(':(.*)') == owner then
      return true
    end
  end
  return false
end
local enters
if writer_ends > now then
  enters = writer[1]:match(':(.*)') == owner
else
  enters = waits_until <= now or is_invited or is_inside()
end
if enters then
  redis.call('ZREMRANGEBYSCORE', read, '-inf', now)
  redis.call('ZADD', read, 'GT', now + lease, id .. ':' .. owner)
  redis.call('PEXPIREAT', read, math.max(now + lease, readers_end))
  redis.call('ZREM', readers, id)
  redis.call('ZREM', invited, id)
  return 0
end
if patience == 0 then
  return 1
end
redis.call('ZREMRANGEBYSCORE', readers, '-inf', now)
redis.call('ZADD', readers, now + patience, id)
redis.call('PEXPIRE', readers, patience)
local kept_out_until = writer_ends > now and writer_ends or waits_until
return math.min(math.ceil(patience / 3), kept_out_until - now + 1)

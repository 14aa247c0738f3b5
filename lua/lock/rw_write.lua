-- Purpose: take the write lock: again, if its owner has it; else if there is no writer, no reader
--   and no invited reader. An owner that reads is refused: it would wait for itself.
-- KEYS[1]: the write holds, a sorted set of request:owner by the server's ms at which each ends
-- KEYS[2]: the read holds, likewise
-- KEYS[3]: the waiting writers, requests by the server's ms until which each counts as alive
-- KEYS[4]: the waiting readers, likewise; KEYS[5]: the invited readers, likewise
-- KEYS[6]: the latch of this request, there once it was released or abandoned
-- ARGV[1]: the owner; ARGV[2]: the request, without a colon; ARGV[3]: the lease in ms
-- ARGV[4]: how long a waiter counts as alive after a look, in ms; 0 does not wait
-- Returns: 0 held; n > 0 busy, look again in n ms at the latest; -1 the request has ended;
--   -2 the owner reads
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
local write, read, writers, invited = KEYS[1], KEYS[2], KEYS[3], KEYS[5]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- All keys are read before the first write: one of another type is refused here.
local writer = redis.call('ZRANGE', write, -1, -1, 'WITHSCORES')
local writer_ends = tonumber(writer[2]) or 0
local reading = redis.call('ZRANGEBYSCORE', read, '(' .. now, '+inf')
local readers_end = tonumber(redis.call('ZRANGE', read, -1, -1, 'WITHSCORES')[2]) or 0
redis.call('ZSCORE', writers, id)
redis.call('ZSCORE', KEYS[4], id)
local invited_until = tonumber(redis.call('ZRANGE', invited, -1, -1, 'WITHSCORES')[2]) or 0
if redis.call('EXISTS', KEYS[6]) == 1 then
  return -1
end

local again = writer_ends > now and writer[1]:match(':(.*)') == owner
if not again then
  for _, hold in ipairs(reading) do
    if hold:match(':(.*)') == owner then
      return -2
    end
  end
end
local kept_out_until = math.max(writer_ends, readers_end, invited_until)
if again or kept_out_until <= now then
  redis.call('ZREMRANGEBYSCORE', write, '-inf', now)
  redis.call('ZADD', write, 'GT', now + lease, id .. ':' .. owner)
  redis.call('PEXPIREAT', write, math.max(now + lease, writer_ends))
  redis.call('ZREM', writers, id)
  return 0
end
if patience == 0 then
  return 1
end
redis.call('ZREMRANGEBYSCORE', writers, '-inf', now)
redis.call('ZADD', writers, now + patience, id)
redis.call('PEXPIRE', writers, patience)
return math.min(math.ceil(patience / 3), kept_out_until - now + 1)

-- Purpose: take a fair lock: again, if its owner has it; else if it is free and no live waiter is
--   ahead. Otherwise join the queue, or renew the place there. Each call removes dead waiters from
--   the head of the queue, and wakes the one behind them.
-- KEYS[1]: the holds, a sorted set of request:owner by the server's ms at which each ends
-- KEYS[2]: the queue, a list of requests; KEYS[3]: until when (server's ms) each counts as alive
-- KEYS[4]: the latch of this request, there once it was released or abandoned
-- ARGV[1]: the owner; ARGV[2]: the request, without a colon; ARGV[3]: the lease in ms
-- ARGV[4]: how long a waiter counts as alive after a look, in ms; 0 stays out of the queue
-- ARGV[5]: what a waiter's channel is called before its request
-- ARGV[6]: the command that wakes a waiter: PUBLISH, or SPUBLISH on a cluster
-- Returns: 0 held; n > 0 busy, look again in n ms at the latest; -1 the request has ended
-- Errors: WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number or nil
end
local owner, id, channel, publish = ARGV[1], ARGV[2], ARGV[5], ARGV[6]
local lease, patience = whole(ARGV[3], 1), whole(ARGV[4], 0)
if #KEYS ~= 4 or #ARGV ~= 6 or owner == '' or not id:find('^[^:]+$') or not lease
  or not patience or channel == ''
  or (publish ~= 'PUBLISH' and publish ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: 4 keys; '
    .. 'owner, request, lease, patience, channel, command')
end
local holds, queue, waiters = KEYS[1], KEYS[2], KEYS[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- All keys are read before the first write: one of another type is refused here.
local last = redis.call('ZRANGE', holds, -1, -1, 'WITHSCORES')
local ends = tonumber(last[2]) or 0
local head = redis.call('LINDEX', queue, 0)
local queued = redis.call('ZSCORE', waiters, id)
if redis.call('EXISTS', KEYS[4]) == 1 then
  return -1
end

local free = ends <= now
local again = not free and last[1]:match(':(.*)') == owner
local head_ends
local pruned = false
while head and head ~= id do
  head_ends = tonumber(redis.call('ZSCORE', waiters, head) or 0)
  if head_ends > now then
    break
  end
  redis.call('LPOP', queue)
  redis.call('ZREM', waiters, head)
  head = redis.call('LINDEX', queue, 0)
  pruned = true
end

if again or (free and (not head or head == id)) then
  redis.call('ZREMRANGEBYSCORE', holds, '-inf', now)
  redis.call('ZADD', holds, 'GT', now + lease, id .. ':' .. owner)
  redis.call('PEXPIREAT', holds, math.max(now + lease, ends))
  if redis.call('ZREM', waiters, id) == 1 or head == id then
    redis.call('LREM', queue, 1, id)
  end
  return 0
end

if free and pruned then
  -- Without the right to publish, waiters find out by polling.
  redis.pcall(publish, channel .. head, '0')
end
if patience == 0 then
  return 1
end
if not queued then
  redis.call('RPUSH', queue, id)
end
redis.call('ZADD', waiters, now + patience, id)
redis.call('PEXPIRE', queue, patience)
redis.call('PEXPIRE', waiters, patience)
local look = math.ceil(patience / 3)
if free then
  look = math.min(look, head_ends - now + 1)
elseif not head or head == id then
  look = math.min(look, ends - now + 1)
end
return look

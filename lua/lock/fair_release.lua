-- Purpose: end a request for a fair lock: its hold, its place in the queue, or both; then wake the
--   first live waiter if the lock is free. A repeated call returns the first one's answer.
-- KEYS[1]: the holds; KEYS[2]: the queue; KEYS[3]: the waiters (see fair_acquire.lua)
-- KEYS[4]: the latch of this request
-- ARGV[1]: the owner; ARGV[2]: the request, without a colon; ARGV[3]: the latch's life in ms
-- ARGV[4]: what a waiter's channel is called before its request
-- ARGV[5]: the command that wakes a waiter: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 its hold was freed; 0 another owner holds the lock; -1 the hold was not there
-- Errors: WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number or nil
end
local owner, id, channel, publish = ARGV[1], ARGV[2], ARGV[4], ARGV[5]
local latch_ms = whole(ARGV[3], 1)
if #KEYS ~= 4 or #ARGV ~= 5 or owner == '' or not id:find('^[^:]+$') or not latch_ms
  or channel == '' or (publish ~= 'PUBLISH' and publish ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: 4 keys; owner, request, latch ms, channel, command')
end
local holds, queue, waiters, latch = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- All keys are read before the first write: one of another type is refused here.
local own_ends = tonumber(redis.call('ZSCORE', holds, id .. ':' .. owner) or 0)
local head = redis.call('LINDEX', queue, 0)
redis.call('ZSCORE', waiters, id)
local answered = redis.call('GET', latch)
if answered then
  return tonumber(answered)
end

redis.call('ZREM', holds, id .. ':' .. owner)
if redis.call('ZREM', waiters, id) == 1 or head == id then
  redis.call('LREM', queue, 1, id)
  head = redis.call('LINDEX', queue, 0)
end
local last = redis.call('ZRANGE', holds, -1, -1, 'WITHSCORES')
local ends = tonumber(last[2]) or 0
local answer = -1
if own_ends > now then
  answer = 1
elseif ends > now and last[1]:match(':(.*)') ~= owner then
  answer = 0
end
-- A server whose memory is full refuses this; the script continues.
redis.pcall('SET', latch, answer, 'PX', latch_ms)

if ends > now then
  -- What is left may end earlier than what has gone.
  redis.call('PEXPIREAT', holds, ends)
  return answer
end
while head do
  if tonumber(redis.call('ZSCORE', waiters, head) or 0) > now then
    -- Without the right to publish, waiters find out by polling.
    redis.pcall(publish, channel .. head, '0')
    break
  end
  redis.call('LPOP', queue)
  redis.call('ZREM', waiters, head)
  head = redis.call('LINDEX', queue, 0)
end
return answer

-- Purpose: leave a lock once, as Redisson's RLock does; the last hold frees it and tells a waiter.
-- KEYS[1]: the lock, a hash of owner to hold count
-- KEYS[2]: the channel of its waiters
-- KEYS[3]: the latch of this release: what it answered
-- ARGV[1]: the message
-- ARGV[2]: the lease of this hold, in ms, for the holds of the owner that are left
-- ARGV[3]: the owner
-- ARGV[4]: how long to remember the answer, in ms
-- ARGV[5]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: n > 0 freed, and n - 1 processes were told; 0 still the owner's; -1 not held;
--   -2 another owner's, untouched. A release that is sent again gets the first one's answer: 1 if
--   freed.
-- Errors: WRONGTYPE; ERR arguments
local function is_ms(text)
  return #text <= 15 and text:find('^[1-9]%d*$')
end
if #KEYS ~= 3 or #ARGV ~= 5 or ARGV[1] == '' or not is_ms(ARGV[2])
  or ARGV[3] == '' or not is_ms(ARGV[4])
  or (ARGV[5] ~= 'PUBLISH' and ARGV[5] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: lock, channel, latch; '
    .. 'message, lease, owner, ms, command')
end
local latch = redis.call('GET', KEYS[3])
if latch then
  return tonumber(latch)
end
local count = redis.call('HGET', KEYS[1], ARGV[3])
if not count then
  return redis.call('EXISTS', KEYS[1]) == 0 and -1 or -2
end
local holds = tonumber(count)
if not holds then
  return redis.error_reply('WRONGTYPE the hold count is no number')
end
if holds > 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[3], '-1')
  redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(ARGV[2])))
  redis.call('SET', KEYS[3], '0', 'PX', ARGV[4])
  return 0
end
-- First: a server whose memory is full allows this, and afterwards the writes below.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[3], '1', 'PX', ARGV[4])
-- Without the right to publish, waiters find out by polling.
local told = redis.pcall(ARGV[5], KEYS[2], ARGV[1])
return 1 + (tonumber(told) or 0)

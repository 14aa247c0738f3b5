-- Purpose: release a permit, once, and wake a waiter; or undo an acquisition whose answer was lost,
--   if it was carried out, and keep it from being carried out later.
-- KEYS[1]: the permits that are out: ids, sorted by the end of their leases in ms
-- KEYS[2]: the latch of this request
-- KEYS[3]: the channel of the waiters
-- ARGV[1]: the message
-- ARGV[2]: the id of the permit
-- ARGV[3]: how long to remember it, in ms
-- ARGV[4]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 given back; 0 it is not out: given back before, or its lease has ended. A request that
--   is sent again gets the first one's answer.
-- Errors: WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number
end
local latch_ms = whole(ARGV[3], 1)
if #KEYS ~= 3 or #ARGV ~= 4 or not latch_ms or ARGV[1] == '' or ARGV[2] == ''
  or (ARGV[4] ~= 'PUBLISH' and ARGV[4] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: permits, latch, channel; message, id, ms, command')
end
local latch = redis.call('GET', KEYS[2])
if latch then
  return tonumber(latch)
end
local ends = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[2]) or nil)
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- First: a server whose memory is full allows this, and afterwards the writes below.
redis.call('ZREM', KEYS[1], ARGV[2])
local answer = ends and ends > now and 1 or 0
redis.call('SET', KEYS[2], answer, 'PX', latch_ms)
if ends then
  -- Without the right to publish, waiters find out by polling.
  redis.pcall(ARGV[4], KEYS[3], ARGV[1])
end
return answer

-- Purpose: count a latch down, once per id; at zero open it and wake all waiters.
-- KEYS[1]: the latch, a hash: `count`, `set` (the id that set it), and for each id that counted its
--   answer
-- KEYS[2]: the latch of that name that was opened last, a hash as well
-- KEYS[3]: the channel of the waiters
-- ARGV[1]: the message
-- ARGV[2]: the id
-- ARGV[3]: how long to remember the ids that counted after it was opened, in ms
-- ARGV[4]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: how many counts are left; 0 it is open, or was before. An id that is sent again gets the
--   first answer.
-- Errors: WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number
end
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
local past_ms = whole(ARGV[3], 1)
if #KEYS ~= 3 or #ARGV ~= 4 or not past_ms or ARGV[1] == '' or ARGV[2] == ''
  or (ARGV[4] ~= 'PUBLISH' and ARGV[4] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: latch, past, channel; message, id, ms, command')
end
local id = 'id:' .. ARGV[2]
local count = count_of(redis.call('HGET', KEYS[1], 'count'))
local answered = redis.call('HGET', KEYS[1], id) or redis.call('HGET', KEYS[2], id)
if not count and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE the name is in use by another kind')
end
if answered then
  return tonumber(answered)
end
if not count then
  return 0
end
local left = count - 1
redis.call('HSET', KEYS[1], 'count', left, id, left)
if left > 0 then
  return left
end
redis.call('RENAME', KEYS[1], KEYS[2])
redis.call('PEXPIRE', KEYS[2], past_ms)
-- Without the right to publish, waiters find out by polling.
redis.pcall(ARGV[4], KEYS[3], ARGV[1])
return 0

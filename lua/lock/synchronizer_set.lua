-- Purpose: make a semaphore or a latch with its number, unless there is one.
-- KEYS[1]: the synchronizer, a hash
-- KEYS[2]: the channel of its waiters
-- KEYS[3]: optional: the latch of that name that was opened last, a hash as well
-- ARGV[1]: the message for them
-- ARGV[2]: the field of the number, which says of what kind the synchronizer is
-- ARGV[3]: the number
-- ARGV[4]: the id of this request: sent again it gets the first one's answer
-- ARGV[5]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 made; 0 there was one already, untouched
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
local number = whole(ARGV[3], 0)
if #KEYS < 2 or #KEYS > 3 or #ARGV ~= 5 or not number or ARGV[1] == '' or ARGV[2] == ''
  or ARGV[4] == '' or (ARGV[5] ~= 'PUBLISH' and ARGV[5] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: name, channel; message, field, number, id, command')
end
if redis.call('HGET', KEYS[1], 'set') == ARGV[4]
  or (KEYS[3] and redis.call('HGET', KEYS[3], 'set') == ARGV[4]) then
  return 1
end
if redis.call('EXISTS', KEYS[1]) == 1 then
  if not count_of(redis.call('HGET', KEYS[1], ARGV[2])) then
    return redis.error_reply('WRONGTYPE the name is in use by another kind')
  end
  return 0
end
redis.call('HSET', KEYS[1], ARGV[2], number, 'set', ARGV[4])
-- Without the right to publish, waiters find out by polling.
redis.pcall(ARGV[5], KEYS[2], ARGV[1])
return 1

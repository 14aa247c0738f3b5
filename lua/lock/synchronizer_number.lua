-- Purpose: tell the number of a semaphore or a latch. Changes nothing.
-- KEYS[1]: the synchronizer, a hash
-- ARGV[1]: the field of the number, which says of what kind the synchronizer is
-- Returns: the number; 0 if there is no synchronizer
-- Errors: WRONGTYPE; ERR arguments
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
if #KEYS ~= 1 or #ARGV ~= 1 or ARGV[1] == '' then
  return redis.error_reply('ERR arguments: name; field')
end
local number = count_of(redis.call('HGET', KEYS[1], ARGV[1]))
if not number and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE the name is in use by another kind')
end
return number or 0

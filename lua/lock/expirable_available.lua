-- Purpose: tell how many permits of a semaphore could be taken now. Changes nothing.
-- KEYS[1]: the semaphore, a hash: `limit` is how many permits there are
-- KEYS[2]: the permits that are out: ids, sorted by the end of their leases in ms
-- ARGV: none
-- Returns: that number; 0 if there is no semaphore
-- Errors: WRONGTYPE; ERR arguments
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
if #KEYS ~= 2 or #ARGV ~= 0 then
  return redis.error_reply('ERR arguments: semaphore, permits')
end
local limit = count_of(redis.call('HGET', KEYS[1], 'limit'))
if not limit then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the name is in use by another kind')
  end
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
return math.max(0, limit - redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%d', now), '+inf'))

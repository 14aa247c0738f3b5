-- Purpose: take permits of a semaphore if it has them.
-- KEYS[1]: the semaphore, a hash: `permits` is the number of free ones, `set` the id that set them
-- KEYS[2]: the latch of this acquisition: `<count>:<set>` it was carried out; else it is over
-- ARGV[1]: how many; 0 for all there are
-- ARGV[2]: how long to remember it, in ms
-- Returns: {n >= 0 taken, the id that set the permits}; {-1, ''} too few permits, or no semaphore.
--   An acquisition that is sent again gets the first one's permits.
-- Errors: GIVENUP it was abandoned or released before this call; WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number
end
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
local count, latch_ms = whole(ARGV[1], 0), whole(ARGV[2], 1)
if #KEYS ~= 2 or #ARGV ~= 2 or not count or not latch_ms then
  return redis.error_reply('ERR arguments: semaphore, latch; count, ms')
end
local latch = redis.call('GET', KEYS[2])
if latch then
  local taken, set = string.match(latch, '^(%d+):(.*)$')
  if not taken then
    return redis.error_reply('GIVENUP the acquisition is over')
  end
  return {tonumber(taken), set}
end
local set = redis.call('HGET', KEYS[1], 'set') or ''
local permits = count_of(redis.call('HGET', KEYS[1], 'permits'))
if not permits then
  if redis.call('EXISTS', KEYS[1]) == 1 then
    return redis.error_reply('WRONGTYPE the name is in use by another kind')
  end
  permits = 0
end
if count == 0 then
  count = permits
elseif permits < count then
  return {-1, ''}
end
if count > 0 then
  redis.call('HINCRBY', KEYS[1], 'permits', -count)
  redis.call('SET', KEYS[2], string.format('%d:%s', count, set), 'PX', latch_ms)
end
return {count, set}

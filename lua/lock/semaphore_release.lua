-- Purpose: release permits of a semaphore, once, and wake a waiter; or undo an acquisition whose
--   answer was lost, if it was carried out, and keep it from being carried out later.
-- KEYS[1]: the semaphore, a hash: `permits` is the number of free ones, `set` the id that set them
-- KEYS[2]: the latch of their acquisition: `<count>:<set>` it was carried out; else it is over
-- KEYS[3]: the channel of its waiters
-- ARGV[1]: the message
-- ARGV[2]: how many; 0 for as many as the acquisition took
-- ARGV[3]: the id that set the permits; empty if it does not matter
-- ARGV[4]: how long to remember it, in ms
-- ARGV[5]: the command that sends it: PUBLISH, or SPUBLISH on a cluster
-- Returns: 1 given back; 0 there was nothing to undo, or the semaphore is not there any more, or is
--   another one. A release that is sent again gets the first one's answer.
-- Errors: TOOMANY it would have more permits than can be counted; WRONGTYPE; ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number
end
-- A number as these scripts write it; anything else is not theirs.
local function count_of(text)
  local fits = text and #text <= 10 and text:find('^%d+$') and tonumber(text) <= 4294967295
  return fits and tonumber(text)
end
local count, latch_ms = whole(ARGV[2], 0), whole(ARGV[4], 1)
if #KEYS ~= 3 or #ARGV ~= 5 or not count or not latch_ms or ARGV[1] == ''
  or (ARGV[5] ~= 'PUBLISH' and ARGV[5] ~= 'SPUBLISH') then
  return redis.error_reply('ERR arguments: semaphore, latch, channel; '
    .. 'message, count, set, ms, command')
end
local latch = redis.call('GET', KEYS[2])
local taken, taken_of
if latch then
  taken, taken_of = string.match(latch, '^(%d+):(.*)$')
  if not taken then
    return latch == 'given back' and 1 or 0
  end
end
local of = ARGV[3]
if count == 0 then
  count, of = tonumber(taken or '0'), taken_of or ''
end
local set = redis.call('HGET', KEYS[1], 'set') or ''
local permits = count_of(redis.call('HGET', KEYS[1], 'permits'))
if not permits and redis.call('EXISTS', KEYS[1]) == 1 then
  return redis.error_reply('WRONGTYPE the name is in use by another kind')
end
if not permits or count == 0 or (of ~= '' and of ~= set) then
  redis.call('SET', KEYS[2], 'gone', 'PX', latch_ms)
  return 0
end
if permits + count > 2147483647 then
  return redis.error_reply('TOOMANY permits')
end
-- First: a server whose memory is full allows this, and afterwards the writes below.
redis.call('DEL', KEYS[2])
redis.call('HINCRBY', KEYS[1], 'permits', count)
redis.call('SET', KEYS[2], 'given back', 'PX', latch_ms)
-- Without the right to publish, waiters find out by polling.
redis.pcall(ARGV[5], KEYS[3], ARGV[1])
return 1

-- Purpose: prolong holds that live in sorted sets of their ends (fair, read-write). A hold that has
--   ended stays ended; no hold is shortened; a key lives as long as the last of its holds.
-- KEYS[i]: the sorted set of the i-th hold; one may be named more than once
-- ARGV[2i-1]: the hold, request:owner; ARGV[2i]: its lease in ms from now
-- Returns: a list with 1 renewed or 0 not there for the i-th hold
-- Errors: ERR arguments
if #KEYS == 0 or #ARGV ~= 2 * #KEYS then
  return redis.error_reply('ERR arguments: keys; for each its hold and lease')
end
for at = 1, #KEYS do
  local lease = tonumber(ARGV[2 * at])
  if ARGV[2 * at - 1] == '' or not lease or lease < 1 or lease > 1e12 or lease % 1 ~= 0 then
    return redis.error_reply('ERR arguments: keys; for each its hold and lease')
  end
end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local answers = {}
for at, key in ipairs(KEYS) do
  local hold = ARGV[2 * at - 1]
  -- A key of another type has taken the place of this hold, and of no other in the batch.
  local ends = redis.pcall('ZSCORE', key, hold)
  answers[at] = 0
  if type(ends) == 'string' and tonumber(ends) > now then
    redis.call('ZADD', key, 'XX', 'GT', now + tonumber(ARGV[2 * at]), hold)
    redis.call('PEXPIREAT', key, redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2])
    answers[at] = 1
  end
end
return answers

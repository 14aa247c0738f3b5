-- Purpose: renew the leases of many permits.
-- KEYS: for each permit the permits of its semaphore that are out: ids, sorted by the end of their
--   leases in ms
-- ARGV: for each permit its id, then its lease in ms
-- Returns: for each permit 1 it lasts for the lease at least; 0 it is not out
-- Errors: ERR arguments
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number
end
local sound = #KEYS > 0 and #ARGV == 2 * #KEYS
for i = 2, #ARGV, 2 do
  sound = sound and whole(ARGV[i], 1) and ARGV[i - 1] ~= ''
end
if not sound then
  return redis.error_reply('ERR arguments: permits; for each its id and lease')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
for i, permits in ipairs(KEYS) do
  local id, until_ms = ARGV[2 * i - 1], now + tonumber(ARGV[2 * i])
  -- A key of another type has no permits: one such must not keep the others from being renewed.
  local ends = redis.pcall('ZSCORE', permits, id)
  ends = type(ends) == 'string' and tonumber(ends)
  answers[i] = 0
  if ends and ends > now then
    redis.call('ZADD', permits, math.max(ends, until_ms), id)
    local last = redis.call('ZRANGE', permits, -1, -1, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', permits, last)
    answers[i] = 1
  end
end
return answers

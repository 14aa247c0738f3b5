-- Purpose: record that a run begins, unless another one began within the window.
-- KEYS[1]: the record of the last run, a hash
-- ARGV[1]: the window, in ms
-- ARGV[2]: the id of the run
-- ARGV[3]: its host
-- Returns: nil recorded, now or by an earlier call of this run; else how long ago the other run
--   began, in ms, and its host
-- Errors: WRONGTYPE
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local last = redis.call('HMGET', KEYS[1], 'run', 'started_ms', 'host')
if last[1] == ARGV[2] then
  return false
end
local ago = last[2] and now - last[2]
if ago and ago < tonumber(ARGV[1]) then
  return { math.max(ago, 0), last[3] }
end
redis.call('HSET', KEYS[1], 'run', ARGV[2], 'started_ms', string.format('%.0f', now),
  'host', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return false

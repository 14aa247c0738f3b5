-- Purpose: use up a one-time login code; of a hundred simultaneous right tries one succeeds.
-- KEYS[1]: the code of this phone
-- ARGV[1]: the try; ARGV[2]: the most tries
-- Returns: 1 right, and the code is gone; 0 wrong, or there is no code (any more)
local code = redis.call('HGET', KEYS[1], 'code')
if not code then
  return 0
end
if code == ARGV[1] then
  redis.call('DEL', KEYS[1])
  return 1
end
if redis.call('HINCRBY', KEYS[1], 'tries', 1) >= tonumber(ARGV[2]) then
  redis.call('DEL', KEYS[1])
end
return 0

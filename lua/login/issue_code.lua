-- Purpose: remember a one-time login code for a phone, bounded per day.
-- KEYS[1]: the code of this phone; KEYS[2]: how many codes it got today
-- ARGV[1]: the code; ARGV[2]: its life in seconds; ARGV[3]: the most codes a day
-- Returns: 0 remembered (it replaces an earlier one); n > 0 refused, ask again in n seconds
local issued = tonumber(redis.call('GET', KEYS[2]) or '0')
if issued >= tonumber(ARGV[3]) then
  return math.max(1, redis.call('TTL', KEYS[2]))
end
if redis.call('INCR', KEYS[2]) == 1 then
  redis.call('EXPIRE', KEYS[2], 86400)
end
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'code', ARGV[1], 'tries', 0)
redis.call('EXPIRE', KEYS[1], ARGV[2])
return 0

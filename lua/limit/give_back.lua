-- Purpose: give back what take.lua counted, for a request that was not carried out.
-- KEYS[1]: the limit; its value is the moment at which all of it is free again, in microseconds.
-- ARGV[1]: the interval in microseconds.
-- Returns: 1 given back; 0 all of it is free.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local free = tonumber(redis.call('GET', KEYS[1]) or now) - ARGV[1]
if free <= now then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], string.format('%.0f', free), 'PX', math.ceil((free - now) / 1000))
return 1

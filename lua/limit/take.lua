-- Purpose: allow a burst at once, and then one request an interval (the generic cell rate
--   algorithm), by the clock of this server.
-- KEYS[1]: the limit; its value is the moment at which all of it is free again, in microseconds
-- ARGV[1]: the interval; ARGV[2]: interval x size of the burst; both in microseconds
-- Returns: 0 allowed; n > 0 refused and not counted; try again in n milliseconds
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local free = tonumber(redis.call('GET', KEYS[1]) or now)
-- After the clock was set back, the wait is at most that of a full limit.
free = math.min(math.max(free, now), now + ARGV[2])
local wait = free + ARGV[1] - ARGV[2] - now
if wait > 0 then
  return math.ceil(wait / 1000)
end
free = free + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', free), 'PX', math.ceil((free - now) / 1000))
return 0

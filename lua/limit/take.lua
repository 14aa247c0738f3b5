-- Purpose: let through so many at once and then one an interval, whoever asks (the generic cell
-- rate algorithm), by the clock of this server.
-- KEYS[1]: whose limit; holds the moment at which all of it is free again, in microseconds
-- ARGV[1]: the interval, ARGV[2]: interval x so many, both in microseconds
-- Returns: 0 let through; n > 0 refused, and nothing was counted: again in n milliseconds
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local free = tonumber(redis.call('GET', KEYS[1]) or now)
-- A clock that was set back must not refuse anybody for longer than the whole limit takes.
free = math.min(math.max(free, now), now + ARGV[2])
local wait = free + ARGV[1] - ARGV[2] - now
if wait > 0 then
  return math.ceil(wait / 1000)
end
free = free + ARGV[1]
redis.call('SET', KEYS[1], string.format('%.0f', free), 'PX', math.ceil((free - now) / 1000))
return 0

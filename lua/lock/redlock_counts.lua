-- Purpose: tell whether an acquisition would count this server. One that came up empty stays out
--   (see redlock_acquire.lua), from this call on if it is the first.
-- KEYS[1]: when this server was first asked since it was last empty, in ms
-- ARGV[1]: how long a server that came up empty stays out, in ms; 0 is not at all
-- Returns: 1 it counts; -1 it stays out
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number or nil
end
local out_ms = whole(ARGV[1], 0)
if #KEYS ~= 1 or #ARGV ~= 1 or not out_ms then
  return redis.error_reply('ERR redlock_counts: 1 key, time out in ms')
end
if out_ms == 0 then
  return 1
end
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local since_ms = tonumber(redis.call('GET', KEYS[1]))
if not since_ms then
  redis.call('SET', KEYS[1], string.format('%d', now_ms))
  return -1
end
return now_ms - since_ms < out_ms and -1 or 1

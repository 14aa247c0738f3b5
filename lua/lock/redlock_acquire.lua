-- Purpose: take a lock on one of several independent servers. A server that came up empty may have
--   forgotten locks that its neighbours still count on. It stays out for as long as any of them can
--   live, by its own clock, from the first time it was asked.
-- KEYS[1]: the lock
-- KEYS[2]: when this server was first asked since it was last empty, in ms
-- ARGV[1]: the owner
-- ARGV[2]: the lease, in ms
-- ARGV[3]: how long a server that came up empty stays out, in ms; 0 is not at all
-- Returns: 1 taken, or the owner's already (the lease is set anew); 0 another owner's; -1 stays out
local function whole(text, least)
  local number = tonumber(text)
  return number and number >= least and number <= 1e12 and number % 1 == 0 and number or nil
end
local owner, lease_ms, out_ms = ARGV[1], whole(ARGV[2], 1), whole(ARGV[3], 0)
if #KEYS ~= 2 or #ARGV ~= 3 or owner == '' or not lease_ms or not out_ms then
  return redis.error_reply('ERR redlock_acquire: 2 keys, owner, lease in ms, time out in ms')
end

local holder = redis.call('GET', KEYS[1])
if out_ms > 0 then
  local time = redis.call('TIME')
  local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
  local since_ms = tonumber(redis.call('GET', KEYS[2]))
  if not since_ms then
    redis.call('SET', KEYS[2], string.format('%d', now_ms))
    return -1
  end
  if now_ms - since_ms < out_ms then
    return -1
  end
end
if holder and holder ~= owner then
  return 0
end
redis.call('SET', KEYS[1], owner, 'PX', string.format('%d', lease_ms))
return 1

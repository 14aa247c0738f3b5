-- Purpose: set the lease of a lock anew, but only if the caller still owns it.
-- KEYS[1]: the lock
-- ARGV[1]: the owner
-- ARGV[2]: the lease, in ms
-- Returns: 1 renewed; 0 somebody else's, untouched; -1 nobody's (expired or removed)
local owner = ARGV[1]
local lease_ms = tonumber(ARGV[2])
if #KEYS ~= 1 or not owner or owner == '' or not lease_ms or lease_ms < 1 then
  return redis.error_reply('ERR renew_if_owner: 1 key, owner, lease in ms')
end

local holder = redis.call('GET', KEYS[1])
if not holder then
  return -1
end
if holder ~= owner then
  return 0
end
redis.call('PEXPIRE', KEYS[1], string.format('%d', lease_ms))
return 1
